//! BTF on blobs built here, on damaged ones, and on the running kernel's.

use proptest::prelude::*;
use spile_ctype::CType;
use testblob::Builder;

pub(crate) mod testblob;

use super::{Blob, Btf, BtfError, BtfKind, Member, Type};

/// A blob with every kind of type.
fn sample() -> Builder {
    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    let uint = b.int("unsigned int", 4, false);
    let ch = b.int("char", 1, true);
    let task = b.body(
        BtfKind::Struct,
        "task",
        64,
        &[("pid", int, 0, 0), ("", 6, 32, 0), ("b", 9, 64, 0)],
    );
    let cch = b.link(BtfKind::Const, "", ch);
    let inner = b.body(
        BtfKind::Union,
        "",
        4,
        &[("x", uint, 0, 0), ("low", uint, 3, 5)],
    );
    assert_eq!(inner, 6);
    let pch = b.link(BtfKind::Ptr, "", cch);
    b.link(BtfKind::Typedef, "name_t", pch);
    let comm = b.raw(BtfKind::Array, "", false, 0, 0, &[ch, int, 16]);
    assert_eq!(comm, 9);
    let ptask = b.link(BtfKind::Ptr, "", task);
    let cptr = b.link(BtfKind::Const, "", ptask);
    let proto = b.proto(int, &[("data", ptask), ("msg", pch), ("", 0)]);
    let fptr = b.link(BtfKind::Ptr, "", proto);
    b.link(BtfKind::Func, "probe", proto);
    b.enumeration("color", true, &[("RED", -1), ("BLUE", 7)]);
    b.enumeration64("big", &[("HUGE", 1 << 40)]);
    b.link(BtfKind::TypeTag, "user", cptr);
    let arr = b.raw(BtfKind::Array, "", false, 0, 0, &[fptr, int, 3]);
    b.link(BtfKind::Ptr, "", arr);
    b
}

fn sample_btf() -> Btf {
    Btf::parse(sample().bytes()).expect("a sound blob")
}

#[test]
fn finds_by_name_and_kind() {
    let btf = sample_btf();
    let task = btf.find_struct("task").expect("task");
    assert!(matches!(btf.ty(task), Type::Struct(s) if s.name == "task" && s.len() == 3));
    assert_eq!(btf.find_struct("tas"), None);
    assert_eq!(btf.find_struct("ask"), None);
    assert_eq!(btf.find_union("task"), None);
    assert_eq!(btf.find_type("struct task"), Some(task));
    assert_eq!(btf.find_type("task"), Some(task));
    assert_eq!(
        btf.find_type("unsigned int"),
        btf.find(BtfKind::Int, "unsigned int")
    );
    assert!(btf.find_func("probe").is_some() && btf.find_enum("big").is_some());
    assert_eq!(btf.find_struct(""), None);
}

#[test]
fn members_of_anonymous_bodies_are_found() {
    let btf = sample_btf();
    let task = btf.find_struct("task").expect("task");
    let member = |name| btf.member(task, name);
    assert_eq!(
        member("pid"),
        Some(Member {
            name: "pid".into(),
            bit_offset: 0,
            bit_size: 0,
            ty: 1
        })
    );
    assert_eq!(
        member("x"),
        Some(Member {
            name: "x".into(),
            bit_offset: 32,
            bit_size: 0,
            ty: 2
        })
    );
    assert_eq!(
        member("low"),
        Some(Member {
            name: "low".into(),
            bit_offset: 35,
            bit_size: 5,
            ty: 2
        })
    );
    assert_eq!(member("nope"), None);
    assert_eq!(member(""), None);
    assert_eq!(btf.member_names(task), ["pid", "x", "low", "b"]);
}

#[test]
fn types_have_sizes_and_c_names() {
    let btf = sample_btf();
    let name_t = btf.find_typedef("name_t").expect("name_t");
    assert_eq!(btf.size_of(name_t), Some(8));
    assert_eq!(btf.size_of(9), Some(16));
    assert_eq!(btf.size_of(0), None);
    assert_eq!(btf.c_name(btf.strip(name_t)), "const char *");
    assert_eq!(btf.c_name(10), "struct task *");
    assert_eq!(btf.c_name(11), "struct task *const");
    assert_eq!(btf.c_declaration(9, "comm"), "char comm[16]");
    let proto = "(struct task *data, const char *msg, ...)";
    assert_eq!(btf.c_name(13), format!("int (*){proto}"));
    assert_eq!(btf.c_name(14), format!("int probe{proto}"));
    assert_eq!(btf.c_declaration(19, "x"), format!("int (*(*x)[3]){proto}"));
    assert_eq!(btf.c_name(6), "union {...}");
}

