//! What the kernel does with a breakpoint on an instruction is as the table of
//! `spile_debuginfo::uprobes` says.
//!
//! A generated program executes each instruction that the processor has, of all opcode maps and
//! with all mandatory prefixes, on known registers, flags, vector registers, masks and memory, and
//! prints checksums of the results. With a probe on each location that the table permits, it prints the
//! same, and each execution is a hit. What the table calls refused is refused; where it says
//! that the kernel executes something else, a breakpoint (of this program only) shows it.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iced_x86::{Decoder, DecoderOptions};
use spile_debuginfo::processors::verdict;
use spile_debuginfo::uprobes::{KernelVersion, Verdict};
use spile_debuginfo::{DebugFile, SearchPaths};
use spile_kernel::perf::{PerfEvent, ProbeLocation};

/// Executions of each case in one run of the program.
const SEEDS: usize = 4;
/// Cases that are tried one by one, for each reason of the table.
const SAMPLES: usize = 6;

/// The kernel by which the table was made.
const MEASURED: KernelVersion = KernelVersion {
    major: 6,
    minor: 18,
};

/// Instructions of the one-byte opcodes and of control flow, as assembler text. `@` is before the
/// instruction under test; without it, that is the first one.
const TEXTS: &str = include_str!("instructions.txt");

/// The text of a function with one instruction under test.
struct Case(String);

/// The cases of the vector extensions and of `0f`, whose encodings are regular.
fn encoded() -> Vec<Case> {
    let mut all = BTreeMap::new();
    let mut add = |head: &[u8]| {
        // Registers; memory at `(%rbx)`; at an address relative to this one; elements by indexes.
        for behind in [&[0xd3][..], &[0x13], &[0x35, 0, 0, 0, 0], &[0x14, 0x23]] {
            let mut bytes = [head, behind, &[0x11; 8]].concat();
            let mut decoder = Decoder::new(64, &bytes, DecoderOptions::NONE);
            let i = decoder.decode();
            let at = decoder.get_constant_offsets(&i).displacement_offset();
            if i.is_invalid() || i.len() < head.len() + behind.len() {
                continue;
            }
            bytes.truncate(i.len());
            let list = |bytes: &[u8]| {
                let shown: Vec<String> = bytes.iter().map(|b| format!("{b:#x}")).collect();
                match shown.is_empty() {
                    true => String::new(),
                    false => format!(".byte {}\n", shown.join(",")),
                }
            };
            let text = match i.is_ip_rel_memory_operand() {
                true => format!(
                    "{}.long memory + 4096 - 9f\n{}9:\n",
                    list(&bytes[..at]),
                    list(&bytes[at + 4..])
                ),
                false => list(&bytes),
            };
            all.insert(bytes, text + "ret\n");
        }
    };
    let byte = || 0..=0xffu8;
    // VEX: `c4 RXBmmmmm WvvvvLpp`. Operand `vvvv` is unused (15), register 7 or register 6.
    for (map, op) in (1..=3).flat_map(|m| byte().map(move |b| (m, b))) {
        for low in 0..=0xffu8 {
            if matches!(low >> 3 & 15, 0 | 8 | 9) {
                add(&[0xc4, 0xe0 | map, low, op]);
            }
        }
        if map == 1 {
            add(&[0xc5, 0xf8 | 0x01, op]);
            add(&[0xc5, 0x78, op]);
        }
    }
    // EVEX: `62 RXBR0mmm Wvvvv1pp zLLbVaaa`.
    for (map, op) in (1..=3).flat_map(|m| byte().map(move |b| (m, b))) {
        for (pp, w) in (0..4).flat_map(|p| [0, 0x80].map(|w| (p, w))) {
            for vvvv in [0x78, 0x48] {
                for last in [0x08, 0x49, 0xca] {
                    add(&[0x62, 0xf0 | map, w | vvvv | 4 | pp, last, op]);
                }
            }
        }
    }
    // Without these: system calls, instructions of the system, `emms`, and what has other results
    // each time.
    let odd = |b: u8| {
        matches!(b, 0x00..=0x0f | 0x20..=0x27 | 0x30..=0x3f | 0x77..=0x7b | 0x80..=0x8f | 0xa0..=0xa2
            | 0xa8..=0xaa | 0xae | 0xb2 | 0xb4 | 0xb5 | 0xb9 | 0xc7 | 0xff)
    };
    for prefix in [
        &[][..],
        &[0x66],
        &[0xf3],
        &[0xf2],
        &[0x48],
        &[0x66, 0x4c],
        &[0x45],
    ] {
        for op in byte() {
            if !odd(op) {
                add(&[prefix, &[0x0f, op]].concat());
            }
            add(&[prefix, &[0x0f, 0x38, op]].concat());
            add(&[prefix, &[0x0f, 0x3a, op]].concat());
        }
    }
    all.into_values().map(Case).collect()
}

