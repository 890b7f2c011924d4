//! Writes the templates as Rust, for the build script.

use std::fmt::Write as _;

use super::Blocks;
use super::extract::extract;
use super::samples::samples;
use super::template::{Code, Field, Template};

/// The templates of all samples, each with the sample's index.
///
/// # Errors
/// A sample whose code depends on a number in another way than by a sum.
pub fn templates() -> Result<Vec<(usize, Template)>, String> {
    let mut templates = Vec::new();
    for (i, sample) in samples().iter().enumerate() {
        if let Ok(template) = extract(sample, Blocks::None) {
            templates.push((i, template));
            continue;
        }
        for blocks in [Blocks::PowerOfTwo, Blocks::Other] {
            let template = extract(sample, blocks).map_err(|e| format!("{sample:?}: {e}"))?;
            templates.push((i, template));
        }
    }
    Ok(templates)
}

/// The templates as Rust: an expression.
pub fn source(templates: &[(usize, Template)]) -> String {
    let mut out = String::from("&[\n");
    for (sample, template) in templates {
        let Template {
            blocks,
            numbers,
            functions,
            data,
        } = template;
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "({sample}, Template {{ blocks: Blocks::{blocks:?}, numbers: &{numbers:?}, functions: &["
        );
        for code in *functions {
            let Code {
                name,
                params,
                callable,
                words,
                fields,
                relocs,
            } = code;
            let _ = writeln!(
                out,
                "Code {{ name: {name:?}, params: &{params:?}, callable: {callable}, words: &{words:?}, fields: &["
            );
            for Field {
                part,
                index,
                number,
            } in *fields
            {
                let _ = write!(
                    out,
                    "Field {{ part: Part::{part:?}, index: {index}, number: {number} }},"
                );
            }
            let _ = write!(out, "], relocs: &[");
            for (slot, target) in *relocs {
                let _ = write!(out, "({slot}, TemplateTarget::{target:?}),");
            }
            let _ = writeln!(out, "] }},");
        }
        let _ = writeln!(out, "], data: &[");
        for (name, bytes) in *data {
            let _ = writeln!(out, "({name:?}, b\"{}\"),", bytes.escape_ascii());
        }
        let _ = writeln!(out, "] }}),");
    }
    out.push(']');
    out
}
