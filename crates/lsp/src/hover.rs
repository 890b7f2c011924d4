//! Hovers: the type of a name, and the comment above its definition.

use spile_syntax::ast::{FileId, Span};
use spile_syntax::parser::doc_comment;
use spile_syntax::pretty;

use crate::analysis::Analysis;
use crate::cursor::{parse_points, points_of};
use crate::goto::{Meaning, alias, family, meaning, member_type};
use crate::workspace::Workspace;

/// Maximum number of variables or points in a hover.
const MAX_SHOWN: usize = 24;

/// The text about token `i`, in Markdown.
pub(crate) fn hover(a: &Analysis, workspace: &Workspace, i: usize) -> Option<String> {
    Some(match meaning(a, workspace, i)? {
        Meaning::Function(functions) => {
            let each = functions.iter().map(|(file, f)| {
                let doc = f.doc.as_deref().unwrap_or("");
                let origin = origin(a, *file, f.name.span);
                markdown(&format!("function {}", a.signature(f)), &[doc, &origin])
            });
            each.collect::<Vec<_>>().join("\n\n---\n\n")
        }
        Meaning::Global(v) => {
            let doc =
                doc_comment(a.sources.text(v.span.file), line_start(a, v.span)).unwrap_or_default();
            markdown(&typed("global ", &v.name, &v.ty), &[&doc])
        }
        Meaning::Local(v) => markdown(&typed("", &v.name, &v.ty), &[]),
        Meaning::Context(name, ty) => {
            markdown(&typed("", &name, &ty), &["a variable of the probe point"])
        }
        Meaning::Member(name, base) => {
            let ty = member_type(workspace, base, &name)?.spell(&*workspace.facts);
            let owner = base.spell(&*workspace.facts);
            markdown(&typed("", &name, &ty), &[&format!("a member of `{owner}`")])
        }
        Meaning::Macro(name, span) => {
            let text = a.sources.text(span.file);
            let doc = doc_comment(text, span.start as usize).unwrap_or_default();
            let rest = text.get(span.start as usize..).unwrap_or("");
            let end = rest.find("%)").map_or(rest.len(), |n| n + 2);
            let short: Vec<&str> = rest[..end].lines().take(MAX_SHOWN).collect();
            let code = match &short[..] {
                [] => name,
                lines => lines.join("\n"),
            };
            markdown(&code, &[&doc, &origin(a, span.file, span)])
        }
        Meaning::Point(text) => point(a, workspace, &text)?,
        Meaning::Word(doc) => markdown(doc.usage, &[doc.doc]),
        Meaning::Argument(n) => markdown(
            &format!("argument {n}"),
            &["of the command line, after the script's name"],
        ),
    })
}

fn typed(lead: &str, name: &str, ty: &str) -> String {
    let colon = if ty.is_empty() { "" } else { ": " };
    format!("{lead}{name}{colon}{ty}")
}

/// A code block with paragraphs below it.
fn markdown(code: &str, texts: &[&str]) -> String {
    let mut out = format!("```systemtap\n{code}\n```");
    for text in texts.iter().filter(|t| !t.is_empty()) {
        out.push_str(&format!("\n\n{text}"));
    }
    out
}

/// The file of a definition's name; empty if the document has the definition.
fn origin(a: &Analysis, file: FileId, name: Span) -> String {
    match file == a.file {
        true => String::new(),
        false => format!("*{}*", a.sources.name(name.file)),
    }
}

fn line_start(a: &Analysis, span: Span) -> usize {
    let before = a
        .sources
        .text(span.file)
        .get(..span.start as usize)
        .unwrap_or("");
    before.rfind('\n').map_or(0, |n| n + 1)
}

/// A probe point: its documentation, its events, its variables.
fn point(a: &Analysis, workspace: &Workspace, text: &str) -> Option<String> {
    let points = parse_points(a, text);
    let first = points.first()?;
    let mut texts: Vec<String> = Vec::new();
    let mut code = format!("probe {text}");
    if let Some((name, file, span)) = alias(a, first) {
        let definitions = a
            .library
            .alias_definition(&name)
            .map(|(_, _, p)| p)
            .unwrap_or_default();
        let defined: Vec<String> = definitions
            .into_iter()
            .take(MAX_SHOWN)
            .map(pretty::probe_point)
            .collect();
        code = format!("probe {name} = {}", defined.join(", "));
        texts.extend(doc_comment(a.sources.text(file), span.start as usize));
        texts.push(origin(a, file, span));
    } else if let Some(f) = family(first) {
        code = format!("probe {}", f.text());
        texts.push(f.doc.into());
    }
    let listed = points_of(a, workspace, text);
    if let [one] = &listed[..] {
        let vars = one.vars.iter().map(|(n, t)| format!("`{n}`: {t}"));
        let targets = one.targets.iter().map(|(n, t)| format!("`${n}`: {t}"));
        let variables: Vec<String> = vars.chain(targets).take(MAX_SHOWN).collect();
        if !variables.is_empty() {
            texts.push(format!("Variables: {}", variables.join(", ")));
        }
    } else if listed.len() > 1 {
        let names: Vec<String> = listed
            .iter()
            .take(MAX_SHOWN)
            .map(|l| format!("`{}`", l.point))
            .collect();
        let more = match listed.len() > MAX_SHOWN {
            true => ", ...",
            false => "",
        };
        texts.push(format!("Points: {}{more}", names.join(", ")));
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    Some(markdown(&code, &texts))
}