/// The program with these cases, and the bytes of their instructions.
fn build(dir: &Path, name: &str, cases: &[Case]) -> PathBuf {
    let mut text = String::from(".text\n");
    let mut table = String::from(".section .rodata\n.globl cases, count\n.balign 8\ncases:\n");
    for (n, case) in cases.iter().enumerate() {
        let (before, rest) = case.0.split_once('@').unwrap_or(("", &case.0));
        let _ = write!(
            text,
            ".balign 16\nc_{n}:\n{before}\n.globl i_{n}\n.type i_{n}, @function\ni_{n}:\n{rest}\n\
             .size i_{n}, . - i_{n}\n"
        );
        let _ = writeln!(table, ".quad c_{n}");
    }
    let _ = writeln!(table, "count: .long {}", cases.len());
    text += &table;
    text += ".section .note.GNU-stack, \"\", @progbits\n";
    let (source, out) = (dir.join(format!("{name}.s")), dir.join(name));
    std::fs::write(&source, text).expect("written");
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/instructions.c");
    let done = Command::new("gcc")
        .args(["-O1", "-no-pie", "-o"])
        .args([&out, &driver, &source])
        .status();
    assert!(done.expect("gcc").success());
    out
}

/// What the program prints, by case.
fn results(text: &str) -> BTreeMap<usize, String> {
    let line = |line: &str| {
        let (number, result) = line.split_once(' ')?;
        Some((number.parse().ok()?, result.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

fn run(program: &Path) -> BTreeMap<usize, String> {
    // A process that dies is begun again behind the case that it died of.
    let mut all = BTreeMap::new();
    loop {
        let from = all.keys().next_back().map_or(0, |last| last + 1);
        let out = Command::new(program)
            .args([&from.to_string(), "1000000"])
            .output()
            .expect("run");
        all.extend(results(&String::from_utf8_lossy(&out.stdout)));
        if out.status.success() {
            return all;
        }
        let died = all
            .keys()
            .next_back()
            .map_or(from, |last| last + 1)
            .max(from);
        all.insert(died, "signal".into());
    }
}

/// An instruction under test.
struct Placed {
    address: u64,
    offset: u64,
    bytes: Vec<u8>,
}

/// The instruction at each `i_N`.
fn instructions(program: &Path, count: usize) -> Vec<Placed> {
    let module = DebugFile::open(program, &SearchPaths::default()).expect("opened");
    let one = |n: usize| {
        let name = format!("i_{n}");
        let at = module
            .symbols()
            .named(&name)
            .next()
            .expect("a symbol")
            .address;
        let bytes = (1..=15).rev().find_map(|n| module.image().bytes_at(at, n));
        let bytes = bytes.expect("code");
        let len = Decoder::new(64, bytes, DecoderOptions::NONE).decode().len();
        Placed {
            address: at,
            offset: module.image().file_offset(at).expect("in the file"),
            bytes: bytes[..len].to_vec(),
        }
    };
    (0..count).map(one).collect()
}

/// Runs one case with a breakpoint on its instruction: its result, or why there is no breakpoint.
fn with_breakpoint(
    program: &Path,
    case: usize,
    offset: u64,
) -> Result<(Option<String>, u64), String> {
    let mut child = Command::new(program)
        .args([&case.to_string(), "1", "wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    let location = ProbeLocation::File {
        path: program.to_str().expect("text"),
        offset,
        semaphore: 0,
    };
    let event = PerfEvent::open_at(&location, false, Some(child.id())).and_then(|e| {
        e.enable()?;
        Ok(e)
    });
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(b"\n")
        .expect("written");
    let line = lines.next().and_then(Result::ok);
    drop(lines);
    let _ = child.wait();
    let hits = event.map_err(|e| e.to_string())?.count().expect("a number");
    let result = line.and_then(|l| results(&l).into_values().next());
    Ok((result, hits))
}

#[test]
fn instructions_under_breakpoints_are_as_the_table_says() {
    if cfg!(not(target_arch = "x86_64")) {
        skip!("for x86-64");
    }
    if !rustix::process::geteuid().is_root() {
        skip!("needs root");
    }
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut cases = encoded();
    let texts = TEXTS
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    cases.extend(texts.map(|line| Case(format!("{line}\nret\n"))));
    // Those that run, with equal results.
    let all = build(dir, "all", &cases);
    let (first, second) = (run(&all), run(&all));
    let runs = |n: &usize| first[n] == second[n] && !first[n].starts_with("signal");
    let runs: BTreeSet<usize> = (0..cases.len()).filter(runs).collect();
    let kernel = KernelVersion::of_release(&spile_kernel::machine::release());
    let found = instructions(&all, cases.len());
    let judged: Vec<Verdict> = found
        .iter()
        .map(|i| verdict(spile_abi::HOST, &i.bytes, kernel).expect("known"))
        .collect();
    one_by_one(&all, &found, &judged, &runs, &first, kernel);
    let keep = |(n, _): &(usize, Case)| {
        runs.contains(n) && matches!(judged[*n], Verdict::Right | Verdict::OverwritesRedZone)
    };
    let right: Vec<Case> = cases
        .into_iter()
        .enumerate()
        .filter(keep)
        .map(|c| c.1)
        .collect();
    assert!(right.len() > 1000, "{} cases run", right.len());
    let program = build(dir, "right", &right);
    all_at_once(&program, &right);
}

/// With a probe on each instruction that the table calls right, the program computes the same, and
/// each execution is one hit.
fn all_at_once(program: &Path, cases: &[Case]) {
    let expected = run(program);
    let locations = cases.len();
    let script = format!(
        "global n[{locations}] probe process(\"{0}\").function(\"i_*\").call {{ n[uaddr()] <<< 1 }} \
         probe end {{ foreach (a in n) printf(\"%d hits %d\\n\", a, @count(n[a])) }}",
        program.display()
    );
    let out = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["--suppress-time-limits", "-e", &script, "-c"])
        .arg(program)
        .output()
        .expect("spile");
    let text = String::from_utf8_lossy(&out.stdout);
    let messages = String::from_utf8_lossy(&out.stderr);
    let hits = |line: &str| {
        let (address, hits) = line.split_once(" hits ")?;
        Some((address.parse().ok()?, hits.parse().ok()?))
    };
    let hits: BTreeMap<u64, usize> = text.lines().filter_map(hits).collect();
    let got = results(&text);
    let mut differ = Vec::new();
    for (n, i) in instructions(program, locations).into_iter().enumerate() {
        let hits = hits.get(&i.address).copied().unwrap_or(0);
        if got.get(&n) != Some(&expected[&n]) || hits != SEEDS {
            differ.push(format!("{:02x?}: {hits} hits, {:?}", i.bytes, got.get(&n)));
        }
    }
    let count = differ.len();
    assert!(
        differ.is_empty(),
        "{count} differ:\n{}\n{messages}",
        differ.join("\n")
    );
}

/// What the table calls refused or wrong is so.
fn one_by_one(
    program: &Path,
    found: &[Placed],
    judged: &[Verdict],
    runs: &BTreeSet<usize>,
    results: &BTreeMap<usize, String>,
    kernel: KernelVersion,
) {
    let mut tried: BTreeMap<String, usize> = BTreeMap::new();
    for (n, judged) in judged.iter().enumerate() {
        let Placed { offset, bytes, .. } = &found[n];
        // The opcode's location in the table, and whether it has prefixes.
        let kind = format!("{judged:?} {:02x?}", bytes.first());
        match judged {
            Verdict::Refused(_) if *tried.entry(kind.clone()).or_default() < SAMPLES => {
                *tried.entry(kind).or_default() += 1;
                let done = with_breakpoint(program, n, *offset);
                assert!(done.is_err(), "{bytes:02x?} is not refused: {done:?}");
            }
            Verdict::Wrong(_)
                if runs.contains(&n) && *tried.entry(kind.clone()).or_default() < SAMPLES =>
            {
                let done = with_breakpoint(program, n, *offset);
                let expected = (Some(results[&n].clone()), SEEDS as u64);
                // Some have no effect on these values.
                if done != Ok(expected) {
                    *tried.entry(kind).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    for (kind, count) in tried {
        eprintln!("{count} {kind}");
        // A newer kernel may do better than the table allows.
        assert!(count > 0 || kernel > MEASURED, "no example of: {kind}");
    }
}
