//! Messages of run-time errors, in SystemTap's words.

use std::fmt::Write;

use spile_ir::{HandlerId, MAX_CALLERS, Program, SiteId, Ty};
use spile_layout::ErrorKind;
pub(crate) use spile_layout::{MAXACTION, MAXNESTING};

use crate::shared::ring_record::FieldValue;

/// The message of an error that a kernel handler sent.
pub fn kernel_error(kind: ErrorKind, fields: &[FieldValue<'_>], program: &Program) -> String {
    let text = kind.message(program);
    match (kind.field(0), fields.first()) {
        (None, _) => text,
        (Some(Ty::Long), Some(FieldValue::Long(address))) => format!("{text}{address:x}"),
        (Some(Ty::Long), _) => format!("{text}0"),
        (Some(Ty::Str(_)), Some(FieldValue::Str(text))) => String::from_utf8_lossy(text).into(),
        (Some(Ty::Str(_)), _) => "error".into(),
    }
}

/// An error that passed through calls.
pub struct RethrownError {
    /// The message.
    pub message: String,
    /// The position of the error.
    pub site: SiteId,
    /// The calls that the error passed, innermost first.
    pub callers: Vec<SiteId>,
}

/// Parses the fields of a [`RecordKind::Rethrown`]; `None` if they do not match.
///
/// [`RecordKind::Rethrown`]: spile_layout::RecordKind::Rethrown
pub fn rethrown(
    kinds: &[ErrorKind],
    fields: &[FieldValue<'_>],
    program: &Program,
) -> Option<RethrownError> {
    let long = |i: usize| match fields.get(i) {
        Some(FieldValue::Long(n)) => Some(*n),
        _ => None,
    };
    let site = |i: usize| Some(SiteId(u32::try_from(long(i)?).ok()?));
    let kind = *kinds.get(usize::try_from(long(0)?).ok()?)?;
    let count = usize::try_from(long(2)?).ok()?.min(MAX_CALLERS);
    let callers = (3..3 + count).map(site).collect::<Option<_>>()?;
    let carried = match kind {
        ErrorKind::Raised => fields.get(4 + MAX_CALLERS..)?,
        _ => fields.get(3 + MAX_CALLERS..)?,
    };
    Some(RethrownError {
        message: kernel_error(kind, carried, program),
        site: site(1)?,
        callers,
    })
}

/// The whole line: message, position, callers (innermost first) and probe, with the other
/// tracepoints that share its program.
pub fn error_line(
    message: &str,
    site: SiteId,
    callers: &[SiteId],
    (handler, others): (Option<HandlerId>, &[String]),
    program: &Program,
) -> String {
    let mut line = format!("ERROR: {message}");
    for (i, location) in program.trace(site, callers).iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = match i {
            _ if location.near.is_empty() => Ok(()),
            0 => write!(line, " near {}", location.near),
            _ => write!(line, " (called from {})", location.near),
        };
    }
    if let Some(handler) = handler.and_then(|h| program.handlers.get(h.index())) {
        let _ = write!(line, " in probe {}", spile_plain::name(&handler.point));
        if !others.is_empty() {
            let _ = write!(line, ", or at {}", others.join(", "));
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_ir::{Event, Handler, Site};

    #[test]
    fn kinds_of_errors_have_their_texts() {
        let program = Program::default();
        for (kind, fields, text) in [
            (ErrorKind::DivisionByZero, vec![], "division by 0"),
            (
                ErrorKind::ReadFault,
                vec![FieldValue::Long(-1)],
                "read fault at 0xffffffffffffffff",
            ),
            (
                ErrorKind::UserStrFault,
                vec![],
                "user string copy fault at 0x0",
            ),
            (ErrorKind::Raised, vec![FieldValue::Str(b"oh no")], "oh no"),
        ] {
            assert_eq!(kernel_error(kind, &fields, &program), text);
        }
    }

    #[test]
    fn messages_name_their_locations() {
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
                Site::at("operator '/' at x.stp:1:2"),
                Site::at("identifier 'f' at x.stp:9:9"),
            ],
            ..Program::default()
        };
        assert_eq!(
            error_line(
                "division by 0",
                SiteId(1),
                &[SiteId(2)],
                (Some(HandlerId(0)), &[]),
                &program
            ),
            "ERROR: division by 0 near operator '/' at x.stp:1:2 \
             (called from identifier 'f' at x.stp:9:9) in probe begin\n"
        );
        assert_eq!(
            error_line("x", SiteId(0), &[], (None, &[]), &program),
            "ERROR: x\n"
        );
        let others = ["a_exit".to_owned(), "b_exit".to_owned()];
        assert_eq!(
            error_line("x", SiteId(0), &[], (Some(HandlerId(0)), &others), &program),
            "ERROR: x in probe begin, or at a_exit, b_exit\n"
        );
    }
}
