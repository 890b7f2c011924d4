//! Compiles the script's regular expressions after resolution; with tables that find groups where
//! the script reads groups.

use spile_ir::intrinsics::Intrinsic;
use spile_ir::regex::{self, Regex as Compiled};
use spile_syntax::ast::Span;
use spile_syntax::diag::{Diagnostic, Diagnostics};

use super::codes;
use super::hir::*;

/// Compiles all regular expressions.
pub fn compile(tree: &mut Tree, diags: &mut Diagnostics) {
    let asks = |e: &HirExpr| {
        let HirExprKind::Intr { f, .. } = e.kind else {
            return false;
        };
        matches!(f, Intrinsic::MatchGroup | Intrinsic::MatchGroups)
    };
    let asked = tree.units.iter().any(|u| any_expr_in(&u.body, asks));
    for i in 0..tree.regexes.len() {
        let (done, rest) = tree.regexes.split_at_mut(i);
        let Some(re) = rest.first_mut() else { break };
        if let Some(same) = done.iter().find(|d| d.pattern == re.pattern) {
            // An invalid expression was reported already.
            re.compiled = same.compiled.clone();
            continue;
        }
        match Compiled::new(&re.pattern, asked) {
            Ok(compiled) => re.compiled = Some(compiled),
            Err(e) => diags.push(message(re, &e)),
        }
    }
}

fn message(re: &ScriptRegex, e: &regex::Error) -> Diagnostic {
    let code = match e.too_large() {
        true => codes::LARGE_REGEX,
        false => codes::BAD_REGEX,
    };
    let d = Diagnostic::error(code, e.message.clone()).at(location(re, e.offset));
    match e.remedy() {
        "" => d,
        help => d.help(help),
    }
}

/// The position in the literal, or the whole literal if it has escapes.
fn location(re: &ScriptRegex, offset: Option<usize>) -> Span {
    let whole = re.span;
    let plain = (whole.end - whole.start) as usize == re.pattern.len() + 2;
    match offset.and_then(|offset| u32::try_from(offset).ok()) {
        Some(offset) if plain && whole.start + 1 + offset < whole.end => Span {
            start: whole.start + 1 + offset,
            end: whole.start + 2 + offset,
            ..whole
        },
        _ => whole,
    }
}
