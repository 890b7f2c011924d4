//! The interpreter's environment: globals, host and kernel.

use std::borrow::Cow;
use std::rc::Rc;

use spile_bpf::layout::SymbolicForm;
use spile_ir::interp::{Element, Env, Fault, ForeachWalk, MemGlobals, Value, walk_elements};
use spile_ir::intrinsics::Intrinsic;
use spile_ir::stats::Stat;
use spile_ir::{
    ElemTy, FormatId, GlobalId, GlobalKind, Program, SortKey, SortSpec, Space, Stream, Ty,
};

use crate::controller::globals::{Globals, MarkTexts, RawValue};
use crate::controller::handler_effects::HandlerEffects;
use crate::controller::host::Host;
use crate::io::rows::PackedRows;
use crate::shared::kernel_state::KernelState;
use crate::shared::process_tree;

/// The environment of the interpreter.
pub(super) struct ControllerEnv {
    pub program: Rc<Program>,
    pub kernel: Option<KernelState>,
    pub mem: MemGlobals,
    pub host: Host,
    /// The output of the running handler, in order.
    pub printed: Vec<Printed>,
    /// Whether prints are taken as rows.
    pub rows: bool,
    pub truncated: u64,
    /// Globals that the current handler reads from a copy.
    pub copied: Vec<GlobalId>,
    /// Those copied globals that the handler has emptied.
    pub emptied: Vec<GlobalId>,
    /// Texts of stacks and symbols.
    pub texts: MarkTexts,
}

/// Output of a handler.
pub(super) enum Printed {
    Text(Stream, Vec<u8>),
    Rows(PackedRows),
}

impl ControllerEnv {
    pub(super) fn globals(&mut self) -> Globals<'_> {
        Globals {
            program: &self.program,
            kernel: self.kernel.as_ref(),
            mem: &mut self.mem,
            copied: &self.copied,
            texts: &self.texts,
        }
    }

    /// The values of the locked globals at one moment. Those that the handler takes are empty
    /// afterwards.
    pub(super) fn snapshot(
        &mut self,
        needs: &HandlerEffects,
    ) -> Result<Vec<(GlobalId, RawValue)>, Fault> {
        let globals = self.globals();
        let mut all = Vec::new();
        for (g, _) in needs.locks.iter().filter(|(g, _)| !needs.taken.contains(g)) {
            all.extend(globals.raw(*g)?.map(|raw| (*g, raw)));
        }
        for g in &needs.taken {
            all.extend(globals.take(*g)?.map(|raw| (*g, raw)));
        }
        Ok(all)
    }

    /// Globals that the handler took but did not empty, because an error ended it.
    pub(super) fn unemptied(&self, needs: &HandlerEffects) -> Vec<GlobalId> {
        let left = |g: &&GlobalId| self.copied.contains(g) && !self.emptied.contains(g);
        needs.taken.iter().filter(left).copied().collect()
    }

    /// Puts these globals back, merging them with newer values.
    pub(super) fn put_back(&mut self, left: &[GlobalId]) -> Result<(), Fault> {
        self.copied.retain(|g| !left.contains(g));
        left.iter().try_for_each(|g| {
            self.globals().put_back(*g)?;
            self.mem.gclear(*g)
        })
    }

    /// Gives the handler copies of globals. It reads the copies while the kernel changes the originals.
    pub(super) fn copy(&mut self, all: Vec<(GlobalId, RawValue)>) -> Result<(), Fault> {
        let ids: Vec<GlobalId> = all.iter().map(|(g, _)| *g).collect();
        for (g, raw) in all {
            self.globals().copy(g, raw)?;
        }
        self.copied = ids;
        Ok(())
    }

    /// Drops the copies.
    pub(super) fn drop_copies(&mut self) {
        self.emptied.clear();
        for g in std::mem::take(&mut self.copied) {
            // Cannot fail: the copied global exists.
            let _ = self.mem.gclear(g);
        }
    }

    /// Moves per-CPU deltas into the controller's values.
    pub(super) fn drain(&mut self) -> Result<Vec<(GlobalId, u64)>, Fault> {
        match &mut self.kernel {
            Some(kernel) => kernel.drain(&self.program, &mut self.mem, &self.texts.symbolic),
            None => Ok(Vec::new()),
        }
    }
}

impl Env for ControllerEnv {
    fn gload(&mut self, g: GlobalId) -> Result<Value, Fault> {
        self.globals().gload(g)
    }

    fn gstore(&mut self, g: GlobalId, v: Value) -> Result<(), Fault> {
        // A copy is changed in no other way.
        self.emptied.extend(self.copied.contains(&g).then_some(g));
        self.globals().gstore(g, v)
    }

    fn gadd(&mut self, g: GlobalId, v: i64) -> Result<i64, Fault> {
        self.globals().gadd(g, v)
    }

