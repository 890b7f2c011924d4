//! The texts of run-time errors, as users of SystemTap know them.

use std::fmt::Write;

use spile_bpf::layout::ErrorKind;
use spile_ir::{ElemTy, GlobalKind, HandlerId, Program, SiteId};

use crate::record::Field;

/// The message of an error that a kernel handler sent.
pub fn kernel_error(kind: ErrorKind, fields: &[Field<'_>], program: &Program) -> String {
    let address = || match fields.first() {
        Some(Field::Long(n)) => *n as u64,
        _ => 0,
    };
    match kind {
        ErrorKind::DivisionByZero => "division by 0".into(),
        ErrorKind::EmptyAggregate => "empty aggregate".into(),
        ErrorKind::Overflow(id) => match program.globals.get(id.index()) {
            Some(global) => overflow(&global.name, &global.kind),
            None => "Array overflow, check MAXMAPENTRIES".into(),
        },
        ErrorKind::HistIndex => "histogram index out of range".into(),
        ErrorKind::ReadFault => format!("read fault at {:#x}", address()),
        ErrorKind::KernelStrFault => format!("kernel string copy fault at {:#x}", address()),
        ErrorKind::UserStrFault => format!("user string copy fault at {:#x}", address()),
        ErrorKind::Raised => match fields.first() {
            Some(Field::Str(text)) => String::from_utf8_lossy(text).into_owned(),
            _ => "error".into(),
        },
        ErrorKind::MaxAction => "MAXACTION exceeded".into(),
    }
}

/// What a full array says.
pub fn overflow(name: &str, kind: &GlobalKind) -> String {
    match kind {
        GlobalKind::Array {
            value: ElemTy::Stats(_),
            ..
        } => {
            format!("aggregation overflow in {name}")
        }
        _ => "Array overflow, check MAXMAPENTRIES".into(),
    }
}

/// The whole line: message, place, callers (innermost first) and probe.
pub fn error_line(
    message: &str,
    site: SiteId,
    callers: &[SiteId],
    handler: Option<HandlerId>,
    program: &Program,
) -> String {
    let near = |site: &SiteId| program.sites.get(site.index()).map_or("", |s| &*s.near);
    let mut line = format!("ERROR: {message}");
    // Writing to a String cannot fail.
    if !near(&site).is_empty() {
        let _ = write!(line, " near {}", near(&site));
    }
    for caller in callers {
        let _ = write!(line, " (called from {})", near(caller));
    }
    if let Some(handler) = handler.and_then(|h| program.handlers.get(h.index())) {
        let _ = write!(line, " in probe {}", handler.point);
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_ir::{Event, Handler, Site, StatsSpec, Ty};

    #[test]
    fn texts() {
        let program = Program::default();
        for (kind, fields, text) in [
            (ErrorKind::DivisionByZero, vec![], "division by 0"),
            (
                ErrorKind::ReadFault,
                vec![Field::Long(-1)],
                "read fault at 0xffffffffffffffff",
            ),
            (
                ErrorKind::UserStrFault,
                vec![],
                "user string copy fault at 0x0",
            ),
            (ErrorKind::Raised, vec![Field::Str(b"oh no")], "oh no"),
        ] {
            assert_eq!(kernel_error(kind, &fields, &program), text);
        }
        let keys = vec![Ty::Long];
        let array = |value| GlobalKind::Array {
            keys: keys.clone(),
            value,
            max: 1,
            wrap: false,
        };
        assert_eq!(
            overflow("a", &array(ElemTy::Scalar(Ty::Long))),
            "Array overflow, check MAXMAPENTRIES"
        );
        let stats = array(ElemTy::Stats(StatsSpec::default()));
        assert_eq!(overflow("a", &stats), "aggregation overflow in a");
    }

    #[test]
    fn lines() {
        let program = Program {
            handlers: vec![Handler {
                point: "begin".into(),
                points: 1,
                event: Event::Begin(0),
                body: Default::default(),
                site: SiteId(0),
            }],
            sites: vec![
                Site::default(),
                Site {
                    near: "operator '/' at x.stp:1:2".into(),
                },
                Site {
                    near: "identifier 'f' at x.stp:9:9".into(),
                },
            ],
            ..Program::default()
        };
        assert_eq!(
            error_line(
                "division by 0",
                SiteId(1),
                &[SiteId(2)],
                Some(HandlerId(0)),
                &program
            ),
            "ERROR: division by 0 near operator '/' at x.stp:1:2 \
             (called from identifier 'f' at x.stp:9:9) in probe begin\n"
        );
        assert_eq!(
            error_line("x", SiteId(0), &[], None, &program),
            "ERROR: x\n"
        );
    }
}
