//! `cargo xtask vm --bench`: the cost of attaching to functions. Each guest attaches to 1,000
//! functions of the kernel by one link and one by one, and measures the time until scripts are
//! armed. Guests are emulated, so scripts that this machine can run are also started here with the
//! same programs: the ratio estimates the times without emulation.

use std::path::Path;
use std::process::Command;

use super::{Built, quoted};

/// Number of functions that are attached at once, and one by one.
const FUNCTIONS: &str = "arm 'n*' 1000 1000";
/// Number of starts of each script, here and in a guest.
const ROUNDS: [usize; 2] = [21, 7];
/// Prints a line when everything is attached.
const SAY: &str = "probe begin { println(\"armed\") }";
/// The scripts: a name, the probes, and whether a build machine's kernel may refuse them. `LOAD` is
/// the workload program.
const SCRIPTS: [(&str, &str, bool); 5] = [
    (
        "a system call",
        "global n probe syscall.getppid { n++ }",
        false,
    ),
    (
        "markers of a program",
        "global n probe process(\"LOAD\").mark(\"*\") { n++ }",
        false,
    ),
    (
        "a function of the kernel, its parameter",
        "global n probe kernel.function(\"vfs_read\") { n += $count }",
        true,
    ),
    (
        "entry and return of a function of the kernel",
        "global n probe kernel.function(\"vfs_read\").return { if ($count == $return) n++ }",
        true,
    ),
    (
        "functions of the kernel by pattern",
        "global n probe kernel.function(\"vfs_*\") { n++ }",
        true,
    ),
];

/// The arguments of `arm start` for a script.
fn words(built: &Built, load: &Path, rounds: usize, script: &(&str, &str, bool)) -> Vec<String> {
    let (name, probes, _) = script;
    let probes = probes.replace("LOAD", &load.display().to_string());
    let spile = built.spile.display().to_string();
    let rounds = rounds.to_string();
    let words = ["start", name, &rounds, &spile, "-e", &probes, "-E", SAY];
    words.map(str::to_owned).to_vec()
}

fn program<'b>(built: &'b Built, name: &str) -> Result<&'b Path, String> {
    let found = built.programs.iter().find(|p| p.ends_with(name));
    let found = found.ok_or_else(|| format!("cargo built no {name}"))?;
    Ok(found)
}

/// The job of a guest.
pub(super) fn job(built: &Built) -> Result<String, String> {
    let load = program(built, "load")?;
    let line = |script| {
        let words = words(built, load, ROUNDS[1], script);
        let words: Vec<String> = words.iter().map(|w| quoted(w)).collect();
        format!("run arm {}\n", words.join(" "))
    };
    // Attaching one by one takes minutes.
    let scripts: String = SCRIPTS.iter().map(line).collect();
    Ok(format!("{scripts}run {FUNCTIONS}\n"))
}

/// Milliseconds by name, from the output of `arm start`.
fn times(lines: &[String]) -> Vec<(&str, f64)> {
    let time = |line: &'_ String| -> Option<(usize, f64)> {
        let (name, rest) = line.split_once(": armed in ")?;
        Some((name.len(), rest.strip_suffix(" ms")?.parse().ok()?))
    };
    let named = |line| time(line).map(|(name, ms)| (&line[..name], ms));
    lines.iter().filter_map(named).collect()
}

/// The same scripts on this machine, as far as its kernel allows; lines as in a guest.
pub(super) fn on_this_machine(built: &Built) -> Result<Vec<String>, String> {
    let (arm, load) = (program(built, "arm")?, program(built, "load")?);
    let mut lines = Vec::new();
    for script in SCRIPTS.iter().filter(|s| !s.2) {
        let out = Command::new(arm)
            .args(words(built, load, ROUNDS[0], script))
            .output()
            .map_err(|e| format!("{}: {e}", arm.display()))?;
        if !out.status.success() {
            return Err(String::from_utf8_lossy(&out.stderr).into_owned());
        }
        lines.push(String::from_utf8_lossy(&out.stdout).trim().to_owned());
    }
    Ok(lines)
}

/// The comparison of this machine's lines with a guest's.
pub(super) fn compare(here: &[String], guest: &[String]) -> String {
    let (here, guest) = (times(here), times(guest));
    let both = || {
        here.iter().filter_map(|(name, own)| {
            let (_, there) = guest.iter().find(|(n, _)| n == name)?;
            Some((*name, *own, there / own))
        })
    };
    let mut text = String::new();
    for (name, own, ratio) in both() {
        text += &format!(
            "{name}: {own:.1} ms on this machine, the guest takes {ratio:.1} times that\n"
        );
    }
    let ratios: Vec<f64> = both().map(|b| b.2).collect();
    if ratios.is_empty() {
        return text;
    }
    let ratio = ratios.iter().sum::<f64>() / ratios.len() as f64;
    for (name, time) in guest.iter().filter(|(n, _)| both().all(|b| b.0 != *n)) {
        let without = time / ratio;
        text += &format!("{name}: {time:.1} ms, by that ratio {without:.1} ms without emulation\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_to_this_machine_are_printed() {
        let lines = |text: &[&str]| text.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
        let here = lines(&["a: armed in 10.0 ms"]);
        let guest = lines(&["=== noise", "a: armed in 50.0 ms", "k: armed in 100.0 ms"]);
        let text = compare(&here, &guest);
        assert!(text.contains("a: 10.0 ms on this machine, the guest takes 5.0 times that"));
        assert!(text.contains("k: 100.0 ms, by that ratio 20.0 ms without emulation"));
    }
}