#[test]
fn numbers_of_more_than_255_bytes_are_unknown() {
    let mut b = Builder::new();
    b.int("wide", 264, true);
    let btf = Btf::parse(b.bytes()).expect("a sound blob");
    assert!(matches!(btf.ctype(1), CType::Unknown), "not one of 8 bytes");
}

#[test]
fn functions_are_found_with_and_without_an_index() {
    let mut b = Builder::new();
    let proto = b.proto(0, &[]);
    let ids: Vec<_> = ["one", "two", "bpf_one", "two"]
        .iter()
        .map(|name| b.link(BtfKind::Func, name, proto))
        .collect();
    let btf = Btf::parse(b.bytes()).expect("sound");
    for _ in 0..=super::BY_SEARCH {
        assert_eq!(btf.find_func("one"), Some(ids[0]));
        assert_eq!(btf.find_func("bpf_one"), Some(ids[2]));
        let two: Vec<_> = btf.find_all(BtfKind::Func, "two").collect();
        assert_eq!(two, [ids[1], ids[3]]);
        assert_eq!(btf.find_func("three"), None);
    }
}

#[test]
fn constants_of_enums_are_found() {
    let btf = sample_btf();
    assert_eq!(btf.constant("color", "RED"), Some(-1));
    assert_eq!(btf.constant("color", "BLUE"), Some(7));
    assert_eq!(btf.constant("big", "HUGE"), Some(1 << 40));
    assert_eq!(btf.constant("task", "RED"), None);
    assert_eq!(btf.constant("color", "HUGE"), None);
    assert_eq!(btf.enum_value("RED"), Some(-1));
    assert_eq!(btf.enum_value("HUGE"), Some(1 << 40));
    assert_eq!(btf.enum_value("task"), None);
}

#[test]
fn refuses_what_is_not_btf() {
    let bytes = sample().bytes();
    let format = |bytes: &[u8]| matches!(Btf::parse(bytes), Err(BtfError::Format(_)));
    assert!(format(b""));
    assert!(format(&[0; 64]));
    assert!(format(&bytes[..bytes.len() - 1]));
    let mut swapped = bytes.clone();
    swapped.swap(0, 1);
    assert!(format(&swapped));
    assert!(matches!(
        Btf::open("/nonexistent/btf"),
        Err(BtfError::Io(..))
    ));
}

#[test]
fn cycles_end() {
    let mut b = Builder::new();
    b.link(BtfKind::Typedef, "loop", 1);
    b.body(
        BtfKind::Struct,
        "s",
        8,
        &[("", 2, 0, 0), ("", 2, 0, 0), ("", 2, 0, 0)],
    );
    b.link(BtfKind::Ptr, "", 3);
    b.proto(4, &[("a", 4), ("b", 4), ("c", 4)]);
    b.raw(BtfKind::Array, "", false, 0, 0, &[5, 5, 2]);
    let btf = Btf::parse(b.bytes()).expect("well-formed");
    ask_everything(&btf);
    assert_eq!(btf.strip(1), 0);
    assert_eq!(btf.size_of(5), None);
}

/// Calls every query for every type; the test is that they return.
fn ask_everything(btf: &Btf) {
    for id in 0..btf.len() as u32 + 2 {
        let _ = (
            btf.ty(id),
            btf.size_of(id),
            btf.strip(id),
            btf.member(id, "x"),
        );
        let _ = (
            btf.c_name(id),
            btf.member_names(id),
            btf.name(id),
            btf.pointee(id),
        );
        match btf.ty(id) {
            Type::Struct(s) | Type::Union(s) => s.members().for_each(drop),
            Type::Enum(e) => e.values().for_each(drop),
            Type::FuncProto(p) => p.params().for_each(drop),
            _ => {}
        }
    }
    let _ = (
        btf.constant("color", "RED"),
        btf.find_func("probe"),
        btf.find_type("int"),
    );
}

