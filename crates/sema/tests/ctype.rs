//! Walks through C types.

mod fake;

use fake::*;
use spile_sema::ctype::{CTy, FinalAccess, MemberWalk, WalkBase, WalkStep, parse_type, walk};
use spile_syntax::ast::{Access, Expr, ExprKind, Ident, Span};

fn member(name: &str) -> Access {
    Access::Member(Ident {
        name: name.into(),
        span: Span::default(),
    })
}

fn index(kind: ExprKind) -> Access {
    Access::Index(Expr {
        kind,
        span: Span::default(),
    })
}

fn num(n: i64) -> Access {
    index(ExprKind::Num(n))
}

/// A walk from a `struct task_struct *` value.
fn task(access: &[Access], addr_of: bool) -> Result<MemberWalk, String> {
    let from = WalkBase::Value(CTy::id(TASK_PTR));
    walk(&FakeMachine::new(), from, access, addr_of, Span::default()).map_err(|d| d.message)
}

fn steps(access: &[Access]) -> (Vec<WalkStep>, FinalAccess) {
    let w = task(access, false).unwrap();
    (w.steps, w.last)
}

#[test]
fn members_have_offsets_and_access() {
    let int = FinalAccess::Load {
        size: 4,
        signed: true,
    };
    assert_eq!(steps(&[member("pid")]), (vec![], int));
    let (s, last) = steps(&[member("parent"), member("parent"), member("pid")]);
    assert_eq!(
        s,
        [
            WalkStep::Add(16),
            WalkStep::Deref,
            WalkStep::Add(16),
            WalkStep::Deref
        ]
    );
    assert_eq!(last, int);
    let (s, last) = steps(&[member("tasks"), member("prev"), member("next")]);
    assert_eq!(s, [WalkStep::Add(48), WalkStep::Deref]);
    assert_eq!(
        last,
        FinalAccess::Load {
            size: 8,
            signed: false
        }
    );
}

#[test]
fn bit_fields_have_shifts_and_widths() {
    let (s, last) = steps(&[member("in_iowait")]);
    assert_eq!(s, [WalkStep::Add(4)]);
    assert_eq!(
        last,
        FinalAccess::BitField {
            size: 1,
            shift: 5,
            width: 1,
            signed: false
        }
    );
    // Bits 60 to 69 lie in no aligned unit of 64 bits.
    let (s, last) = steps(&[member("wide")]);
    assert_eq!(s, [WalkStep::Add(7)]);
    let crossing = FinalAccess::CrossingField {
        shift: 4,
        width: 10,
        signed: true,
    };
    assert_eq!(last, crossing);
    assert!(task(&[member("in_iowait")], true).is_err());
}

#[test]
fn arrays_are_indexed() {
    let w = task(&[member("comm")], false).unwrap();
    assert_eq!(
        (w.steps, w.last),
        (vec![WalkStep::Add(24)], FinalAccess::Address)
    );
    assert_eq!(w.ty, CTy::id(CHAR).pointer());
    let (s, last) = steps(&[member("comm"), num(3)]);
    assert_eq!(
        (s, last),
        (
            vec![WalkStep::Add(27)],
            FinalAccess::Load {
                size: 1,
                signed: true
            }
        )
    );
    let (s, _) = steps(&[member("peers"), num(2), member("pid")]);
    assert_eq!(s, [WalkStep::Add(72), WalkStep::Deref]);
    let var = ExprKind::Var("i".into());
    let (s, _) = steps(&[member("peers"), index(var), member("parent")]);
    assert!(matches!(
        &s[..],
        [
            WalkStep::Add(56),
            WalkStep::Index { scale: 8, .. },
            WalkStep::Deref,
            WalkStep::Add(16)
        ]
    ));
    // Pointers are arrays, too.
    let (s, last) = steps(&[num(2), member("parent")]);
    assert_eq!(
        (s, last),
        (
            vec![WalkStep::Add(272)],
            FinalAccess::Load {
                size: 8,
                signed: false
            }
        )
    );
}

#[test]
fn addresses_of_members_have_pointer_types() {
    let w = task(&[member("parent")], true).unwrap();
    assert_eq!(
        (w.steps, w.last),
        (vec![WalkStep::Add(16)], FinalAccess::Address)
    );
    assert_eq!(w.ty, CTy::id(TASK_PTR).pointer());
    assert!(task(&[], true).is_err());
    let w = task(&[member("tasks")], false).unwrap();
    assert_eq!(
        (w.last, w.ty),
        (FinalAccess::Address, CTy::id(LIST).pointer())
    );
}

#[test]
fn casts_walk_from_their_type() {
    let m = FakeMachine::new();
    let ty = parse_type(&m, "struct task_struct").unwrap();
    let w = walk(&m, WalkBase::Objects(ty), &[num(1)], true, Span::default()).unwrap();
    assert_eq!(
        (w.steps, w.last),
        (vec![WalkStep::Add(128)], FinalAccess::Address)
    );
    let w = walk(
        &m,
        WalkBase::Objects(ty),
        &[member("tasks")],
        true,
        Span::default(),
    )
    .unwrap();
    assert_eq!(w.steps, [WalkStep::Add(40)]);
    let ptr = parse_type(&m, "const struct task_struct *").unwrap();
    let w = walk(
        &m,
        WalkBase::Value(ptr),
        &[member("pid")],
        false,
        Span::default(),
    )
    .unwrap();
    assert_eq!(
        (w.steps, w.last),
        (
            vec![],
            FinalAccess::Load {
                size: 4,
                signed: true
            }
        )
    );
}

