//! User memory that is not mapped: the run-time library reads it from the page cache
//! ([`spile_lir::library::usermem`]).

use spile_ebpf::isa::insn::{Reg, Src};
use spile_layout::plan::StateLayout;
use spile_layout::shared;
use spile_lir::library::routine::Routine;
use spile_lir::library::usermem::{self, UsermemLayout};

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::target::Target;

/// Result of `user_text` for an address that may be valid, in memory that is not resident.
pub(crate) const ABSENT: i32 = usermem::status::ABSENT;

/// The function that needs the words of the direct map.
pub(crate) const USER_TEXT: &str = "user_text";

/// Offset in a per-CPU area of the bytes that were read.
pub(crate) fn staging_area(plan: &StateLayout) -> u32 {
    plan.scratch.text + 2 * plan.max_string
}

/// Defines `user_text(capacity, address, raw)`, which reads up to `capacity` bytes into the [`staging_area`]
/// and terminates them with a NUL. Unless `raw` is set, it stops at a NUL.
pub(crate) fn use_user_text(
    pool: &mut crate::lower::pool::Pool,
    plan: &StateLayout,
    options: &Target,
) -> Res {
    let offset = |offset: u32| offset.cast_signed();
    let layout = UsermemLayout {
        most: offset(plan.max_string),
        staging: offset(staging_area(plan)),
        copy: offset(plan.scratch.text + 3 * plan.max_string),
        search: plan.scratch.search,
        pages: options.offsets.pages,
        first_page: shared::PAGES,
        direct_map: shared::MEMORY,
    };
    pool.routine(USER_TEXT, Some(plan), |_| Ok(Routine::UserMemory(layout)))
}

impl HandlerCodegen<'_> {
    /// Reads memory that a helper could not: up to `capacity` bytes at the address in `err_aux`. The result is
    /// nonzero if that fails too.
    pub(crate) fn read_absent(&mut self, capacity: Src, raw: bool) -> Res<Reg> {
        use_user_text(self.pool, self.plan, self.options)?;
        let from = self.block_word(self.plan.scratch.err_aux);
        let args = [capacity.into(), from.into(), i32::from(raw).into()];
        Ok(self.asm.call_sub_with(USER_TEXT, &args))
    }
}
