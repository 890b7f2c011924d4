//! `procfs`: files that scripts serve.

use spile_ir::{Event, Procfs};
use spile_syntax::ast::Component;
use spile_syntax::diag::DiagResult;
use spile_syntax::pretty::point_text;

use super::kinds::PointMatch;
use crate::facts::Facts;
use crate::probe::handler::HandlerKind;
use crate::probe::point::{bad_argument, number_in, string_of};

/// The file's name, where the script gives none.
const DEFAULT: &str = "command";
/// The file that feeds `input.*` probes in SystemTap; scripts cannot use it.
const RESERVED: &str = "__stdin";
/// Maximum number of bytes that a reader can get: the largest size of a pipe.
const MOST: u32 = 1 << 20;

/// The file that a point means.
pub(super) fn resolve(_: &dyn Facts, comps: &[Component]) -> DiagResult<Vec<PointMatch>> {
    let mut file = Procfs {
        path: DEFAULT.into(),
        write: false,
        maxsize: 0,
        umask: None,
    };
    for c in comps {
        match &*c.name {
            "procfs" => {
                if let Some(text) = string_of(c) {
                    file.path = path(&text, c)?.into();
                }
            }
            "write" => file.write = true,
            "umask" => {
                file.umask = Some(number_in(c, 0..=0o777, "a number from 0 to 0777")?);
            }
            "maxsize" => {
                file.maxsize = number_in(c, 1..=MOST, "a number of bytes up to 1048576")?;
            }
            _ => {}
        }
    }
    let kind = match file.write {
        true => HandlerKind::ProcfsWrite,
        false => HandlerKind::ProcfsRead,
    };
    let event = Event::Procfs(file);
    Ok(PointMatch::plain(event, point_text(comps), kind))
}

/// A path that stays in its directory.
fn path(text: &str, c: &Component) -> DiagResult<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let strange = |p: &&str| matches!(*p, "" | "." | "..") || p.len() > 255 || p.contains('\0');
    if parts.iter().any(strange) {
        let wanted = "a path in the session's directory, without empty components, `.` and `..`";
        return Err(bad_argument(c, wanted));
    }
    if parts[..] == [RESERVED] {
        let wanted = "another name: `__stdin` is SystemTap's own";
        return Err(bad_argument(c, wanted));
    }
    Ok(parts.join("/"))
}
