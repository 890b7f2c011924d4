//! Events of processes: `process("PATH" or PID).begin`, `.end`, `.thread.*`, `.syscall`.
//!
//! Such a point is an alias of the library, which uses the kernel's events, with a filter in front
//! that rejects other processes: by number, or by the file they run and, if there is a target, by
//! descent from it.

use spile_syntax::ast::{
    BinOp, Component, Expr, ExprKind, Literal, Span, Stmt, StmtBlock, StmtKind, UnOp,
};
use spile_syntax::diag::DiagResult;

use super::context::ExprBuilder;
use super::point::{modules, no_module};
use crate::facts::{Facts, ModuleQuery, ProbeModule};

/// The filter statement `if (!meant) next`.
pub(crate) fn filter(facts: &dyn Facts, process: &Component) -> DiagResult<StmtBlock> {
    let span = process.span;
    let meant = Box::new(current_process_matches(facts, process)?);
    let kind = ExprKind::Unary(UnOp::Not, meant);
    let next = StmtKind::Next;
    let kind = StmtKind::If {
        cond: Expr { kind, span },
        then: Box::new(Stmt { kind: next, span }),
        els: None,
    };
    let stmts = vec![Stmt { kind, span }];
    Ok(StmtBlock { stmts, span })
}

fn binary(op: BinOp, a: Expr, b: Expr, span: Span) -> Expr {
    let kind = ExprKind::Binary(op, Box::new(a), Box::new(b));
    Expr { kind, span }
}

/// The condition that the probe point names the current process.
fn current_process_matches(facts: &dyn Facts, process: &Component) -> DiagResult<Expr> {
    let make = ExprBuilder(process.span);
    match &process.arg {
        None => Ok(make.call("__process_targeted", Vec::new())),
        Some(Literal::Num(n)) => {
            let pid = u32::try_from(*n).map_or(*n, |pid| facts.process_number(pid).into());
            Ok(make.bin(BinOp::Eq, make.call("pid", Vec::new()), pid))
        }
        Some(Literal::Str(s)) => {
            let runs = files(facts, &String::from_utf8_lossy(s), process)?;
            let targeted = || make.call("__process_targeted", Vec::new());
            Ok(match facts.has_target() {
                true => binary(BinOp::LogAnd, targeted(), runs, process.span),
                false => runs,
            })
        }
    }
}

/// The condition that the current process runs a file that the pattern matches.
fn files(facts: &dyn Facts, pattern: &str, c: &Component) -> DiagResult<Expr> {
    let make = ExprBuilder(c.span);
    let modules = modules(facts, &ModuleQuery::Path(pattern.into()), c)?;
    let mut any: Option<Expr> = None;
    for module in modules {
        let ProbeModule::File(path) = module.module else {
            continue;
        };
        let id = facts
            .file_identity(&path)
            .ok_or_else(|| no_module(c, format!("{path} cannot be read")))?;
        let args = vec![
            make.num(id.device.cast_signed()),
            make.num(id.inode.cast_signed()),
        ];
        let one = make.call("__process_runs", args);
        any = Some(match any {
            None => one,
            Some(others) => binary(BinOp::LogOr, others, one, c.span),
        });
    }
    any.ok_or_else(|| no_module(c, format!("there is no program {pattern}")))
}
