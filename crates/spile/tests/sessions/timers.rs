//! Random scripts with handlers of real system calls and concurrent timers. Checks do not depend on
//! timing: the values that timers took plus the values left at the end are all that was added;
//! globals that a handler changes together are never seen apart; printed plus lost lines are the
//! lines made. A check is a line of output, `= NAME GOT WANT`.
//!
//! A script is made of parts, each with globals and with code for hits, for timers and for the end.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use spile_ir::testgen::Rng;

use crate::session::{self, Run};

/// The code that a part adds to a script. Hits have `v`, the number to add.
#[derive(Default)]
struct ScriptPart {
    globals: String,
    functions: String,
    hit: String,
    timer: String,
    end: String,
}

struct Gen {
    rng: Rng,
    /// Number of the current part.
    n: usize,
    /// Whether handlers know the name of the system call.
    named: bool,
    /// Whether handlers run for all processes, including spile.
    all: bool,
}

/// Makes a part.
type Make = fn(&mut Gen) -> ScriptPart;

/// The kinds of parts with their weights.
const PARTS: &[(u32, Make)] = &[
    (3, Gen::drained_sum),
    (8, Gen::drained_array),
    (4, Gen::taken_elements),
    (4, Gen::together),
    (4, Gen::array_and_sum),
    (2, Gen::most),
    (2, Gen::wrapping),
    (2, Gen::text),
    (2, Gen::reset_by_hits),
    (2, Gen::buckets),
    (2, Gen::lines),
    (3, Gen::own_elements),
    (2, Gen::asked_first),
    (2, Gen::many_keys),
];

/// The sources of hits, each with whether the call's name is known there, and whether every getppid
/// call hits exactly once.
const POINTS: &[(&str, bool)] = &[
    ("syscall.*", true),
    ("syscall.*", true),
    ("nd_syscall.*", true),
    ("syscall.*.return", true),
    ("syscall_any", false),
    ("syscall_any.return", false),
    ("syscall.{getppid,close,openat,read,write,mmap}", true),
    ("syscall.getppid, syscall.exit_group, syscall.clone*?", true),
    ("syscall.getppid", true),
    ("syscall.get*, syscall.s*", true),
];

const VALUES: &[&str] = &[
    "1",
    "3",
    "tid() & 7",
    "1 + (gettimeofday_ns() & 15)",
    "strlen(execname())",
    "cpu() + 2",
    "0x100000001",
];

/// A script and the checks for its session.
pub(crate) struct Timed {
    pub run: Run,
    /// Number of getppid calls of the workload.
    made: Option<u64>,
    /// Number of its parts.
    pub parts: usize,
}

/// The script of a seed without these parts.
pub(crate) fn script(seed: u64, without: &BTreeSet<usize>) -> Timed {
    let mut g = Gen {
        rng: Rng::new(seed ^ 0x7469_6d65),
        n: 0,
        named: true,
        all: false,
    };
    g.all = g.rng.chance(30);
    let mut parts = String::from("global made\n");
    let (mut functions, mut hits, mut ends) = (String::new(), String::new(), String::new());
    let mut timers: Vec<String> = vec![String::new(); 1 + g.rng.below(3) as usize];
    let handlers = 1 + g.rng.below(3);
    for _ in 0..handlers {
        let (point, named) = g.rng.pick(POINTS);
        g.named = named;
        let control = format!("all{}", g.n);
        let _ = writeln!(parts, "global {control}");
        let mut body = format!("v = {}\n{control} <<< v\n", g.rng.pick(VALUES));
        for _ in 0..1 + g.rng.below(4) {
            let part = g.part();
            let at = g.rng.below(timers.len() as u32) as usize;
            let fill = |text: &str| {
                let text = text.replace("ALL", &control);
                text.replace('#', &g.n.to_string())
            };
            if !without.contains(&g.n) {
                parts += &fill(&part.globals);
                functions += &fill(&part.functions);
                body += &fill(&part.hit);
                timers[at] += &fill(&part.timer);
                ends += &fill(&part.end);
            }
            g.n += 1;
        }
        let whose = match g.all {
            true => "",
            false => "if (pid() != target()) next\n",
        };
        let _ = write!(hits, "probe {point} {{\n{whose}{body}}}\n");
    }
    let mut text = format!("{parts}{functions}{hits}");
    text += "probe syscall.getppid { if (pid() == target()) made <<< 1 }\n";
    for body in timers {
        let point = match g.rng.below(9) {
            2 => "timer.profile".into(),
            0 => format!("timer.us({})", 300 + g.rng.below(2000)),
            1 => "timer.ms(3).randomize(2), timer.ms(7)".into(),
            _ => format!("timer.ms({})", 1 + g.rng.below(20)),
        };
        let _ = write!(text, "probe {point} {{\n{body}}}\n");
    }
    let _ = write!(
        text,
        "probe end {{\n{ends}printf(\"made %d\\n\", @count(made))\n}}\n"
    );
    g.run(text)
}

