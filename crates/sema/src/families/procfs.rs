//! `procfs`: files that scripts serve.

use spile_ir::{Event, Procfs};
use spile_syntax::ast::{Component, Literal};
use spile_syntax::diag::DiagResult;

use super::{PointMatch, bad_argument, number_of, point_text};
use crate::probe::handler::ContextKind;

/// The file's name, where the script gives none.
const DEFAULT: &str = "command";
/// The file that feeds `input.*` probes in SystemTap; scripts cannot use it.
const RESERVED: &str = "__stdin";
/// Maximum number of bytes that a reader can get: the largest size of a pipe.
const MOST: i64 = 1 << 20;

/// The file that a point means.
pub(super) fn resolve(comps: &[Component]) -> DiagResult<Vec<PointMatch>> {
    let mut file = Procfs {
        path: DEFAULT.into(),
        write: false,
        maxsize: 0,
        umask: None,
    };
    for c in comps {
        match &*c.name {
            "procfs" => {
                if let Some(Literal::Str(s)) = &c.arg {
                    file.path = path(&String::from_utf8_lossy(s), c)?.into();
                }
            }
            "write" => file.write = true,
            "umask" => {
                let n = number_of(c).and_then(|n| u16::try_from(n).ok());
                let n = n.filter(|n| *n <= 0o777);
                file.umask = Some(n.ok_or_else(|| bad_argument(c, "a number from 0 to 0777"))?);
            }
            "maxsize" => {
                let n = number_of(c).filter(|n| (1..=MOST).contains(n));
                file.maxsize =
                    n.ok_or_else(|| bad_argument(c, "a number of bytes up to 1048576"))? as u32;
            }
            _ => {}
        }
    }
    let kind = match file.write {
        true => ContextKind::ProcfsWrite,
        false => ContextKind::ProcfsRead,
    };
    Ok(vec![PointMatch::Event {
        event: Event::Procfs(file),
        point: point_text(comps),
        kind,
    }])
}

/// A path that stays in its directory.
fn path(text: &str, c: &Component) -> DiagResult<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let strange = |p: &&str| matches!(*p, "" | "." | "..") || p.len() > 255 || p.contains('\0');
    if parts.iter().any(strange) {
        return Err(bad_argument(
            c,
            "a path in the session's directory, without empty components, `.` and `..`",
        ));
    }
    if parts[..] == [RESERVED] {
        return Err(bad_argument(
            c,
            "another name: `__stdin` is SystemTap's own",
        ));
    }
    Ok(parts.join("/"))
}
