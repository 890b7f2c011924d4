//! Property: pretty-printing a random tree and parsing the text gives the same tree.

#![allow(
    clippy::vec_init_then_push,
    reason = "the macro `oneof` has arms of two forms"
)]

mod common;

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use spile_syntax::ast::*;

/// `prop_oneof!` with boxed arms (they compile faster) and optional weights.
macro_rules! oneof {
    (@ $out:ident $w:literal => $x:expr, $($rest:tt)*) => {
        $out.push(($w, $x.boxed()));
        oneof!(@ $out $($rest)*)
    };
    (@ $out:ident $w:literal => $x:expr) => { $out.push(($w, $x.boxed())); };
    (@ $out:ident $x:expr, $($rest:tt)*) => {
        $out.push((1, $x.boxed()));
        oneof!(@ $out $($rest)*)
    };
    (@ $out:ident $x:expr) => { $out.push((1, $x.boxed())); };
    (@ $out:ident) => {};
    ($($arms:tt)*) => {{
        let mut arms: Vec<(u32, BoxedStrategy<_>)> = Vec::new();
        oneof!(@ arms $($arms)*);
        proptest::strategy::Union::new_weighted(arms)
    }};
}

fn ident() -> impl Strategy<Value = Ident> {
    oneof![
        Just("a"),
        Just("b_1"),
        Just("_"),
        Just("x$y"),
        Just("counts")
    ]
    .prop_map(|n| Ident {
        name: n.into(),
        span: Span::default(),
    })
}

fn member() -> impl Strategy<Value = Ident> {
    oneof![Just("f"), Just("next"), Just("string"), Just("pid")].prop_map(|n| Ident {
        name: n.into(),
        span: Span::default(),
    })
}

fn bytes() -> impl Strategy<Value = LiteralBytes> {
    let special = Just(b"\\\"\n\t%d \x07\xff\x001\xc3\xa9".to_vec());
    oneof![4 => vec(any::<u8>(), 0..6), 1 => special].prop_map(Into::into)
}

fn number() -> impl Strategy<Value = i64> {
    oneof![any::<i64>(), -3..100i64, Just(i64::MIN), Just(i64::MAX)]
}

fn literal() -> impl Strategy<Value = Literal> {
    oneof![
        number().prop_map(Literal::Num),
        bytes().prop_map(Literal::Str)
    ]
}

fn e(kind: ExprKind) -> Expr {
    Expr {
        kind,
        span: Span::default(),
    }
}

fn b(x: Expr) -> Box<Expr> {
    Box::new(x)
}

fn text() -> impl Strategy<Value = Expr> {
    let filled = bytes().prop_filter("operands are not empty", |s| !s.is_empty());
    filled.prop_map(|s| e(ExprKind::Str(s)))
}

fn pretty() -> impl Strategy<Value = Pretty> {
    oneof![
        Just(Pretty::None),
        Just(Pretty::Shallow),
        Just(Pretty::Deep)
    ]
}

fn embedded() -> impl Strategy<Value = Embedded> {
    oneof![Just(" x = 1; "), Just(""), Just("/* pure */ \"}\"")].prop_map(|t| Embedded {
        text: t.into(),
        span: Span::default(),
    })
}

fn binop() -> impl Strategy<Value = BinOp> {
    use BinOp::*;
    proptest::sample::select(vec![
        Add, Sub, Mul, Div, Mod, Shl, Shr, UShr, And, Or, Xor, LogAnd, LogOr, Lt, Le, Gt, Ge, Eq,
        Ne, Concat,
    ])
}

fn assign_op() -> impl Strategy<Value = Option<BinOp>> {
    use BinOp::*;
    let ops = vec![Add, Sub, Mul, Div, Mod, Shl, Shr, And, Or, Xor, Concat];
    option::of(proptest::sample::select(ops))
}

fn print_op() -> impl Strategy<Value = PrintOp> {
    (any::<bool>(), 0..6u8).prop_map(|(s, form)| PrintOp {
        to_string: s && form != 5,
        format: form == 0,
        delim: form == 1 || form == 2,
        newline: form == 2 || form == 3,
        char: form == 5,
    })
}

