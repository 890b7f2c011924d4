//! Mutations of statements, handlers and declarations.

use spile_syntax::ast::*;

use super::edit::{Mutator, NUMBERS};
use super::points;
use super::tree::*;
use super::types::Ty;

impl Mutator {
    /// Wraps a statement in another one.
    pub(super) fn wrap_statement(&mut self, file: &mut File) -> bool {
        self.in_block(file, |m, b, unit, _| {
            let at = m.rng.below(b.stmts.len() as u32) as usize;
            let inner = b.stmts[at].clone();
            let body = block(vec![inner.clone()]);
            let boxed = || Box::new(stmt(StmtKind::Block(body.clone())));
            let cond = m.value(Ty::Long, Some(unit));
            let counter = m.name("c");
            let var = || expr(ExprKind::Var(counter.clone()));
            let times = expr(ExprKind::Num(i64::from(m.rng.pick(&[1, 2, 5, 30]))));
            let until = binary(BinOp::Lt, var(), times);
            let step = expr(ExprKind::IncDec {
                prefix: false,
                inc: true,
                target: Box::new(var()),
            });
            b.stmts[at] = stmt(match m.rng.below(6) {
                0 => StmtKind::If {
                    cond,
                    then: boxed(),
                    els: None,
                },
                1 => StmtKind::If {
                    cond,
                    then: boxed(),
                    els: Some(boxed()),
                },
                2 => StmtKind::Try {
                    body,
                    var: m.rng.chance(50).then(|| ident(&counter)),
                    handler: block(vec![inner]),
                },
                3 => StmtKind::For {
                    init: Some(expr(ExprKind::Assign {
                        op: None,
                        lhs: Box::new(var()),
                        rhs: Box::new(expr(ExprKind::Num(0))),
                    })),
                    cond: Some(until),
                    step: Some(step),
                    body: boxed(),
                },
                4 => StmtKind::While {
                    cond: binary(BinOp::LogAnd, binary(BinOp::Lt, step, number(4)), cond),
                    body: boxed(),
                },
                _ => StmtKind::Block(body),
            });
        })
    }

    /// Repeats a handler: enough of them share code.
    pub(super) fn more_handlers(&mut self, file: &mut File) -> bool {
        let times = self.rng.pick(&[1, 5, 8]);
        let Some(probe) = self.probe(file).cloned() else {
            return false;
        };
        for _ in 0..times {
            file.items.push(Item::Probe(probe.clone()));
        }
        true
    }

    /// Duplicates, removes or moves a statement.
    pub(super) fn shuffle(&mut self, file: &mut File) -> bool {
        self.in_block(file, |m, b, _, _| {
            let len = b.stmts.len() as u32;
            let at = m.rng.below(len) as usize;
            let other = m.rng.below(len) as usize;
            match m.rng.below(3) {
                0 => b.stmts.insert(other, b.stmts[at].clone()),
                1 => b.stmts.swap(at, other),
                _ => _ = b.stmts.remove(at),
            }
        })
    }

    pub(super) fn condition(&mut self, file: &mut File) -> bool {
        let value = self.value(Ty::Long, None);
        let Some(probe) = self.probe(file) else {
            return false;
        };
        let at = self.rng.below(probe.points.len() as u32) as usize;
        let old = probe.points[at].condition.take();
        probe.points[at].condition = match old {
            Some(old) if self.rng.chance(50) => Some(Box::new(binary(BinOp::LogOr, *old, value))),
            _ => Some(Box::new(value)),
        };
        true
    }

    pub(super) fn declaration(&mut self, file: &mut File) -> bool {
        let mut vars: Vec<&mut GlobalVar> = file
            .items
            .iter_mut()
            .filter_map(|item| match item {
                Item::Global(g) => Some(&mut g.vars),
                _ => None,
            })
            .flatten()
            .collect();
        let at = self.rng.below(vars.len() as u32) as usize;
        let Some(var) = vars.get_mut(at) else {
            return false;
        };
        let keys = self.types.globals.get(&var.name.name);
        if keys.is_some_and(|(keys, _)| !keys.is_empty()) {
            var.wrap = self.rng.chance(50);
            var.max = Some(self.rng.pick(&[1, 2, 5, 100, 5000, 70_000]));
            return true;
        }
        var.init = match &var.init {
            Some(Literal::Num(_)) => Some(Literal::Num(self.rng.pick(NUMBERS))),
            _ => return false,
        };
        true
    }

    pub(super) fn leave(&mut self, file: &mut File) -> bool {
        let functions: Vec<bool> = file
            .items
            .iter()
            .map(|i| matches!(i, Item::Function(_)))
            .collect();
        self.in_block(file, |m, b, unit, looped| {
            let kind = match m.rng.below(3) {
                0 | 1 if looped => m.rng.pick(&[0, 1]),
                _ => 2,
            };
            let leave = match kind {
                0 => StmtKind::Break,
                1 => StmtKind::Continue,
                _ if functions[unit] => StmtKind::Expr(call(
                    "error",
                    vec![expr(ExprKind::Str(b"left".as_slice().into()))],
                )),
                _ => StmtKind::Next,
            };
            let cond = m.value(Ty::Long, Some(unit));
            let leave = stmt(StmtKind::If {
                cond,
                then: Box::new(stmt(leave)),
                els: None,
            });
            let at = m.rng.below(b.stmts.len() as u32 + 1) as usize;
            b.stmts.insert(at, leave);
        })
    }

    /// Adds another `foreach` in any handler.
    pub(super) fn walk_again(&mut self, file: &mut File) -> bool {
        let Some((array, keys)) = self.array() else {
            return false;
        };
        let names: Vec<String> = (0..keys).map(|_| self.name("w").to_string()).collect();
        let (each, value) = (names.join(", "), self.name("n"));
        let statistic = self.types.statistics.contains(&array);
        let read = match statistic {
            true => format!("@count({array}[{each}])"),
            false => format!("sprint({array}[{each}])"),
        };
        let order = self.rng.pick(&["", "+", "-", " limit 3", "- limit 1"]);
        let clear = match self.rng.below(3) {
            0 => format!("delete {array}"),
            1 => format!("{value}_ = [{each}] in {array}"),
            _ => String::new(),
        };
        let text = format!(
            "probe never {{ foreach ([{each}] in {array}{order}) {{ {value} .= sprint({read}) }}\n\
             println({value})\n{clear} }}"
        );
        let parsed = crate::shrink::parse(&text).unwrap_or_default();
        let Some(Item::Probe(made)) = parsed.items.into_iter().next() else {
            return false;
        };
        let quick = self.rng.chance(40);
        match (quick, self.probe(file)) {
            (false, Some(probe)) => probe.body.stmts.extend(made.body.stmts),
            _ => {
                let points = points::points(self.rng.pick(&["timer.ms(2)", "timer.ms(11)", "end"]));
                file.items.push(Item::Probe(Probe { points, ..made }));
            }
        }
        true
    }
}