impl Gen {
    /// The session of a script.
    fn run(&mut self, script: String) -> Timed {
        let threads: u64 = self.rng.pick(&[1, 2, 2, 4]);
        let count: u64 = self.rng.pick(&[300, 3000, 8000]);
        let stay = self.rng.pick(&["", "", " 30"]);
        let (command, made) = match self.rng.below(5) {
            0 => (format!("LOAD errors {}", count / 4), None),
            1 => ("LOAD naps 30 1".into(), None),
            2 => (format!("LOAD names {}", count / 10), Some(count / 10)),
            _ => (
                format!("LOAD calls {threads} {count}{stay}"),
                Some(threads * count),
            ),
        };
        let mut args: Vec<String> = ["-D", "MAXACTION=10000000", "-D", "MAXSKIPPED=1000000000"]
            .map(String::from)
            .to_vec();
        if self.rng.chance(15) {
            args.push("-u".into());
        }
        if self.rng.chance(15) {
            args.push("-t".into());
        }
        if self.all {
            // Between two runs of a timer a busy machine has thousands of threads in calls.
            args.extend(["-D".into(), "MAXMAPENTRIES=100000".into()]);
        }
        args.extend(["-c".into(), command]);
        Timed {
            run: Run { script, args },
            made,
            parts: self.n,
        }
    }

