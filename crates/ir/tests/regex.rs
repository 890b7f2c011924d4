//! Regular expressions compared with two other implementations: glibc's `regexec`, and an
//! exhaustive search of all ways to match, compared by POSIX's rule as it is written.
//!
//! Matches and groups must always agree with the search. If there are too many ways, only the whole
//! match is compared, with glibc's. glibc must give the same whole match; if its groups differ, the
//! search has proved that they are not POSIX's. [`GLIBC_DIFFERS`] has the kinds of differences.
//! Patterns that repeat an anchor, or repeat a repetition of a part that can be empty, are compared
//! with the search alone: glibc misses matches there, and can run forever.

use spile_ir::regex::{Ast, Regex, parse};

/// Start and end, or nothing.
type Span = Option<(usize, usize)>;

/// glibc's answer: `None` without a match, otherwise the spans; an error for a pattern that it
/// refuses.
fn glibc(pattern: &[u8], text: &[u8], groups: usize) -> Result<Option<Vec<Span>>, i32> {
    use std::ffi::CString;
    let pattern = CString::new(pattern).unwrap();
    let text = CString::new(text).unwrap();
    let mut re = std::mem::MaybeUninit::<libc::regex_t>::zeroed();
    let none = libc::regmatch_t {
        rm_so: -1,
        rm_eo: -1,
    };
    let mut spans = vec![none; groups + 1];
    // SAFETY: both strings end in a NUL, `re` is what regcomp fills and regfree empties, and the
    // array has the given number of spans.
    let found = unsafe {
        let error = libc::regcomp(re.as_mut_ptr(), pattern.as_ptr(), libc::REG_EXTENDED);
        if error != 0 {
            return Err(error);
        }
        let found = libc::regexec(
            re.as_ptr(),
            text.as_ptr(),
            spans.len(),
            spans.as_mut_ptr(),
            0,
        );
        libc::regfree(re.as_mut_ptr());
        found
    };
    let span =
        |s: &libc::regmatch_t| (s.rm_so >= 0).then_some((s.rm_so as usize, s.rm_eo as usize));
    Ok((found == 0).then(|| spans.iter().map(span).collect()))
}

/// Our answer in the same form.
fn ours(re: &Regex, text: &[u8]) -> Option<Vec<Span>> {
    let m = re.find(text);
    assert_eq!(
        m.is_some(),
        re.is_match(text),
        "{}",
        String::from_utf8_lossy(&re.pattern)
    );
    m.map(|m| std::iter::once(Some(m.whole)).chain(m.groups).collect())
}

/// The exhaustive search.
mod search {
    use super::{Ast, Span};
    use std::rc::Rc;

    /// A way in which a part matched.
    #[derive(Debug, Clone)]
    pub(crate) struct Tree {
        span: (usize, usize),
        /// The alternative and its tree; the rounds of a repetition; the parts of a sequence.
        choice: usize,
        inside: Vec<Rc<Tree>>,
        /// The group's number, and those of the groups in it.
        group: Option<(u32, Vec<u32>)>,
    }

    /// Maximum number of ways that are examined.
    const MANY: usize = 1000;

