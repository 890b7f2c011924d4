//! Facts about a processor are in its value (`crates/abi`), or in the folders of what decodes its instructions: no
//! other file of the product has a name or a constant of one. Tests may.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use spile_testing::files::{below, root};

/// Where the facts are, and why others may have words of them.
const HOMES: &[(&str, &str)] = &[
    ("crates/abi/src/", "the values"),
    ("crates/debuginfo/src/x86_64/", "decodes its instructions"),
    ("crates/debuginfo/src/aarch64/", "reads its assembler text"),
    (
        "crates/debuginfo/src/processors.rs",
        "the table of these folders",
    ),
    ("crates/debuginfo/src/lib.rs", "declares these folders"),
    (
        "crates/kernel/src/cycles.rs",
        "an instruction without a system call",
    ),
    (
        "crates/inject/src/processor/",
        "writes and moves instructions",
    ),
    (
        "crates/native/src/processor.rs",
        "how functions of images are entered",
    ),
    ("crates/sdt/src/", "assembler text of markers"),
    (
        "crates/syntax/src/preproc/env.rs",
        "the language's names of processors",
    ),
    (
        "crates/syscalls/src/parse.rs",
        "the columns of the table of numbers",
    ),
    (
        "crates/ebpf/src/prebuilt/samples.rs",
        "the processor of the templates",
    ),
];

/// Parts of names that only processors have.
const WORDS: &[&str] = &[
    "x86",
    "amd64",
    "aarch64",
    "arm64",
    "i386",
    "i486",
    "i586",
    "i686",
    "iced",
    "rax",
    "rbx",
    "rcx",
    "rdx",
    "rsi",
    "rdi",
    "rbp",
    "rsp",
    "rip",
    "eax",
    "ebx",
    "ecx",
    "edx",
    "esi",
    "edi",
    "ebp",
    "esp",
    "eip",
    "r11",
    "r12",
    "r13",
    "r14",
    "r15",
    "xmm",
    "ymm",
    "fsbase",
    "gsbase",
    "rflags",
    "eflags",
    "endbr64",
    "rdtsc",
    "cntvct",
    "syscallno",
    "pstate",
];

/// Parts of the names of constants whose values are a processor's.
const CONSTANTS: &[&str] = &[
    "STACK_POINTER",
    "FRAME_POINTER",
    "PROGRAM_COUNTER",
    "RETURN_ADDRESS",
    "STATIC_LINK",
    "GOROUTINE",
    "SIGRETURN",
    "EM_",
    "PAGE",
];

/// Numbers that are the size of a page, or its last byte, where they are operands.
const PAGES: &[&str] = &["4096", "0x1000", "4095", "0xfff"];

/// The findings in a file's code: lines and what is there.
#[derive(Default)]
struct Findings(Vec<(usize, String)>);

impl Findings {
    fn read(&mut self, tokens: TokenStream) {
        let all: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < all.len() {
            if let Some(behind) = skipped(&all[at..]) {
                at += behind;
                continue;
            }
            self.constant(&all[at..]);
            self.register(&all[at..]);
            self.page(&all[at..]);
            match &all[at] {
                TokenTree::Group(group) => self.read(group.stream()),
                TokenTree::Ident(_) | TokenTree::Literal(_) => self.word(&all[at]),
                TokenTree::Punct(_) => {}
            }
            at += 1;
        }
    }

    fn add(&mut self, token: &TokenTree, what: String) {
        self.0.push((token.span().start().line, what));
    }

    fn word(&mut self, token: &TokenTree) {
        let text = token.to_string();
        let lower = text.to_lowercase();
        let mut parts = lower.split(|c: char| !c.is_ascii_alphanumeric());
        if parts.any(|part| WORDS.contains(&part)) {
            self.add(token, text);
        }
    }

    /// `const NAME: type = NUMBER`.
    fn constant(&mut self, all: &[TokenTree]) {
        let [TokenTree::Ident(word), TokenTree::Ident(name), rest @ ..] = all else {
            return;
        };
        let Some(value) = rest.iter().position(is("=")) else {
            return;
        };
        let name = name.to_string();
        let of_processor = CONSTANTS.iter().any(|part| match part.strip_suffix('_') {
            Some(_) => name.starts_with(part),
            None => format!("_{name}_").contains(&format!("_{part}_")),
        });
        let number = matches!(rest.get(value + 1), Some(TokenTree::Literal(_)));
        if (word == "const" || word == "static") && of_processor && number {
            self.add(&all[1], format!("const {name}"));
        }
    }