fn accesses(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Vec<Access>> {
    let index = inner.prop_map(Access::Index);
    vec(
        oneof![2 => member().prop_map(Access::Member), 1 => index],
        0..3,
    )
}

fn keys(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Vec<Key>> {
    let any = Just(Key::Any(Span::default()));
    vec(oneof![3 => inner.prop_map(Key::Expr), 1 => any], 1..4)
}

fn target(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Expr> {
    let name = oneof![Just("$x"), Just("$$vars"), Just("$return"), Just("$a$b")];
    (name, any::<bool>(), accesses(inner), pretty()).prop_map(|(n, addr_of, access, pretty)| {
        e(ExprKind::Target {
            name: n.into(),
            addr_of,
            access,
            pretty,
        })
    })
}

fn at_op(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Expr> {
    use AtOp::*;
    let num = || number().prop_map(|n| e(ExprKind::Num(n)));
    let x = inner.clone();
    let args = oneof![
        vec(text(), 1..3).prop_map(|a| (Var, a)),
        (x.clone(), vec(text(), 1..3)).prop_map(|(p, a)| (Cast, [vec![p], a].concat())),
        (x.clone(), vec(text(), 0..3)).prop_map(|(p, a)| (EnumName, [vec![p], a].concat())),
        (
            proptest::sample::select(vec![Defined, ProbeWrite, Entry]),
            x.clone()
        )
            .prop_map(|(op, x)| (op, vec![x])),
        (proptest::sample::select(vec![Perf, Enum, Const]), text())
            .prop_map(|(op, x)| (op, vec![x])),
        (proptest::sample::select(vec![KRegister, URegister]), num())
            .prop_map(|(op, x)| (op, vec![x])),
        (proptest::sample::select(vec![KDeref, UDeref]), num(), x)
            .prop_map(|(op, n, x)| (op, vec![n, x])),
    ];
    (args, any::<bool>(), accesses(inner), pretty()).prop_map(|((op, args), a, access, pretty)| {
        let walks = matches!(op, Var | Cast);
        let access = if walks { access } else { Vec::new() };
        let pretty = if walks { pretty } else { Pretty::None };
        e(ExprKind::At {
            op,
            args,
            addr_of: a && walks,
            access,
            pretty,
        })
    })
}

fn arrow(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Expr> {
    let access = accesses(inner.clone());
    (inner, any::<bool>(), access, pretty()).prop_map(|(base, addr_of, access, pretty)| {
        // The address of these is one expression with them.
        let own = matches!(
            base.kind,
            ExprKind::Target { .. } | ExprKind::At { .. } | ExprKind::Arrow { .. }
        );
        let addr_of = addr_of && !(own && access.is_empty());
        // Without any of the three it is the value itself.
        let pretty = match access.is_empty() && !addr_of && pretty == Pretty::None {
            true => Pretty::Shallow,
            false => pretty,
        };
        e(ExprKind::Arrow {
            base: b(base),
            addr_of,
            access,
            pretty,
        })
    })
}

fn assignable(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Expr> {
    let var = ident().prop_map(|n| e(ExprKind::Var(n.name)));
    let element = (ident(), vec(inner.clone(), 1..3)).prop_map(|(n, k)| {
        let base = b(e(ExprKind::Var(n.name)));
        e(ExprKind::Index {
            base,
            keys: k.into_iter().map(Key::Expr).collect(),
        })
    });
    let walk = oneof![target(inner.clone()), arrow(inner)].prop_map(|mut x| {
        if let ExprKind::Target {
            addr_of, pretty, ..
        }
        | ExprKind::Arrow {
            addr_of, pretty, ..
        } = &mut x.kind
        {
            *addr_of = false;
            *pretty = Pretty::None;
        }
        if let ExprKind::Arrow { access, .. } = &mut x.kind
            && access.is_empty()
        {
            access.push(Access::Index(e(ExprKind::Num(1))));
        }
        x
    });
    oneof![2 => var, 2 => element, 1 => walk]
}

fn hist(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Expr> {
    let linear = (number(), number(), number()).prop_map(|(low, high, step)| HistKind::Linear {
        low,
        high,
        step,
    });
    (oneof![Just(HistKind::Log), linear], inner)
        .prop_map(|(kind, arg)| e(ExprKind::Hist { kind, arg: b(arg) }))
}

fn stat_op() -> impl Strategy<Value = StatOp> {
    use StatOp::*;
    proptest::sample::select(vec![Count, Sum, Min, Max, Avg, Variance])
}

fn stat(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Expr> {
    (stat_op(), inner, vec(number(), 0..2)).prop_map(|(op, arg, params)| {
        let params = if op == StatOp::Variance {
            params
        } else {
            Vec::new()
        };
        e(ExprKind::Stat {
            op,
            arg: b(arg),
            params,
        })
    })
}

fn print(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Expr> {
    (print_op(), text(), inner.clone(), vec(inner, 0..3)).prop_map(|(op, first, x, rest)| {
        let args = match op {
            PrintOp { char: true, .. } => vec![x],
            PrintOp { format: true, .. } => [vec![first], rest].concat(),
            PrintOp { delim: true, .. } => [vec![first, x.clone(), x], rest].concat(),
            _ => rest,
        };
        e(ExprKind::Print { op, args })
    })
}

fn compound(x: BoxedStrategy<Expr>) -> impl Strategy<Value = Expr> {
    let unop = oneof![
        Just(UnOp::Neg),
        Just(UnOp::Not),
        Just(UnOp::BitNot),
        Just(UnOp::Plus)
    ];
    let lhs = || assignable(x.clone());
    let two = || (x.clone(), x.clone());
    oneof![
        (ident(), vec(x.clone(), 0..3))
            .prop_map(|(name, args)| e(ExprKind::Call { name, args })),
        (unop, x.clone()).prop_map(|(op, x)| e(ExprKind::Unary(op, b(x)))),
        4 => (binop(), two()).prop_map(|(op, (l, r))| e(ExprKind::Binary(op, b(l), b(r)))),
        (x.clone(), two()).prop_map(|(c, (l, r))| e(ExprKind::Ternary(b(c), b(l), b(r)))),
        (assign_op(), lhs(), x.clone())
            .prop_map(|(op, l, r)| e(ExprKind::Assign { op, lhs: b(l), rhs: b(r) })),
        (lhs(), x.clone()).prop_map(|(l, r)| e(ExprKind::StatAdd { lhs: b(l), rhs: b(r) })),
        (any::<bool>(), any::<bool>(), lhs()).prop_map(|(prefix, inc, t)| {
            e(ExprKind::IncDec { prefix, inc, target: b(t) })
        }),
        (keys(x.clone()), ident()).prop_map(|(keys, array)| e(ExprKind::In { keys, array })),
        (any::<bool>(), x.clone(), bytes()).prop_map(|(negated, s, pattern)| {
            let pattern_span = Span::default();
            e(ExprKind::Match { negated, subject: b(s), pattern, pattern_span })
        }),
        stat(x.clone()),
        hist(x.clone()),
        (hist(x.clone()), x.clone()).prop_map(|(h, i)| {
            e(ExprKind::Index { base: b(h), keys: vec![Key::Expr(i)] })
        }),
        print(x.clone()),
        target(x.clone()),
        at_op(x.clone()),
        arrow(x.clone()),
        assignable(x),
    ]
}

fn expr() -> BoxedStrategy<Expr> {
    let leaf = oneof![
        number().prop_map(|n| e(ExprKind::Num(n))),
        text(),
        ident().prop_map(|n| e(ExprKind::Var(n.name))),
        embedded().prop_map(|x| e(ExprKind::Embedded(x))),
    ];
    leaf.prop_recursive(4, 24, 3, |x| compound(x).boxed())
        .boxed()
}

fn s(kind: StmtKind) -> Stmt {
    Stmt {
        kind,
        span: Span::default(),
    }
}

fn block_of(stmts: Vec<Stmt>) -> StmtBlock {
    StmtBlock {
        stmts,
        span: Span::default(),
    }
}

fn sort(keys: usize) -> impl Strategy<Value = Option<Sort>> {
    let by = oneof![
        (0..keys as u32).prop_map(SortBy::Key),
        Just(SortBy::Value),
        stat_op().prop_map(SortBy::Stat),
    ];
    option::of((by, any::<bool>()).prop_map(|(by, descending)| Sort {
        by,
        descending,
        span: Span::default(),
    }))
}

fn foreach(body: BoxedStrategy<Stmt>) -> impl Strategy<Value = Stmt> {
    let array = (ident(), option::of(keys(expr()))).prop_map(|(a, k)| (ForeachOver::Array(a), k));
    let over = oneof![
        array,
        hist(expr()).prop_map(|h| (ForeachOver::Hist(h), None))
    ];
    let head = (
        option::of(ident()),
        vec(ident(), 1..3),
        over,
        option::of(expr()),
        body,
    );
    head.prop_flat_map(|(value, keys, (over, slice), limit, body)| {
        sort(keys.len()).prop_map(move |sort| {
            let (value, keys, over) = (value.clone(), keys.clone(), over.clone());
            let (slice, limit, body) = (slice.clone(), limit.clone(), body.clone());
            let f = Foreach {
                value,
                keys,
                over,
                slice,
                sort,
                limit,
                body,
            };
            s(StmtKind::Foreach(Box::new(f)))
        })
    })
}

/// A statement; only functions have `return`.
fn stmt(in_function: bool) -> BoxedStrategy<Stmt> {
    let slice = (ident(), keys(expr())).prop_map(|(n, keys)| {
        s(StmtKind::Delete(e(ExprKind::Index {
            base: b(e(ExprKind::Var(n.name))),
            keys,
        })))
    });
    let leaf = oneof![
        Just(s(StmtKind::Empty)),
        4 => expr().prop_map(|x| s(StmtKind::Expr(x))),
        Just(s(StmtKind::Break)),
        Just(s(StmtKind::Continue)),
        Just(s(StmtKind::Next)),
        option::of(expr()).prop_map(move |x| s(match in_function {
            true => StmtKind::Return(x),
            false => StmtKind::Next,
        })),
        slice,
        embedded().prop_map(|x| s(StmtKind::Embedded(x))),
    ];
    leaf.prop_recursive(3, 12, 3, |x| {
        let block = || vec(x.clone(), 0..3).prop_map(block_of);
        let o = || option::of(expr());
        oneof![
            block().prop_map(|x| s(StmtKind::Block(x))),
            // The branch before an `else` is a block: an `if` there would take the `else`.
            (expr(), block(), x.clone()).prop_map(|(cond, t, els)| {
                let then = Box::new(s(StmtKind::Block(t)));
                s(StmtKind::If {
                    cond,
                    then,
                    els: Some(Box::new(els)),
                })
            }),
            (expr(), x.clone()).prop_map(|(cond, t)| {
                s(StmtKind::If {
                    cond,
                    then: Box::new(t),
                    els: None,
                })
            }),
            (expr(), x.clone()).prop_map(|(cond, t)| s(StmtKind::While {
                cond,
                body: Box::new(t)
            })),
            (o(), o(), o(), x.clone()).prop_map(|(init, cond, step, t)| {
                s(StmtKind::For {
                    init,
                    cond,
                    step,
                    body: Box::new(t),
                })
            }),
            foreach(x.clone()),
            (block(), option::of(ident()), block())
                .prop_map(|(body, var, handler)| s(StmtKind::Try { body, var, handler })),
        ]
    })
    .boxed()
}

fn block(in_function: bool) -> impl Strategy<Value = StmtBlock> {
    vec(stmt(in_function), 0..4).prop_map(block_of)
}

fn component(plain: bool) -> impl Strategy<Value = Component> {
    let plains = vec!["begin", "return", "a_b", "function", "in"];
    let wild = vec!["*", "**", "sys_*", "*_64x*", "end"];
    let names = proptest::sample::select(if plain {
        plains
    } else {
        [plains, wild].concat()
    });
    (names, option::of(literal())).prop_map(move |(n, arg)| Component {
        name: n.into(),
        arg: if plain { None } else { arg },
        span: Span::default(),
    })
}

fn point() -> impl Strategy<Value = ProbePoint> {
    (vec(component(false), 1..4), 0..3u8, option::of(expr())).prop_map(|(components, mark, c)| {
        ProbePoint {
            components,
            optional: mark == 1,
            sufficient: mark == 2,
            condition: c.map(Box::new),
            span: Span::default(),
        }
    })
}

fn alias_name() -> impl Strategy<Value = ProbePoint> {
    vec(component(true), 1..3).prop_map(|components| ProbePoint {
        components,
        optional: false,
        sufficient: false,
        condition: None,
        span: Span::default(),
    })
}

fn ty() -> impl Strategy<Value = Option<TypeName>> {
    option::of(oneof![Just(TypeName::Long), Just(TypeName::String)])
}

fn doc() -> impl Strategy<Value = Option<String>> {
    let texts = vec!["one line", "two\n\n  lines */ x", "/ odd // one"];
    option::of(proptest::sample::select(texts).prop_map(str::to_owned))
}

fn function() -> impl Strategy<Value = Item> {
    let body = oneof![
        4 => block(true).prop_map(FnBody::Block),
        1 => embedded().prop_map(FnBody::Embedded)
    ];
    let head = (
        any::<bool>(),
        ident(),
        ty(),
        vec((ident(), ty()), 0..3),
        option::of(number()),
    );
    (head, body, doc()).prop_map(|((private, name, ret, params, priority), body, doc)| {
        let span = Span::default();
        let mut params: Vec<(Ident, _)> = params;
        let mut seen = HashSet::new();
        params.retain(|(p, _)| seen.insert(p.name.clone()));
        Item::Function(Function {
            private,
            name,
            ret,
            params,
            priority,
            body,
            doc,
            span,
        })
    })
}

fn global() -> impl Strategy<Value = Item> {
    let var = (
        ident(),
        any::<bool>(),
        option::of(1..1i64 << 31),
        option::of(literal()),
    )
        .prop_map(|(name, wrap, max, init)| GlobalVar {
            name,
            wrap,
            max,
            // An array has none.
            init: init.filter(|_| !wrap && max.is_none()),
        });
    (any::<bool>(), vec(var, 1..4)).prop_map(|(private, vars)| {
        Item::Global(GlobalDecl {
            private,
            vars,
            span: Span::default(),
        })
    })
}

fn alias() -> impl Strategy<Value = Item> {
    let names = vec(alias_name(), 1..3);
    (
        names,
        vec(point(), 1..3),
        any::<bool>(),
        block(false),
        option::of(block(false)),
        doc(),
    )
        .prop_map(|(names, points, prologue, body, second, doc)| {
            let kind = if prologue {
                AliasKind::Prologue
            } else {
                AliasKind::Epilogue
            };
            let second = if prologue { second } else { None };
            Item::Alias(Alias {
                names,
                kind,
                points,
                body,
                second,
                doc,
                span: Span::default(),
            })
        })
}

fn file() -> impl Strategy<Value = File> {
    let probe = (vec(point(), 1..3), block(false)).prop_map(|(points, body)| {
        Item::Probe(Probe {
            points,
            body,
            span: Span::default(),
        })
    });
    let item = oneof![
        3 => probe,
        2 => function(),
        2 => global(),
        2 => alias(),
        1 => embedded().prop_map(Item::Embedded),
    ];
    vec(item, 0..4).prop_map(|mut items| {
        // A file has one global variable of each name.
        let mut seen = HashSet::new();
        for item in &mut items {
            if let Item::Global(g) = item {
                g.vars.retain(|v| seen.insert(v.name.name.clone()));
            }
        }
        items.retain(|item| !matches!(item, Item::Global(g) if g.vars.is_empty()));
        File { items }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pretty_then_parse_is_identity(f in file()) {
        common::assert_round_trip(&f);
    }

    #[test]
    fn formatting_keeps_the_tree(f in file()) {
        let text = spile_syntax::pretty::file(&f);
        let out = spile_syntax::fmt::format(text.as_bytes());
        prop_assert!(out.is_ok(), "{out:?}: {text}");
        let (before, _) = common::parse("before", text.into_bytes(), Vec::new());
        let (after, said) = common::parse("after", out.clone().unwrap_or_default(), Vec::new());
        prop_assert!(said.is_empty(), "{said}");
        prop_assert_eq!(common::shape(&before), common::shape(&after));
        let again = spile_syntax::fmt::format(&out.clone().unwrap_or_default());
        prop_assert_eq!(out, again);
    }
}