    pub(crate) struct Search<'t> {
        pub text: &'t [u8],
        pub made: usize,
    }

    impl Search<'_> {
        fn leaf(&self, from: usize, to: usize) -> Vec<Rc<Tree>> {
            vec![Rc::new(Tree {
                span: (from, to),
                choice: 0,
                inside: Vec::new(),
                group: None,
            })]
        }

        /// Every way in which a part can match from a position on; `None` if there are too many.
        pub(crate) fn all(&mut self, ast: &Ast, from: usize) -> Option<Vec<Rc<Tree>>> {
            let n = self.text.len();
            let out = match ast {
                Ast::Empty => self.leaf(from, from),
                Ast::Begin if from == 0 => self.leaf(from, from),
                Ast::End if from == n => self.leaf(from, from),
                Ast::Begin | Ast::End => Vec::new(),
                Ast::Set(set) => match self.text.get(from) {
                    Some(b) if set.contains(*b) => self.leaf(from, from + 1),
                    _ => Vec::new(),
                },
                Ast::Group(g, body) => {
                    let mut inner = Vec::new();
                    body.for_each_group(&mut |g| inner.push(g));
                    let mark = |t: Rc<Tree>| {
                        Rc::new(Tree {
                            span: t.span,
                            choice: 0,
                            inside: vec![t],
                            group: Some((*g, inner.clone())),
                        })
                    };
                    self.all(body, from)?.into_iter().map(mark).collect()
                }
                Ast::Alt(list) => {
                    let mut out = Vec::new();
                    for (choice, a) in list.iter().enumerate() {
                        for t in self.all(a, from)? {
                            out.push(Rc::new(Tree {
                                span: t.span,
                                choice,
                                inside: vec![t],
                                group: None,
                            }));
                        }
                    }
                    out
                }
                Ast::Concat(list) => {
                    let mut ways: Vec<(usize, Vec<Rc<Tree>>)> = vec![(from, Vec::new())];
                    for a in list {
                        let mut more = Vec::new();
                        for (at, parts) in ways {
                            for t in self.all(a, at)? {
                                let mut parts = parts.clone();
                                parts.push(t.clone());
                                more.push((t.span.1, parts));
                            }
                        }
                        ways = more;
                        self.count(ways.len())?;
                    }
                    Self::close(from, ways)
                }
                Ast::Repeat { body, min, max } => {
                    let (min, max) = (*min as usize, max.map(|m| m as usize));
                    let mut done = Vec::new();
                    let mut open = vec![(from, Vec::new())];
                    let mut round = 0;
                    while !open.is_empty() {
                        if round >= min {
                            done.extend(open.iter().cloned());
                        }
                        if max == Some(round) {
                            break;
                        }
                        let mut more = Vec::new();
                        for (at, rounds) in &open {
                            for t in self.all(body, *at)? {
                                let mut rounds: Vec<Rc<Tree>> = rounds.clone();
                                let empty = t.span.0 == t.span.1;
                                rounds.push(t.clone());
                                if empty && round >= min {
                                    // The only round is also the last one.
                                    if round == 0 {
                                        done.push((t.span.1, rounds));
                                    }
                                } else {
                                    more.push((t.span.1, rounds));
                                }
                            }
                        }
                        open = more;
                        round += 1;
                        self.count(open.len() + done.len())?;
                    }
                    Self::close(from, done)
                }
            };
            self.count(out.len())?;
            Some(out)
        }

        fn count(&mut self, n: usize) -> Option<()> {
            self.made += n;
            (self.made < MANY).then_some(())
        }

        fn close(from: usize, ways: Vec<(usize, Vec<Rc<Tree>>)>) -> Vec<Rc<Tree>> {
            let tree = |(to, inside)| {
                Rc::new(Tree {
                    span: (from, to),
                    choice: 0,
                    inside,
                    group: None,
                })
            };
            ways.into_iter().map(tree).collect()
        }
    }

    /// Whether the first tree is better: longer, then the earlier alternative, then the inner trees
    /// from left to right, where a round is better than none.
    fn better(a: &Tree, b: &Tree) -> Option<bool> {
        let len = |t: &Tree| t.span.1 - t.span.0;
        if len(a) != len(b) {
            return Some(len(a) > len(b));
        }
        if a.choice != b.choice {
            return Some(a.choice < b.choice);
        }
        for (x, y) in a.inside.iter().zip(&b.inside) {
            if let Some(yes) = better(x, y) {
                return Some(yes);
            }
        }
        (a.inside.len() != b.inside.len()).then_some(a.inside.len() > b.inside.len())
    }

    /// A group's last match counts, and inner groups only within it.
    fn groups(t: &Tree, out: &mut [Span]) {
        if let Some((g, inner)) = &t.group {
            inner.iter().for_each(|i| out[*i as usize] = None);
            out[*g as usize] = Some(t.span);
        }
        t.inside.iter().for_each(|i| groups(i, out));
    }

    /// The answer.
    pub(crate) fn best(ast: &Ast, text: &[u8], count: usize) -> Option<Option<Vec<Span>>> {
        for start in 0..=text.len() {
            let mut s = Search { text, made: 0 };
            let ways = s.all(ast, start)?;
            let best = ways
                .into_iter()
                .reduce(|a, b| if better(&b, &a) == Some(true) { b } else { a });
            if let Some(t) = best {
                let mut out = vec![None; count + 1];
                out[0] = Some(t.span);
                groups(&t, &mut out);
                return Some(Some(out));
            }
        }
        Some(None)
    }
}