    fn part(&mut self) -> ScriptPart {
        let all = PARTS.iter().map(|(w, _)| w).sum();
        let mut at = self.rng.below(all);
        for (weight, make) in PARTS {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return make(self),
            }
        }
        ScriptPart::default()
    }

    fn keys(&mut self) -> Vec<&'static str> {
        let many = self.rng.pick(&[1, 1, 1, 2, 2, 3]);
        let all: &[&str] = &[
            "tid()",
            "pid()",
            "execname()",
            "cpu()",
            "v & 3",
            "sprintf(\"%d-%s\", v & 3, execname())",
            "\"one\"",
            "substr(execname(), 0, 2)",
            "name",
        ];
        let usable = all.len() - usize::from(!self.named);
        let one = |g: &mut Gen| all[g.rng.below(usable as u32) as usize];
        (0..many).map(|_| one(self)).collect()
    }

    /// An addition to an array, and the expression that reads an element for the sum.
    fn addition(&mut self, keys: &[&str]) -> (String, &'static str) {
        let location = format!("a#[{}]", keys.join(", "));
        match self.rng.below(4) {
            0 => (format!("{location} += v\n"), "a#[K]"),
            1 => (format!("{location} = {location} + v\n"), "a#[K]"),
            _ => (format!("{location} <<< v\n"), "@sum(a#[K])"),
        }
    }

    /// The order of a `foreach` over `keys` keys.
    fn order(&mut self, keys: usize, statistic: bool) -> (String, String) {
        let mut names: Vec<String> = (0..keys).map(|k| format!("k{k}_#")).collect();
        let mark = self.rng.pick(&["+", "-"]);
        let mut by = String::new();
        match self.rng.below(4) {
            0 => names[0] += mark,
            1 if statistic => {
                let what = self.rng.pick(&["@count", "@sum", "@min", "@max", "@avg"]);
                by = format!(" {what}{mark}");
            }
            1 => by = mark.into(),
            _ => {}
        }
        (format!("[{}]", names.join(", ")), by)
    }

    fn drained_sum(&mut self) -> ScriptPart {
        let add = self
            .rng
            .pick(&["g# += v\n", "g# = g# + v\n", "g# += v; g#--; g#++\n"]);
        ScriptPart {
            globals: "global g#, t#\n".into(),
            hit: add.into(),
            timer: "t# += g#\ng# = 0\n".into(),
            end: "printf(\"= drained_sum %d %d\\n\", t# + g#, @sum(ALL))\n".into(),
            ..ScriptPart::default()
        }
    }

    fn drained_array(&mut self) -> ScriptPart {
        let keys = self.keys();
        let (hit, read) = self.addition(&keys);
        let (walked, by) = self.order(keys.len(), read.starts_with('@'));
        let read = read.replace('K', &plain(keys.len()));
        let walk = format!("foreach ({walked} in a#{by}) {{ t# += {read} }}\n");
        let (functions, timer) = match self.rng.below(3) {
            0 => {
                let f = format!("function f#() {{\n{walk}delete a#\nreturn t#\n}}\n");
                (f, "f#()\n".to_owned())
            }
            1 => (
                String::new(),
                format!("try {{\n{walk}delete a#\nerror(\"x\")\n}} catch {{ b# = \"caught\" }}\n"),
            ),
            _ => (String::new(), format!("{walk}delete a#\n")),
        };
        ScriptPart {
            globals: "global a#, t#\n".into(),
            functions,
            hit,
            timer,
            end: format!("{walk}printf(\"= drained_array %d %d\\n\", t#, @sum(ALL))\n"),
        }
    }

    /// A `foreach` with a limit records keys; these are taken one by one.
    fn taken_elements(&mut self) -> ScriptPart {
        let keys = self.keys();
        let (hit, read) = self.addition(&keys);
        let (walked, by) = self.order(keys.len(), read.starts_with('@'));
        let k = plain(keys.len());
        let read = read.replace('K', &k);
        let limit = self.rng.pick(&[" limit 1", " limit 2", " limit 100", ""]);
        let walk = format!(
            "foreach ({walked} in a#{by}{limit}) r#[{k}] = 1\n\
             foreach ([{k}] in r#) {{\nif ([{k}] in a#) t# += {read}\ndelete a#[{k}]\n}}\n\
             delete r#\n"
        );
        ScriptPart {
            globals: "global a#, r#, t#\n".into(),
            hit,
            timer: walk,
            end: format!(
                "foreach ([{k}] in a#) t# += {read}\n\
                 printf(\"= taken_elements %d %d\\n\", t#, @sum(ALL))\n"
            ),
            ..ScriptPart::default()
        }
    }

    /// Two sums that a handler changes together.
    fn together(&mut self) -> ScriptPart {
        let reset = match self.rng.chance(50) {
            true => "x# = 0\ny# = 0\n",
            false => "t# = 0\n",
        };
        let hit = self.rng.pick(&[
            "x# += v\ny# += 2 * v\n",
            "y# += 2 * v\nx# += v\n",
            "x# = x# + v\nif (x# >= 0 || 1) y# = y# + v + v\n",
        ]);
        ScriptPart {
            globals: "global x#, y#, t#, bad#\n".into(),
            hit: hit.into(),
            timer: format!("if (y# != 2 * x#) bad#++\nt# += x#\n{reset}"),
            end: "printf(\"= apart %d 0\\n\", bad#)\n\
                  printf(\"= together %d %d\\n\", t# + x#, @sum(ALL))\n"
                .into(),
            ..ScriptPart::default()
        }
    }

    fn array_and_sum(&mut self) -> ScriptPart {
        let keys = self.keys();
        let (mut hit, read) = self.addition(&keys);
        let (walked, by) = self.order(keys.len(), read.starts_with('@'));
        let read = read.replace('K', &plain(keys.len()));
        hit += self.rng.pick(&["n# += v\n", "if (n# >= 0 || 1) n# += v\n"]);
        let clear = match self.rng.chance(60) {
            true => "t# += n#\nn# = 0\ndelete a#\n",
            false => "",
        };
        let timer = format!(
            "x = 0\nforeach ({walked} in a#{by}) {{ x += {read} }}\n\
             if (x != n#) bad#++\n{clear}"
        );
        ScriptPart {
            globals: "global a#, n#, t#, bad#\n".into(),
            hit,
            end: format!(
                "{timer}printf(\"= parted %d 0\\n\", bad#)\n\
                 printf(\"= array_and_sum %d %d\\n\", {}, @sum(ALL))\n",
                if clear.is_empty() { "n#" } else { "t#" }
            ),
            timer,
            ..ScriptPart::default()
        }
    }

    /// The maximum, which never decreases.
    fn most(&mut self) -> ScriptPart {
        ScriptPart {
            globals: "global m#, was#, bad#\n".into(),
            hit: "if (v > m#) m# = v\n".into(),
            timer: "if (m# < was#) bad#++\nwas# = m#\n".into(),
            end: "printf(\"= smaller %d 0\\n\", bad#)\n\
                  if (@count(ALL)) printf(\"= most %d %d\\n\", m#, @max(ALL))\n"
                .into(),
            ..ScriptPart::default()
        }
    }

    /// An array that keeps the newest elements.
    fn wrapping(&mut self) -> ScriptPart {
        let size = self.rng.pick(&[1, 3, 10, 50]);
        let (add, read) = match self.rng.below(3) {
            0 => ("w#[i#++] = v\n", "w#[k]"),
            1 => ("w#[gettimeofday_ns()]++\n", "w#[k]"),
            _ => (
                "w#[gettimeofday_ns(), execname()] <<< v\n",
                "@sum(w#[k, s])",
            ),
        };
        let keys = if read.contains('s') { "[k, s]" } else { "k" };
        let clear = self.rng.pick(&["", "delete w#\n"]);
        ScriptPart {
            globals: format!("global w#%[{size}], i#, bad#, x#\n"),
            hit: add.into(),
            timer: format!(
                "c = 0\nforeach ({keys} in w#) {{ c++\nx# += {read} }}\n\
                 if (c > {size}) bad#++\n{clear}"
            ),
            end: "printf(\"= too_many %d 0\\n\", bad#)\nx# += i#\n".into(),
            ..ScriptPart::default()
        }
    }

    /// A text that handlers write as a whole.
    fn text(&mut self) -> ScriptPart {
        let texts = [
            (
                "execname()",
                "isinstr(s, \"load\") || isinstr(s, \"name\") || isinstr(s, \"spile\")",
            ),
            (
                "sprintf(\"%d %d\", v, 2 * v)",
                "2 * strtol(s, 10) == strtol(substr(s, strpos(s, \" \") + 1, 30), 10)",
            ),
            (
                "sprintf(\"<%60d>\", v)",
                "strlen(s) >= 62 && substr(s, 0, 1) == \"<\" && substr(s, strlen(s) - 1, 1) == \">\"",
            ),
        ];
        // For other processes it can be any.
        let (value, right) = texts[self.rng.below(3).max(u32::from(self.all)) as usize];
        let clear = self.rng.pick(&["", "l# = \"\"\n"]);
        ScriptPart {
            globals: "global l#, bad#\n".into(),
            functions: "function strpos(s, t) { \
                for (i = 0; i < strlen(s); i++) if (substr(s, i, 1) == t) return i\nreturn -1 }\n"
                .replace("strpos", "at#"),
            hit: format!("l# = {value}\n"),
            timer: format!(
                "s# = l#\nif (s# != \"\" && !({})) bad#++\n{clear}",
                right
                    .replace("strpos", "at#")
                    .replace("(s,", "(s#,")
                    .replace("(s)", "(s#)")
            ),
            end: "printf(\"= torn %d 0\\n\", bad#)\n".into(),
        }
    }

    fn reset_by_hits(&mut self) -> ScriptPart {
        ScriptPart {
            globals: "global c#, big#, seen#\n".into(),
            hit: "c# += v\nif (c# > 100) { big# += c#\nc# = 0 }\n".into(),
            timer: "seen# = c# + big#\n".into(),
            end: "printf(\"= reset_by_hits %d %d\\n\", c# + big#, @sum(ALL))\nseen# = c#\n".into(),
            ..ScriptPart::default()
        }
    }

    /// The buckets of a histogram contain all added values.
    fn buckets(&mut self) -> ScriptPart {
        let hist = self
            .rng
            .pick(&["@hist_log(h#)", "@hist_linear(h#, 0, 30, 2)"]);
        let clear = match self.rng.chance(50) {
            true => "t# += @count(h#)\ndelete h#\n",
            false => "",
        };
        let timer = format!(
            "if (@count(h#)) {{ c = 0\nforeach (b in {hist}) c += {hist}[b]\n\
             if (c != @count(h#)) bad#++\n{clear}}}\n"
        );
        ScriptPart {
            globals: "global h#, t#, bad#\n".into(),
            hit: "h# <<< v\n".into(),
            end: format!(
                "{timer}printf(\"= buckets %d 0\\n\", bad#)\n\
                 printf(\"= histogram %d %d\\n\", {}, @count(ALL))\n",
                if clear.is_empty() { "@count(h#)" } else { "t#" }
            ),
            timer,
            ..ScriptPart::default()
        }
    }

    /// Lines of hits and of timers; the session adds up printed and lost lines.
    fn lines(&mut self) -> ScriptPart {
        // The write of a hit's line is another hit.
        if self.all {
            return self.drained_sum();
        }
        let hit = self.rng.pick(&[
            "println(\"L\")\n",
            "printf(\"L %s %d %p\\n\", execname(), v, v)\n",
            "print(\"L\", v)\nif (v != 2) print(\" more\")\nprintln(\"\")\n",
        ]);
        ScriptPart {
            globals: "global p#\n".into(),
            hit: format!("{hit}p# <<< 1\n"),
            timer: "println(\"T\")\n".into(),
            end: "printf(\"lines %d\\n\", @count(p#))\n".into(),
            ..ScriptPart::default()
        }
    }

    /// Elements that each thread has for itself.
    fn own_elements(&mut self) -> ScriptPart {
        ScriptPart {
            globals: "global e#, s#\n".into(),
            hit: "e#[tid()] += v\ns# += v\n".into(),
            timer: "x# = 0\nforeach (k in e#) x# += e#[k]\nprintf(\"T %d\\n\", x# >= 0)\n".into(),
            end: "x# = 0\nforeach (k in e#) x# += e#[k]\n\
                  printf(\"= own_elements %d %d\\n\", x#, @sum(ALL))\n\
                  printf(\"= own_sum %d %d\\n\", s#, @sum(ALL))\n"
                .into(),
            ..ScriptPart::default()
        }
    }

    /// Almost as many keys as hits.
    fn many_keys(&mut self) -> ScriptPart {
        // With all processes there could be any number.
        if self.all {
            return self.drained_array();
        }
        let key = self.rng.pick(&[
            "gettimeofday_ns()",
            "gettimeofday_ns() & 0xffff",
            "gettimeofday_ns() & 0x3ff",
            "i#++",
        ]);
        let (more, names) = self
            .rng
            .pick(&[("", "k"), (", v", "k, l"), (", execname()", "k, s#")]);
        let (add, read) = self
            .rng
            .pick(&[("+= v", "a#[K]"), ("<<< v", "@sum(a#[K])")]);
        let read = read.replace('K', names);
        let walk = format!("foreach ([{names}] in a#) {{ t# += {read} }}\n");
        let timer = match self.rng.below(3) {
            0 => String::new(),
            _ => format!("{walk}delete a#\n"),
        };
        ScriptPart {
            globals: "global a#[300000], i#, t#\n".into(),
            hit: format!("a#[{key}{more}] {add}\n"),
            timer,
            end: format!("{walk}printf(\"= many_keys %d %d\\n\", t#, @sum(ALL))\ni#++\n"),
            ..ScriptPart::default()
        }
    }

    /// Elements that are looked up before they are changed, and deleted by hits and by timers.
    fn asked_first(&mut self) -> ScriptPart {
        ScriptPart {
            globals: "global q#, gone#\n".into(),
            hit: "if (tid() in q#) q#[tid()] += v\nelse q#[tid()] = v\n\
                  if (q#[tid()] > 40) { gone# += q#[tid()]\ndelete q#[tid()] }\n"
                .into(),
            timer: "foreach (k- in q#) gone# += q#[k]\ndelete q#\n".into(),
            end: "foreach (k in q#) gone# += q#[k]\n\
                  printf(\"= asked_first %d %d\\n\", gone#, @sum(ALL))\n"
                .into(),
            ..ScriptPart::default()
        }
    }
}