    /// `LocStep::Reg(NUMBER)`, `LocOp::Reg(NUMBER)` and `gimli::Register(NUMBER)`.
    fn register(&mut self, all: &[TokenTree]) {
        let [
            TokenTree::Ident(from),
            a,
            b,
            TokenTree::Ident(name),
            TokenTree::Group(group),
            ..,
        ] = all
        else {
            return;
        };
        let mut inside = group.stream().into_iter();
        let one = (inside.next(), inside.next());
        let number = matches!(one, (Some(TokenTree::Literal(_)), None));
        let owner = ["LocOp", "LocStep", "gimli"].iter().any(|n| from == n);
        let path = owner && is(":")(a) && is(":")(b);
        let named = ["Reg", "Bias", "Register"].iter().any(|n| name == n);
        if path && named && number {
            self.add(&all[3], format!("{name}{group}"));
        }
    }

    /// Arithmetic with the size of a page.
    fn page(&mut self, all: &[TokenTree]) {
        let found = match all {
            [TokenTree::Punct(op), TokenTree::Literal(n), ..] => {
                "/%&".contains(op.as_char()) && is_page(&n.to_string())
            }
            [TokenTree::Ident(name), TokenTree::Group(group), ..] => {
                ["is_multiple_of", "next_multiple_of"]
                    .iter()
                    .any(|n| name == n)
                    && is_page(&group.stream().to_string())
            }
            _ => false,
        };
        if found {
            self.add(&all[1], format!("the size of a page: {}", all[1]));
        }
    }
}

fn is_page(text: &str) -> bool {
    let text = text.replace('_', "").to_lowercase();
    PAGES.contains(&text.as_str())
}

fn is(sign: &str) -> impl Fn(&TokenTree) -> bool {
    move |token| token.to_string() == sign
}

/// The number of tokens of a comment, or of an item for tests; `None` if there is none.
fn skipped(all: &[TokenTree]) -> Option<usize> {
    let [TokenTree::Punct(sign), rest @ ..] = all else {
        return None;
    };
    if sign.as_char() != '#' {
        return None;
    }
    let inner = usize::from(rest.first().is_some_and(is("!")));
    let TokenTree::Group(attribute) = rest.get(inner)? else {
        return None;
    };
    let text = attribute.stream().to_string().replace(' ', "");
    if text.starts_with("doc=") {
        return Some(inner + 2);
    }
    if !text.starts_with("cfg(test)") && !text.starts_with("cfg(any(test,") {
        return None;
    }
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        other => is(";")(other),
    };
    Some(rest.iter().position(ends)? + 2)
}

fn findings(text: &str) -> Vec<(usize, String)> {
    let mut found = Findings::default();
    found.read(text.parse().expect("tokens"));
    found.0
}

#[test]
fn only_its_value_knows_a_processor() {
    let mut wrong = Vec::new();
    let mut used = vec![false; HOMES.len()];
    for path in below(&root().join("crates"), &["rs"]) {
        let name = path
            .strip_prefix(root())
            .expect("below")
            .display()
            .to_string();
        let product = name.contains("/src/") && !name.contains("/tests");
        if !product {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        let found = findings(&text);
        match HOMES.iter().position(|(home, _)| name.starts_with(home)) {
            Some(home) => used[home] |= !found.is_empty(),
            None => wrong.extend(
                found
                    .iter()
                    .map(|(line, what)| format!("{name}:{line}: {what}")),
            ),
        }
    }
    assert!(
        wrong.is_empty(),
        "facts of a processor:\n{}",
        wrong.join("\n")
    );
    let idle = HOMES.iter().zip(&used).filter(|(_, used)| !**used);
    let idle: Vec<&str> = idle.map(|((home, _), _)| *home).collect();
    assert!(
        idle.is_empty(),
        "no facts of a processor in {}",
        idle.join(", ")
    );
}

#[test]
fn facts_of_processors_are_found_in_code_only() {
    let count = |text: &str| findings(text).len();
    assert_eq!(count("/// rbp\nconst RBP: u16 = 6;"), 1);
    assert_eq!(
        count("const STACK_POINTER: u16 = 7; const EM_X: u16 = 62; const PAGE: u32 = 4096;"),
        3
    );
    assert_eq!(count("let op = LocStep::Reg(7);"), 1);
    assert_eq!(count("let op = LocOp::Reg(7);"), 1);
    assert_eq!(
        count("let page = at / 4096 * 4096 + (at & 0xfff) + n.next_multiple_of(4_096);"),
        3
    );
    assert_eq!(count("f(\"x86_64\"); use iced_x86::Decoder;"), 2);
    let no = "// rbp\n#[cfg(test)]\nmod tests { const RBP: u16 = 6; }\nconst PAGE: u32 = abi.page; Reg(r)";
    assert_eq!(count(no), 0);
}