/// A small deterministic generator of random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn pick<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.roll(list.len() as u64) as usize]
    }

    fn text(&mut self, longest: u64) -> Vec<u8> {
        let len = self.roll(longest + 1);
        (0..len).map(|_| b"aaabbc"[self.roll(6) as usize]).collect()
    }

    /// A pattern over a small alphabet, so that much of it matches.
    fn pattern(&mut self, depth: u32) -> String {
        let mut out = String::new();
        for i in 0..1 + self.roll(3) {
            if i > 0 && self.roll(3) == 0 {
                out.push('|');
            }
            let group = depth > 0 && self.roll(2) == 0;
            match self.roll(40) {
                _ if group => {
                    let inner = self.pattern(depth - 1);
                    out.push_str(&format!("({inner})"));
                }
                0 => out.push_str(self.pick(&["()", "(^)", "($)", "(|a)"])),
                1 => {
                    out.push_str(self.pick(&["^", "$"]));
                    continue;
                }
                2..=6 => out.push_str(self.pick(&["[ab]", "[^a]", ".", "[b-c]", "[[:alpha:]]"])),
                _ => out.push_str(self.pick(&["a", "b", "c", "a", "b"])),
            }
            if self.roll(3) == 0 {
                let times = ["*", "+", "?", "*", "{2}", "{1,2}", "{0,2}", "{2,}", "{,2}"];
                out.push_str(self.pick(&times));
            }
        }
        out
    }
}

/// Number of cases for each outcome.
#[derive(Debug, Default)]
struct Counts {
    compared: usize,
    matched: usize,
    searched: usize,
    glibc_differs: usize,
    too_large: usize,
}

fn compare(pattern: &str, texts: &[Vec<u8>], counts: &mut Counts) {
    let theirs = glibc(pattern.as_bytes(), b"", 0);
    let re = match (Regex::new(pattern.as_bytes(), true), theirs) {
        (Ok(re), Ok(_)) => re,
        (Err(_), Err(_)) => return,
        (Err(e), Ok(_)) if e.too_large() => {
            counts.too_large += 1;
            return;
        }
        (ours, theirs) => panic!("{pattern}: {:?} {theirs:?}", ours.err()),
    };
    let (ast, groups) = parse(pattern.as_bytes()).unwrap();
    for text in texts {
        let got = ours(&re, text);
        let whole = |m: &Option<Vec<Span>>| m.as_ref().map(|m| m[0]);
        let what = format!("{pattern} on {}", String::from_utf8_lossy(text));
        counts.compared += 1;
        counts.matched += usize::from(got.is_some());
        let search = search::best(&ast, text, groups as usize);
        if let Some(want) = &search {
            assert_eq!(&got, want, "search: {what}");
            counts.searched += 1;
        }
        if beyond_glibc(&ast, false) {
            continue;
        }
        let theirs = glibc(pattern.as_bytes(), text, groups as usize).unwrap();
        assert_eq!(whole(&got), whole(&theirs), "glibc: {what}");
        if got != theirs {
            counts.glibc_differs += 1;
        }
    }
}

/// Whether it repeats an anchor, or a part that can be empty inside another repetition: glibc then
/// misses matches or runs forever.
fn beyond_glibc(ast: &Ast, repeated: bool) -> bool {
    match ast {
        Ast::Begin | Ast::End => repeated,
        Ast::Repeat { body, .. } => repeated && body.nullable() || beyond_glibc(body, true),
        Ast::Group(_, a) => beyond_glibc(a, repeated),
        Ast::Concat(list) | Ast::Alt(list) => list.iter().any(|a| beyond_glibc(a, repeated)),
        Ast::Empty | Ast::Set(_) => false,
    }
}

