//! Where breakpoints may go.

use spile_debuginfo::breakpoints::{Breakpoints, LocationUse};
use spile_debuginfo::uprobes::KernelVersion;
use spile_debuginfo::{DebugFile, SearchPaths};

use crate::build::Dir;

const CODE: &str = r#"
#define FUNCTION(name) .globl name; .type name, @function; name: .cfi_startproc
#define END(name) .cfi_endproc; .size name, . - name
.text
FUNCTION(plain)
    push %rbp
    mov $0x90909090, %eax
    pop %rbp
    ret
END(plain)
FUNCTION(moved)
    vpbroadcastd %edi, %ymm1
    vzeroupper
    mov %edi, %eax
    ret
END(moved)
FUNCTION(loops)
    vpxor %xmm0, %xmm0, %xmm0
1:  dec %edi
    jnz 1b
    ret
END(loops)
FUNCTION(stores)
    vmovd %xmm0, (%rdi)
    ret
END(stores)
FUNCTION(computed)
    vpxor %xmm0, %xmm0, %xmm0
    mov %edi, %eax
    jmp *%rsi
END(computed)
FUNCTION(leaf)
    mov %edi, -8(%rsp)
    .byte 0x0f, 0x1f, 0x44, 0, 0
    mov -8(%rsp), %eax
    ret
END(leaf)
FUNCTION(caller)
    sub $8, %rsp
    .byte 0x0f, 0x1f, 0x44, 0, 0
    call leaf
    add $8, %rsp
    ret
END(caller)
table:
    .byte 0xe8, 0x55, 0xc3, 0x90
FUNCTION(main)
    xor %eax, %eax
    ret
END(main)
.section .note.GNU-stack, "", @progbits
"#;

/// The distance of the location to probe from a function's start, for a location in it.
fn probe(
    module: &DebugFile,
    name: &str,
    distance: u64,
    location: LocationUse,
) -> Result<u64, String> {
    let kernel = KernelVersion::of_release("6.18.1");
    let start = module.symbols().named(name).next().expect("it").address;
    let found = Breakpoints::new(module, kernel).check(start + distance, location);
    found.map(|to| to - start)
}

#[test]
fn breakpoints_go_where_instructions_begin_that_the_kernel_executes() {
    use LocationUse::{Entry, Exact, Marker};
    let dir = Dir::new();
    let path = dir.compile("locations.S", CODE, &[]);
    let module = DebugFile::open(&path, &SearchPaths::default()).expect("opened");
    let at = |name, distance, location| probe(&module, name, distance, location);
    let refused = |name, distance, location, why: &str| {
        let found = at(name, distance, location).expect_err("refused");
        assert!(found.contains(why), "{name}: {found}");
    };
    assert_eq!(at("plain", 0, Entry), Ok(0));
    assert_eq!(at("plain", 1, Exact), Ok(1));
    // Inside the constant, whose bytes are no-operations.
    refused("plain", 3, Exact, "no instruction begins at");
    refused("plain", 3, Marker, "no instruction begins at");
    // Behind the broadcast (6) and `vzeroupper` (3).
    assert_eq!(at("moved", 0, Entry), Ok(9));
    refused(
        "moved",
        0,
        Exact,
        "`vpbroadcastd`, which Linux 6.18 takes for a jump",
    );
    refused("moved", 6, Exact, "`vzeroupper`");
    refused("loops", 0, Entry, "`vpxor`, which Linux 6.18 refuses");
    refused("stores", 0, Entry, "`vmovd`");
    refused("computed", 0, Entry, "`vpxor`");
    refused("leaf", 4, Exact, "overwrites data");
    // Behind a prologue, where data may be there already.
    assert_eq!(at("leaf", 4, Entry), Ok(9));
    assert_eq!(at("caller", 4, Exact), Ok(4));
    assert_eq!(at("table", 4, Exact), Ok(4));
    refused("table", 0, Entry, "nothing says in which function");
}