    fn aget(&mut self, g: GlobalId, keys: &[Value]) -> Result<Value, Fault> {
        self.globals().aget(g, keys)
    }

    fn aset(&mut self, g: GlobalId, keys: &[Value], v: Value) -> Result<(), Fault> {
        self.globals().aset(g, keys, v)
    }

    fn aadd(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<i64, Fault> {
        self.globals().aadd(g, keys, v)
    }

    fn ahas(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<bool, Fault> {
        self.globals().ahas(g, keys)
    }

    fn adel(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<(), Fault> {
        self.globals().adel(g, keys)
    }

    fn gclear(&mut self, g: GlobalId) -> Result<(), Fault> {
        self.emptied.extend(self.copied.contains(&g).then_some(g));
        self.globals().gclear(g)
    }

    fn stat_add(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<(), Fault> {
        self.globals().stat_add(g, keys, v)
    }

    fn stat_get(&mut self, g: GlobalId, keys: &[Value]) -> Result<Option<Stat>, Fault> {
        self.globals().stat_get(g, keys)
    }

    fn elements(&mut self, g: GlobalId, slice: &[Option<Value>]) -> Result<Vec<Element>, Fault> {
        self.globals().elements(g, slice)
    }

    fn walk(
        &mut self,
        g: GlobalId,
        slice: &[Option<Value>],
        sort: Option<SortSpec>,
        limit: Option<usize>,
    ) -> Result<ForeachWalk, Fault> {
        // Values with marks are sorted by their texts.
        let by_text = sort.is_some_and(|s| s.by == SortKey::Value)
            && matches!(
                self.program.globals.get(g.index()).map(|g| &g.kind),
                Some(GlobalKind::Array {
                    value: ElemTy::Scalar(Ty::Str(_)),
                    ..
                })
            );
        if by_text || self.globals().in_kernel(g) {
            return walk_elements(self, g, slice, (sort, limit));
        }
        self.mem.walk(g, slice, sort, limit)
    }

    fn text(&self, v: &Value) -> Option<Value> {
        match self.texts.symbolic.render(v.as_bytes()) {
            Cow::Borrowed(_) => None,
            Cow::Owned(text) => Some(Value::from(&text[..])),
        }
    }

    fn key(&self, v: &Value, ty: Ty) -> Option<Value> {
        self.texts.symbolic.key(v, ty).map(|k| k.0)
    }

    fn key_mark(&self, v: &Value) -> Option<Value> {
        self.texts.symbolic.key_mark(v)
    }

    fn intrinsic(&mut self, f: Intrinsic, args: &[Value]) -> Result<Value, Fault> {
        if let (Intrinsic::SymbolicForm, [form, of]) = (f, args) {
            // Lines of addresses are only printed, as by `print_syms`.
            if form.as_long() == SymbolicForm::KernelLines as i64 {
                let mark = self
                    .texts
                    .symbolic
                    .mark(SymbolicForm::KernelLines, of.as_bytes());
                return Ok(Value::from(&mark[..]));
            }
            return Ok(Value::from(
                &self.texts.symbolic.text(form.as_long(), of.as_bytes())[..],
            ));
        }
        if let (Intrinsic::InTree, [pid]) = (f, args) {
            let kernel = self.kernel.as_ref();
            let tree = kernel.and_then(|k| Some((k.state(), k.layout().tree?)));
            let has =
                tree.is_some_and(|(state, at)| process_tree::contains(state, at, pid.as_long()));
            return Ok(Value::Long(i64::from(has)));
        }
        if let (Intrinsic::ValueSet | Intrinsic::ValueAppend, [text]) = (f, args) {
            let text = self.texts.symbolic.render(text.as_bytes());
            let fits = self.host.set_value(&text, f == Intrinsic::ValueAppend);
            self.truncated += u64::from(!fits);
            return Ok(Value::Long(0));
        }
        self.host.intrinsic(f, args)
    }

    fn read_memory(&mut self, space: Space, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let fault = || Fault::from(format!("read fault at {addr:#x}"));
        if self.host.read(space, addr, buf)? {
            return Ok(());
        }
        Err(fault())
    }

    fn print_values(&mut self, stream: Stream, fmt: FormatId, values: &[Value]) -> bool {
        if !self.rows || stream != Stream::Out {
            return false;
        }
        match self.printed.last_mut() {
            Some(Printed::Rows(rows)) => rows.push(fmt, values),
            _ => {
                let mut rows = PackedRows::default();
                rows.push(fmt, values);
                self.printed.push(Printed::Rows(rows));
            }
        }
        true
    }

    fn print(&mut self, stream: Stream, text: &[u8]) {
        match self.printed.last_mut() {
            Some(Printed::Text(Stream::Out, all)) if stream == Stream::Out => {
                all.extend_from_slice(text);
            }
            _ => self.printed.push(Printed::Text(stream, text.to_vec())),
        }
    }

    fn truncated(&mut self) {
        self.truncated += 1;
    }
}