#[test]
fn random_patterns_match_as_in_glibc_and_the_search() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut counts = Counts::default();
    for _ in 0..2500 {
        let depth = dice.roll(4) as u32;
        let pattern = dice.pattern(depth);
        let texts: Vec<Vec<u8>> = (0..3).map(|_| dice.text(7)).collect();
        compare(&pattern, &texts, &mut counts);
    }
    assert!(
        counts.searched > 7000 && counts.too_large < 30,
        "{counts:?}"
    );
}

/// Patterns with all constructs of scripts, and long subjects.
const PLAIN: &[(&str, &str, &str)] = &[
    (
        "^/home/[a-z]+/(.*)\\.c$",
        "/home/someone/src/kernel/sched/core.c",
        "(0,37) (14,35)",
    ),
    ("(foo|foobar)(bar)?", "a foobar", "(2,8) (2,8) -"),
    (
        "([0-9]{1,3})\\.([0-9]{1,3})\\.([0-9]{1,3})\\.([0-9]{1,3})",
        "at 10.0.12.255:80",
        "(3,14) (3,5) (6,7) (8,10) (11,14)",
    ),
    (
        "([[:alpha:]_][[:alnum:]_]*)=([^ ]*)",
        "x 1a= key=value rest",
        "(3,5) (3,4) (5,5)",
    ),
    ("a|b|", "c", "(0,0)"),
    ("[]x-]+", "ab]x-c", "(2,5)"),
    ("[[.a.]-[=c=]]", "", "-"),
    ("[^]]*", "a]b", "(0,1)"),
    ("a{0}b", "ab", "(1,2)"),
    ("()", "x", "(0,0) (0,0)"),
    ("a)", "a)", "(0,2)"),
    ("a}", "a}", "(0,2)"),
    ("\\(\\*\\)", "f(*)", "(1,4)"),
    ("(a*)(ab)*(b*)", "abb", "(0,3) (0,1) - (1,3)"),
    ("(a|ab)(c|bcd)(d*)", "abcd", "(0,4) (0,2) (2,3) (3,4)"),
    ("((a)|(b))*", "ab", "(0,2) (1,2) - (1,2)"),
    ("(a*)*", "b", "(0,0) (0,0)"),
    ("x$|^y|z", "yz", "(0,1)"),
];

fn shown(m: Option<Vec<Span>>) -> String {
    let span = |s: Span| s.map_or("-".into(), |(a, b)| format!("({a},{b})"));
    m.map_or("-".into(), |m| {
        m.into_iter().map(span).collect::<Vec<_>>().join(" ")
    })
}

#[test]
fn known_patterns_have_their_answers() {
    for (pattern, text, want) in PLAIN {
        let re = match Regex::new(pattern.as_bytes(), true) {
            Ok(re) => re,
            Err(e) => {
                assert_eq!(*want, "-", "{pattern}: {e:?}");
                assert!(glibc(pattern.as_bytes(), b"", 0).is_err(), "{pattern}");
                continue;
            }
        };
        assert_eq!(
            shown(ours(&re, text.as_bytes())),
            *want,
            "{pattern} on {text}"
        );
    }
}

/// Cases where glibc's groups are not POSIX's: the pattern, the text, our answer, glibc's, and the
/// reason.
const GLIBC_DIFFERS: &[(&str, &str, &str, &str)] = &[
    // A repetition of an empty part has one round; glibc agrees for `(a*)*` but not if the part is
    // an anchor.
    ("(^)*", "a", "(0,0) (0,0)", "(0,0) -"),
    // The first round takes all that it can; glibc leaves something for an optional round, or gives
    // it nothing.
    ("(a?){0,2}", "a", "(0,1) (0,1)", "(0,1) (1,1)"),
    ("(.+){0,2}", "ca", "(0,2) (0,2)", "(0,2) (1,2)"),
    // There must be two rounds: the first takes all, the second nothing; glibc reports the first as
    // the last.
    ("(b?){2,}", "b", "(0,1) (1,1)", "(0,1) (0,1)"),
    // The last round of the outer group skipped the inner one; glibc reports the inner one of an
    // earlier round.
    (
        "((a){,2}|b{0,2}){2}",
        "aab",
        "(0,3) (2,3) -",
        "(0,3) (2,3) (1,2)",
    ),
    // Of equal lengths the first alternative wins; glibc prefers the one without an anchor.
    ("($)|()", "", "(0,0) (0,0) -", "(0,0) - (0,0)"),
    // The first round is as long as possible.
    (
        "((a|aa)|(a$b)?b)*",
        "aa",
        "(0,2) (0,2) (0,2) -",
        "(0,2) (1,2) (1,2) -",
    ),
    // glibc finds nothing, though `b*` is everywhere.
    ("((^c?)){1,2}a|b*", "caab", "(0,2) (0,1) (0,1)", "-"),
];