proptest! {
    #[test]
    fn damaged_blobs_never_panic(hits in prop::collection::vec((0usize..2000, any::<u8>()), 1..12), cut in 0usize..2000) {
        let mut bytes = sample().bytes();
        for (at, value) in hits {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if cut < 200 {
            bytes.truncate(cut);
        }
        if let Ok(btf) = Btf::parse(bytes) {
            ask_everything(&btf);
        }
    }

    #[test]
    fn arbitrary_words_never_panic(words in prop::collection::vec(0u32..40, 0..60)) {
        let mut b = sample();
        for w in words.chunks_exact(4) {
            let kind = BtfKind::from_raw((w[0] % 19 + 1) as u8).expect("in range");
            // Lengths are arbitrary: most blobs are refused, some are not.
            b.raw(kind, "r", w[1] & 1 != 0, (w[2] % 2) as usize, w[3], &w[..(w[1] % 4) as usize]);
        }
        if let Ok(btf) = Btf::parse(b.bytes()) {
            ask_everything(&btf);
        }
    }
}

#[test]
fn the_running_kernel_has_the_types_of_its_headers() {
    let btf = match Btf::vmlinux() {
        Ok(btf) => btf,
        Err(why) => spile_testing::skip!("{why}"),
    };
    let task = btf.find_struct("task_struct").expect("task_struct");
    let pid = btf.member(task, "pid").expect("pid");
    assert_eq!(btf.c_name(pid.ty), "pid_t");
    assert_eq!(btf.size_of(pid.ty), Some(4));
    let comm = btf.member(task, "comm").expect("comm");
    assert_eq!(btf.c_declaration(comm.ty, "comm"), "char comm[16]");
    assert_eq!(btf.member(task, "comm").map(|m| m.bit_offset % 8), Some(0));
    assert_eq!(btf.constant("pid_type", "PIDTYPE_PGID"), Some(2));
    let numbers = btf.numbers(task);
    assert!(numbers.is_sorted() && numbers.contains(&(pid.bit_offset / 8, 4)));
    let mm = btf.member(task, "mm").expect("mm").bit_offset / 8;
    assert!(numbers.iter().all(|(at, _)| *at != mm), "a pointer is none");
    assert!(btf.find_func("schedule").is_some());
    assert!(btf.all(BtfKind::Struct).count() > 1000);
}

#[test]
fn number_members_of_a_struct_are_listed() {
    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    let long = b.int("long", 8, true);
    let inner = b.body(
        BtfKind::Struct,
        "inner",
        16,
        &[("x", long, 0, 0), ("y", int, 64, 0)],
    );
    let either = b.body(
        BtfKind::Union,
        "either",
        8,
        &[("a", long, 0, 0), ("b", int, 0, 0)],
    );
    let fields = [
        ("first", int, 0, 0),
        ("in", inner, 64, 0),
        ("or", either, 192, 0),
        ("last", long, 256, 0),
    ];
    let outer = b.body(BtfKind::Struct, "outer", 40, &fields);
    let btf = Btf::parse(b.bytes()).expect("sound");
    assert_eq!(btf.numbers(outer), [(0, 4), (8, 8), (16, 4), (32, 8)]);
    assert_eq!(btf.numbers(either), []);
}

#[test]
fn types_of_a_module_continue_the_kernel_s() {
    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    let task = b.body(BtfKind::Struct, "task", 8, &[("pid", int, 0, 0)]);
    let base: &'static Btf = Box::leak(Box::new(Btf::parse(b.bytes()).expect("sound")));
    let own = base.len() as u32;
    let mut m = Builder::over(base.len() as u32, base.string_bytes());
    let ptr = m.link(BtfKind::Ptr, "", task);
    let body = m.body(
        BtfKind::Struct,
        "own",
        16,
        &[("t", ptr, 0, 0), ("n", int, 64, 0)],
    );
    let split = Btf::index(Blob::from(m.bytes()), Some(base)).expect("sound");
    assert_eq!((ptr, split.first()), (own, own));
    assert_eq!(split.len(), base.len() + 2);
    assert_eq!(split.find_struct("own"), Some(body));
    assert_eq!(split.find_struct("task"), Some(task));
    assert_eq!(base.find_struct("own"), None);
    assert_eq!(split.c_name(ptr), "struct task *");
    let t = split.member(body, "t").expect("t");
    let to = split.pointee(t.ty).expect("a pointer");
    assert_eq!(split.member(to, "pid").map(|m| m.ty), Some(int));
    assert_eq!(split.all(BtfKind::Struct).count(), 1);
    assert_eq!(split.name(task), "task");
    assert!(matches!(split.ty(9999), Type::Void));
}
