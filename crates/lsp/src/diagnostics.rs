//! Diagnostics of the command line in the protocol's form: the same codes, locations and hints.

use lsp_types::{
    Diagnostic, DiagnosticRelatedInformation, DiagnosticSeverity, DiagnosticTag, Location,
    NumberOrString, Range, Uri,
};
use spile_sema::types::codes::UNUSED_FUNCTION;
use spile_syntax::diag::{self, Severity, SpanLabel};

use crate::analysis::Analysis;
use crate::text::DocText;

/// All diagnostics of a document.
pub(crate) fn diagnostics(a: &Analysis, text: &DocText, uri: &Uri) -> Vec<Diagnostic> {
    let each = a.diags.into_iter();
    each.map(|d| to_lsp(a, d, text, uri)).collect()
}

fn to_lsp(a: &Analysis, d: &diag::Diagnostic, text: &DocText, uri: &Uri) -> Diagnostic {
    let in_document = |l: &&SpanLabel| l.span.file == a.file;
    let labels = || d.primary.iter().chain(&d.secondary);
    // An error in a macro is shown at the script's use of the macro.
    let shown = labels().find(in_document);
    let range = shown.map_or(Range::default(), |l| text.span(l.span));
    let mut message = d.message.clone();
    let mut append_line = |lead: &str, more: &str| {
        if !more.is_empty() {
            message.push_str(&format!("\n{lead}{more}"));
        }
    };
    match &d.primary {
        Some(l) if l.span.file == a.file => append_line("", &l.text),
        Some(l) => append_line("in ", &a.sources.location(l.span)),
        None => {}
    }
    d.notes.iter().for_each(|n| append_line("note: ", n));
    d.help.iter().for_each(|h| append_line("help: ", h));
    let related = labels()
        .filter(in_document)
        .filter(|l| !shown.is_some_and(|s| std::ptr::eq(s, *l)));
    let related: Vec<_> = related
        .map(|l| DiagnosticRelatedInformation {
            location: Location::new(uri.clone(), text.span(l.span)),
            message: if l.text.is_empty() {
                d.message.clone()
            } else {
                l.text.clone()
            },
        })
        .collect();
    Diagnostic {
        range,
        severity: Some(match d.severity {
            Severity::Error => DiagnosticSeverity::ERROR,
            Severity::Warning => DiagnosticSeverity::WARNING,
            Severity::Note => DiagnosticSeverity::INFORMATION,
        }),
        code: Some(NumberOrString::String(d.code.into())),
        source: Some("spile".into()),
        message,
        related_information: (!related.is_empty()).then_some(related),
        tags: (d.code == UNUSED_FUNCTION).then(|| vec![DiagnosticTag::UNNECESSARY]),
        ..Diagnostic::default()
    }
}