#[test]
fn known_differences_from_glibc_remain() {
    for (pattern, text, want, theirs) in GLIBC_DIFFERS {
        let re = Regex::new(pattern.as_bytes(), true).unwrap();
        let (ast, groups) = parse(pattern.as_bytes()).unwrap();
        let searched = search::best(&ast, text.as_bytes(), groups as usize).unwrap();
        assert_eq!(shown(searched), *want, "search: {pattern} on {text}");
        assert_eq!(
            shown(ours(&re, text.as_bytes())),
            *want,
            "{pattern} on {text}"
        );
        let glibc = glibc(pattern.as_bytes(), text.as_bytes(), groups as usize).unwrap();
        if shown(glibc.clone()) != *theirs {
            // Another glibc may be right, or wrong in another way.
            println!("{pattern} on {text}: this glibc says {}", shown(glibc));
        }
    }
}

#[test]
fn patterns_that_glibc_refuses_are_errors() {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let parts = [
        "a",
        "b",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "|",
        "*",
        "+",
        "?",
        "^",
        "$",
        ".",
        "\\",
        "-",
        ",",
        "1",
        "2",
        "[:digit:]",
        "[=a=]",
        "[.b.]",
        ":",
        "=",
        "{1,2}",
        "[a-c]",
        "(a|b)",
        "\\.",
        "\\w",
    ];
    let (mut good, mut bad) = (0, 0);
    for _ in 0..20_000 {
        let len = 1 + dice.roll(8);
        let pattern: String = (0..len).map(|_| dice.pick(&parts)).collect();
        let theirs = glibc(pattern.as_bytes(), b"", 0);
        match Regex::new(pattern.as_bytes(), false) {
            Ok(_) => {
                assert!(theirs.is_ok(), "{pattern}: glibc has error {theirs:?}");
                good += 1;
            }
            Err(e) => {
                assert!(
                    e.offset.is_some_and(|offset| offset <= pattern.len()),
                    "{pattern}: {e:?}"
                );
                assert!(!e.message.is_empty());
                let refused = e.message.contains("not available");
                assert!(theirs.is_err() || refused, "{pattern}: {e:?}");
                bad += 1;
            }
        }
    }
    assert!(good > 2000 && bad > 2000, "{good} {bad}");
}

#[test]
fn any_bytes_and_long_texts_match() {
    let re = Regex::new(b"([^/]*)/([^/]*)$", true).unwrap();
    let mut text = b"x/".repeat(2000);
    text.extend(b"end");
    assert_eq!(
        shown(ours(&re, &text)),
        "(3998,4003) (3998,3999) (4000,4003)"
    );
    let re = Regex::new(b"(\xff+)[\x80-\xfe]", true).unwrap();
    assert_eq!(shown(ours(&re, b"a\xff\xff\x80")), "(1,4) (1,3)");
}

#[test]
fn expressions_that_are_too_large_are_refused() {
    for pattern in [
        "((a{1,100}){1,100}){1,100}",
        "(a|b)*a(a|b){14}",
        "[ab]{9999}",
    ] {
        let e = Regex::new(pattern.as_bytes(), true).unwrap_err();
        assert!(e.too_large(), "{pattern}: {e:?}");
        assert!(!e.remedy().is_empty());
    }
    let many = "(a)".repeat(32);
    assert!(Regex::new(many.as_bytes(), true).unwrap_err().too_large());
    assert!(Regex::new(many.as_bytes(), false).is_ok());
}
