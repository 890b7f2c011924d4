//! The changes that make a mutant.

use std::collections::HashMap;

use spile_ir::testgen::Rng;
use spile_syntax::ast::*;

use super::points;
use super::tree::*;
use super::types::{Signature, Ty, Types};
use super::walk::{self, Role};

/// Boundary values.
pub(super) const NUMBERS: &[i64] = &[
    0,
    0,
    1,
    -1,
    2,
    7,
    31,
    63,
    64,
    65,
    255,
    256,
    511,
    512,
    513,
    -64,
    0x7fff_ffff,
    0x8000_0000,
    -0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
];

/// Lengths of strings around limits: of words, keys and MAXSTRINGLEN.
const LENGTHS: &[usize] = &[
    0, 0, 1, 7, 8, 9, 15, 16, 31, 63, 64, 65, 127, 128, 255, 510, 511, 512, 513, 1023,
];

const PATTERNS: &[&str] = &[
    "a+b*",
    "^.*$",
    "(l)(o)",
    "[[:digit:]]+",
    "",
    "x{2,5}",
    "o(a|d)?$",
];

/// Calls that are valid in most locations.
const CALLS: &[(Ty, &str)] = &[
    (Ty::Long, "tid"),
    (Ty::Long, "pid"),
    (Ty::Long, "cpu"),
    (Ty::Long, "uid"),
    (Ty::Long, "gettimeofday_us"),
    (Ty::Long, "target"),
    (Ty::Str, "execname"),
    (Ty::Str, "pp"),
    (Ty::Str, "pn"),
    (Ty::Str, "ppfunc"),
];

/// A value of the script that can be used elsewhere.
struct Spare {
    unit: usize,
    ty: Ty,
    /// Whether it uses no locals and no context variables.
    closed: bool,
    expr: Expr,
}

pub(super) struct Mutator {
    pub rng: Rng,
    pub types: Types,
    spares: Vec<Spare>,
    /// Number of made-up names.
    fresh: u32,
}

type Change = fn(&mut Mutator, &mut File) -> bool;

/// The changes with their weights.
const CHANGES: &[(u32, Change)] = &[
    (8, Mutator::operator),
    (8, Mutator::constant),
    (14, Mutator::other_value),
    (10, Mutator::wrap_value),
    (6, Mutator::assignment),
    (5, Mutator::add_key),
    (3, Mutator::remove_key),
    (10, Mutator::point),
    (8, Mutator::walk_order),
    (10, Mutator::wrap_statement),
    (5, Mutator::more_handlers),
    (5, Mutator::shuffle),
    (4, Mutator::condition),
    (4, Mutator::declaration),
    (4, Mutator::leave),
    (4, Mutator::extractor),
    (4, Mutator::through_function),
    (4, Mutator::walk_again),
];

/// Changes a script, by one to ten changes.
pub(super) fn mutate(file: &mut File, rng: &mut Rng, library: &HashMap<Name, Signature>) {
    for item in &mut file.items {
        if let Item::Probe(p) = item {
            p.points.iter_mut().for_each(|p| points::quicken(p, rng));
        }
    }
    let wanted = rng.pick(&[1, 2, 3, 4, 6, 10]);
    let mut made = 0;
    for _ in 0..40 {
        let types = Types::new(file, library);
        let spares = spares(file, &types);
        let fresh = rng.below(1000) * 100;
        let mut m = Mutator {
            rng: rng.clone(),
            types,
            spares,
            fresh,
        };
        let all = CHANGES.iter().map(|(w, _)| w).sum();
        let mut at = m.rng.below(all);
        let change = CHANGES.iter().find(|(w, _)| match at.checked_sub(*w) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        });
        made += u32::from(change.is_some_and(|(_, change)| change(&mut m, file)));
        *rng = m.rng;
        if made == wanted {
            return;
        }
    }
}