fn plain(keys: usize) -> String {
    let names: Vec<String> = (0..keys).map(|k| format!("k{k}_#")).collect();
    names.join(", ")
}

impl Timed {
    /// Runs it; returns the number of skipped hits, or the failure.
    pub(crate) fn check(&self) -> Result<u64, String> {
        judge(&self.run, self.made)
    }
}

/// The last lines of the output, printed at the end.
fn tail(out: &str) -> String {
    let lines: Vec<&str> = out.lines().collect();
    let last = &lines[lines.len().saturating_sub(40)..];
    format!("---- output, {} lines\n{}\n", lines.len(), last.join("\n"))
}

/// Whether a script is one of this generator.
pub(crate) fn is_one(run: &Run) -> bool {
    run.script.starts_with("global made")
}

/// Runs a script of this generator, or a part of one.
pub(crate) fn judge(run: &Run, made: Option<u64>) -> Result<u64, String> {
    let done = session::run(run);
    if let Some(why) = done.wrong {
        return Err(format!("{why}\n{}", done.err));
    }
    if done.status != Some(0) || done.err.contains("ERROR") {
        return Err(format!("status {:?}\n{}", done.status, done.err));
    }
    let (mut lines, mut parts, mut printed, mut counted) = (0, 0, 0, None);
    for line in done.out.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["=", name, got, want] if got != want => {
                let told = format!("{name}: {got}, wanted {want}\n{}", done.err);
                return Err(format!("{told}{}", tail(&done.out)));
            }
            ["lines", n] => {
                lines += n.parse::<u64>().unwrap_or(0);
                parts += 1;
            }
            ["made", n] => counted = n.parse::<u64>().ok(),
            ["L", ..] | ["L1" | "L3", ..] => printed += 1,
            _ if line.starts_with('L') => printed += 1,
            _ => {}
        }
    }
    let skipped = done.skipped();
    // A loss is a record, which has the lines of a handler.
    let lost = done.lost();
    if printed > lines || printed + lost * parts < lines || (lost == 0 && printed < lines) {
        return Err(format!(
            "{printed} lines printed, {lost} lost, {lines} made\n{}{}",
            done.err,
            tail(&done.out)
        ));
    }
    if let (Some(made), Some(counted)) = (made, counted)
        && (counted > made || counted + skipped < made)
    {
        return Err(format!(
            "{counted} calls counted, {skipped} skipped, {made} made\n{}{}",
            done.err,
            tail(&done.out)
        ));
    }
    Ok(skipped)
}