#[test]
fn spellings_of_c_types_are_parsed() {
    let m = FakeMachine::new();
    let spell = |s: &str| parse_type(&m, s).map(|t| t.spell(&m));
    for (text, expected) in [
        ("unsigned long int", Some("unsigned long")),
        ("long unsigned", Some("unsigned long")),
        ("char *", Some("char *")),
        ("const char * const *", Some("char **")),
        ("task_struct*", Some("struct task_struct *")),
        ("pid_t", Some("int")),
        ("unsigned", Some("unsigned int")),
        ("", None),
        ("*", None),
        ("struct nothing", None),
        ("task_struct * x", None),
        ("short char", None),
    ] {
        assert_eq!(spell(text).as_deref(), expected, "{text}");
    }
    assert_eq!(parse_type(&m, "char").unwrap().size(&m), Some(1));
}

#[test]
fn values_have_sizes_and_signs() {
    let m = FakeMachine::new();
    let value = |id| {
        walk(
            &m,
            WalkBase::Value(CTy::id(id)),
            &[],
            false,
            Span::default(),
        )
        .map(|w| w.last)
    };
    assert_eq!(
        value(UINT).unwrap(),
        FinalAccess::Value {
            size: 4,
            signed: false
        }
    );
    assert_eq!(
        value(TASK_PTR).unwrap(),
        FinalAccess::Value {
            size: 8,
            signed: false
        }
    );
    assert!(value(TASK).is_err());
    assert!(value(FWD).is_err());
}

#[test]
fn wrong_walks_say_why() {
    for (access, expected) in [
        (
            vec![member("pidd")],
            "unable to find member `pidd` for `struct task_struct`",
        ),
        (
            vec![member("pid"), member("x")],
            "unable to find member `x` for `int`",
        ),
        (
            vec![member("pid"), num(0)],
            "cannot index a value of type `int`",
        ),
        (
            vec![member("secret"), member("x")],
            "unable to find member `x` for `struct secret *`",
        ),
        (
            vec![member("secret"), num(1)],
            "the size of `struct secret` is not known",
        ),
    ] {
        assert_eq!(task(&access, false).unwrap_err(), expected);
    }
}

/// A walk from a variable of a type, in a register or in memory.
fn variable(from: WalkBase, access: &[Access]) -> (Vec<WalkStep>, FinalAccess) {
    let w = walk(&FakeMachine::new(), from, access, false, Span::default()).unwrap();
    (w.steps, w.last)
}

#[test]
fn the_first_index_of_a_variable_is_one_of_its_elements() {
    let pointer = FinalAccess::Load {
        size: 8,
        signed: false,
    };
    let array = WalkBase::Object(CTy::id(TASKS));
    assert_eq!(
        variable(array, &[num(2)]),
        (vec![WalkStep::Add(16)], pointer)
    );
    let to_array = WalkBase::Object(CTy::id(TASK_PTR));
    assert_eq!(
        variable(to_array, &[num(1), member("parent")]),
        (vec![WalkStep::Deref, WalkStep::Add(128 + 16)], pointer)
    );
}

#[test]
fn references_stand_for_what_they_refer_to() {
    use WalkBase::{Object, Value};
    let int = FinalAccess::Load {
        size: 4,
        signed: true,
    };
    let pointer = FinalAccess::Load {
        size: 8,
        signed: false,
    };
    let deref = WalkStep::Deref;
    // Of a number: the number, in a register and in memory.
    let ty = CTy::id(INT_REF);
    assert_eq!(variable(Value(ty), &[num(0)]), (vec![], int));
    assert_eq!(variable(Object(ty), &[num(0)]), (vec![deref.clone()], int));
    assert_eq!(variable(Object(ty), &[]), (vec![], pointer));
    // Of an array and of a pointer: their elements.
    let ty = CTy::id(TASKS_REF);
    let third = variable(Value(ty), &[num(2)]);
    assert_eq!(third, (vec![WalkStep::Add(16)], pointer));
    let ty = CTy::id(TASK_PTR_REF);
    for access in [&[num(0), member("pid")][..], &[member("pid")]] {
        assert_eq!(variable(Value(ty), access), (vec![deref.clone()], int));
        let twice = vec![deref.clone(), deref.clone()];
        assert_eq!(variable(Object(ty), access), (twice, int));
    }
    // The address of a reference is that of its object.
    let m = FakeMachine::new();
    let w = walk(&m, Value(CTy::id(INT_REF)), &[], true, Span::default()).unwrap();
    assert_eq!(
        (w.last, w.ty),
        (FinalAccess::Address, CTy::id(INT).pointer())
    );
}