/// Adds random limits and execution options to a session's options.
pub(super) fn limits(args: &mut Vec<String>, rng: &mut Rng) {
    const LIMITS: &[(u32, &str, &[&str])] = &[
        (
            15,
            "MAXSTRINGLEN",
            &["16", "64", "128", "300", "1024", "4096"],
        ),
        (10, "MAXACTION", &["10", "50", "100000"]),
        (12, "MAXMAPENTRIES", &["1", "3", "100", "5000", "100000"]),
        (8, "MAXNESTING", &["1", "3", "50"]),
        (5, "MAXTRYLOCK", &["0", "10000"]),
        (5, "MAXBACKTRACE", &["1", "60"]),
        (5, "MAXSKIPPED", &["0", "1000000"]),
    ];
    for (percent, name, values) in LIMITS {
        if rng.chance(*percent) && !args.iter().any(|a| a.starts_with(name)) {
            args.extend(["-D".into(), format!("{name}={}", rng.pick(values))]);
        }
    }
    for (percent, option) in [(15, "-u"), (10, "-t"), (30, "--suppress-handler-errors")] {
        if rng.chance(percent) && !args.iter().any(|a| a == option) {
            args.push(option.into());
        }
    }
}

/// The values of a script that are not too large.
fn spares(file: &File, types: &Types) -> Vec<Spare> {
    let mut all = Vec::new();
    walk::exprs(&mut file.clone(), &mut |e, role, unit| {
        if role == Role::Value
            && let Some(ty) = types.of_expr(e, unit)
            && size(e) <= 8
        {
            all.push(Spare {
                unit,
                ty,
                closed: closed(e, types),
                expr: e.clone(),
            });
        }
        false
    });
    all
}

fn size(e: &Expr) -> usize {
    let mut n = 1;
    spile_syntax::visit::each_child(e, |c| n += size(c));
    n
}

fn closed(e: &Expr, types: &Types) -> bool {
    let own = match &e.kind {
        ExprKind::Var(name) => types.globals.contains_key(name),
        ExprKind::Target { .. } | ExprKind::At { .. } | ExprKind::Arrow { .. } => false,
        _ => true,
    };
    let mut all = own;
    spile_syntax::visit::each_child(e, |c| all &= closed(c, types));
    all
}

impl Mutator {
    /// Changes one of the expressions for which `fits` is true.
    fn at(
        &mut self,
        file: &mut File,
        fits: impl Fn(&Types, &Expr, Role, usize) -> bool,
        change: impl FnOnce(&mut Self, &mut Expr, Role, usize),
    ) -> bool {
        let mut count = 0;
        walk::exprs(file, &mut |e, role, unit| {
            count += u32::from(fits(&self.types, e, role, unit));
            false
        });
        if count == 0 {
            return false;
        }
        let (mut left, mut change) = (self.rng.below(count), Some(change));
        walk::exprs(file, &mut |e, role, unit| {
            if !fits(&self.types, e, role, unit) {
                return false;
            }
            if left > 0 {
                left -= 1;
                return false;
            }
            if let Some(change) = change.take() {
                change(self, e, role, unit);
            }
            true
        })
    }

    /// Changes one of the blocks.
    pub(super) fn in_block(
        &mut self,
        file: &mut File,
        change: impl FnOnce(&mut Self, &mut StmtBlock, usize, bool),
    ) -> bool {
        let mut count = 0;
        walk::blocks(file, &mut |b, _, _| {
            count += u32::from(!b.stmts.is_empty());
            false
        });
        if count == 0 {
            return false;
        }
        let (mut left, mut change) = (self.rng.below(count), Some(change));
        walk::blocks(file, &mut |b, unit, looped| {
            if b.stmts.is_empty() {
                return false;
            }
            if left > 0 {
                left -= 1;
                return false;
            }
            if let Some(change) = change.take() {
                change(self, b, unit, looped);
            }
            true
        })
    }

    pub(super) fn name(&mut self, stem: &str) -> Name {
        self.fresh += 1;
        format!("{stem}_{}", self.fresh).into()
    }

    pub(super) fn number(&mut self) -> Expr {
        let n = self.rng.pick(NUMBERS);
        expr(ExprKind::Num(n))
    }

    pub(super) fn text(&mut self) -> Expr {
        let len = self.rng.pick(LENGTHS);
        let start = self.rng.below(26) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|n| b'a' + ((start + n) % 26) as u8).collect();
        if len > 0 && self.rng.chance(20) {
            let at = self.rng.below(len as u32) as usize;
            bytes[at] = self.rng.pick(&[0xff, b'%', b'\n', b'"', 0x1b, b'0']);
        }
        expr(ExprKind::Str(bytes.into()))
    }

    /// A value of that type that is valid in that unit.
    pub(super) fn value(&mut self, ty: Ty, unit: Option<usize>) -> Expr {
        let fit = |s: &&Spare| s.ty == ty && (s.closed || Some(s.unit) == unit);
        let fit: Vec<&Spare> = self.spares.iter().filter(fit).collect();
        if !fit.is_empty() && self.rng.chance(65) {
            return fit[self.rng.below(fit.len() as u32) as usize].expr.clone();
        }
        if self.rng.chance(30) {
            let calls: Vec<&str> = CALLS
                .iter()
                .filter(|(t, _)| *t == ty)
                .map(|(_, n)| *n)
                .collect();
            return call(self.rng.pick(&calls), Vec::new());
        }
        match ty {
            Ty::Long => self.number(),
            Ty::Str => self.text(),
        }
    }

    fn operator(&mut self, file: &mut File) -> bool {
        use BinOp::*;
        const CLASSES: &[&[BinOp]] = &[
            &[Add, Sub, Mul, Div, Mod, Shl, Shr, UShr, And, Or, Xor],
            &[Lt, Le, Gt, Ge, Eq, Ne],
            &[LogAnd, LogOr],
        ];
        let class = |op: &BinOp| CLASSES.iter().find(|c| c.contains(op));
        self.at(
            file,
            |_, e, _, _| match &e.kind {
                ExprKind::Binary(op, ..) => class(op).is_some(),
                ExprKind::Unary(..) => true,
                _ => false,
            },
            |m, e, _, _| match &mut e.kind {
                ExprKind::Binary(op, ..) => {
                    if let Some(class) = class(op) {
                        *op = m.rng.pick(class);
                    }
                }
                ExprKind::Unary(op, _) => {
                    *op = m
                        .rng
                        .pick(&[UnOp::Neg, UnOp::Not, UnOp::BitNot, UnOp::Plus]);
                }
                _ => {}
            },
        )
    }

    fn constant(&mut self, file: &mut File) -> bool {
        self.at(
            file,
            |_, e, _, _| {
                matches!(
                    e.kind,
                    ExprKind::Num(_) | ExprKind::Str(_) | ExprKind::Match { .. }
                )
            },
            |m, e, _, _| match &mut e.kind {
                ExprKind::Num(n) if m.rng.chance(30) => {
                    *n = n.wrapping_add(i64::from(m.rng.pick(&[-1, 1, 100])));
                }
                ExprKind::Num(_) => *e = m.number(),
                ExprKind::Match {
                    pattern, negated, ..
                } => {
                    *pattern = m.rng.pick(PATTERNS).as_bytes().into();
                    *negated = m.rng.chance(50);
                }
                _ => *e = m.text(),
            },
        )
    }

    fn other_value(&mut self, file: &mut File) -> bool {
        self.at(
            file,
            |types, e, role, unit| role != Role::Effect && types.of_expr(e, unit).is_some(),
            |m, e, role, unit| {
                let ty = m.types.of_expr(e, unit).unwrap_or(Ty::Long);
                *e = m.value(ty, Some(unit).filter(|_| role == Role::Value));
            },
        )
    }

    /// Wraps a value in an operation that keeps its type.
    fn wrap_value(&mut self, file: &mut File) -> bool {
        self.at(
            file,
            |types, e, role, unit| role == Role::Value && types.of_expr(e, unit).is_some(),
            |m, e, _, unit| {
                let ty = m.types.of_expr(e, unit).unwrap_or(Ty::Long);
                let old = e.clone();
                let other = m.value(ty, Some(unit));
                *e = match (ty, m.rng.below(7)) {
                    (_, 0 | 1) => {
                        let cond = m.value(Ty::Long, Some(unit));
                        expr(ExprKind::Ternary(cond.into(), old.into(), other.into()))
                    }
                    (Ty::Long, 2) => {
                        let op = m
                            .rng
                            .pick(&[BinOp::Add, BinOp::And, BinOp::Sub, BinOp::Mul]);
                        binary(op, old, other)
                    }
                    (Ty::Long, 3) => {
                        let format = expr(ExprKind::Str(b"%d".as_slice().into()));
                        let text = sprint(true, vec![format, old]);
                        call("strtol", vec![text, expr(ExprKind::Num(10))])
                    }
                    (Ty::Long, 4) => binary(m.rng.pick(&[BinOp::Div, BinOp::Mod]), old, other),
                    (Ty::Long, 5) => {
                        let text = sprint(false, vec![old]);
                        call("strlen", vec![text])
                    }
                    (Ty::Long, _) => expr(ExprKind::Unary(UnOp::Neg, old.into())),
                    (Ty::Str, 2) => binary(BinOp::Concat, old, other),
                    (Ty::Str, 3) => {
                        let (from, len) = (m.number(), m.value(Ty::Long, Some(unit)));
                        call("substr", vec![old, from, len])
                    }
                    (Ty::Str, 4) => {
                        let format = m.rng.pick(&["%s", "%-20s|", "%.5s", "%70s", "%s\n"]);
                        let format = expr(ExprKind::Str(format.as_bytes().into()));
                        sprint(true, vec![format, old])
                    }
                    (Ty::Str, 5) => {
                        let with = m.value(Ty::Str, Some(unit));
                        call("str_replace", vec![old, other, with])
                    }
                    (Ty::Str, _) => sprint(false, vec![old, other]),
                };
            },
        )
    }

    fn assignment(&mut self, file: &mut File) -> bool {
        self.at(
            file,
            |_, e, _, _| matches!(e.kind, ExprKind::Assign { .. } | ExprKind::IncDec { .. }),
            |m, e, _, unit| match &mut e.kind {
                ExprKind::IncDec {
                    prefix,
                    inc,
                    target,
                } => {
                    if m.rng.chance(30) {
                        let (op, lhs) = (Some(BinOp::Add), target.clone());
                        let rhs = m.value(Ty::Long, Some(unit)).into();
                        *e = expr(ExprKind::Assign { op, lhs, rhs });
                        return;
                    }
                    *prefix = m.rng.chance(50);
                    *inc = m.rng.chance(50);
                }
                ExprKind::Assign { op, rhs, .. } => {
                    use BinOp::*;
                    *op = match m.types.of_expr(rhs, unit) {
                        Some(Ty::Str) => m.rng.pick(&[None, Some(Concat)]),
                        Some(Ty::Long) => m.rng.pick(&[
                            None,
                            Some(Add),
                            Some(Sub),
                            Some(Mul),
                            Some(Or),
                            Some(Xor),
                            Some(Shl),
                            Some(UShr),
                            Some(Div),
                            Some(Mod),
                        ]),
                        None => *op,
                    };
                }
                _ => {}
            },
        )
    }

    fn probes(file: &mut File) -> Vec<&mut Probe> {
        let probes = file.items.iter_mut().filter_map(|item| match item {
            Item::Probe(p) => Some(p),
            _ => None,
        });
        probes.collect()
    }

    pub(super) fn probe<'f>(&mut self, file: &'f mut File) -> Option<&'f mut Probe> {
        let mut probes = Self::probes(file);
        let at = self.rng.below(probes.len() as u32) as usize;
        (at < probes.len()).then(|| probes.swap_remove(at))
    }

    fn point(&mut self, file: &mut File) -> bool {
        let Some(probe) = self.probe(file) else {
            return false;
        };
        let at = self.rng.below(probe.points.len() as u32) as usize;
        let new = match self.rng.chance(20) {
            true => Some(points::any(&mut self.rng)),
            false => points::others(&probe.points[at], &mut self.rng),
        };
        let Some(new) = new.filter(|n| !n.is_empty()) else {
            return false;
        };
        match self.rng.chance(40) {
            true => probe.points.extend(new),
            false => _ = probe.points.splice(at..=at, new),
        }
        true
    }

    fn walk_order(&mut self, file: &mut File) -> bool {
        let mut count = 0;
        walk::foreachs(file, &mut |_| {
            count += 1;
            false
        });
        if count == 0 {
            return false;
        }
        let mut left = self.rng.below(count);
        walk::foreachs(file, &mut |f| {
            if left > 0 {
                left -= 1;
                return false;
            }
            let statistic = matches!(&f.over, ForeachOver::Array(a)
                if self.types.statistics.contains(&a.name));
            let by = match self.rng.below(4) {
                0 => Some(SortBy::Value),
                1 if statistic => Some(SortBy::Stat(self.stat_op())),
                2 => None,
                _ => Some(SortBy::Key(self.rng.below(f.keys.len() as u32))),
            };
            let descending = self.rng.chance(50);
            f.sort = by.map(|by| Sort {
                by,
                descending,
                span: Span::default(),
            });
            if self.rng.chance(40) {
                let limit = self.value(Ty::Long, None);
                f.limit = Some(limit).filter(|_| self.rng.chance(70));
            }
            if self.rng.chance(20) && f.value.is_none() {
                f.value = Some(ident(&self.name("v")));
            }
            true
        })
    }

    fn stat_op(&mut self) -> StatOp {
        use StatOp::*;
        self.rng.pick(&[Count, Sum, Min, Max, Avg])
    }

    fn extractor(&mut self, file: &mut File) -> bool {
        self.at(
            file,
            |_, e, _, _| matches!(e.kind, ExprKind::Stat { .. }),
            |m, e, _, _| {
                if let ExprKind::Stat { op, params, .. } = &mut e.kind {
                    *op = m.stat_op();
                    params.clear();
                    if m.rng.chance(20) {
                        *op = StatOp::Variance;
                    }
                }
            },
        )
    }

    /// Passes a value through a function, which may call itself.
    fn through_function(&mut self, file: &mut File) -> bool {
        let name = self.name("through");
        let mut made = None;
        let done = self.at(
            file,
            |types, e, role, unit| role == Role::Value && types.of_expr(e, unit).is_some(),
            |m, e, _, unit| {
                let ty = m.types.of_expr(e, unit).unwrap_or(Ty::Long);
                let depth = m.rng.pick(&[0, 0, 1, 4, 20]);
                made = Some((ty, m.value(ty, None)));
                *e = call(&name, vec![e.clone(), number(depth)]);
            },
        );
        if let Some((ty, other)) = made {
            let other = spile_syntax::pretty::expr(&other);
            let ty = if ty == Ty::Long { "long" } else { "string" };
            let text = format!(
                "function {name}:{ty}(x:{ty}, n:long) {{\n\
                 if (n > 0) return {name}(x, n - 1)\n\
                 return n == 0 ? x : ({other}) }}"
            );
            let parsed = crate::shrink::parse(&text).unwrap_or_default();
            file.items.extend(parsed.items);
        }
        done
    }
}
