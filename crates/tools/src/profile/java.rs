//! Names of the code that Java compiles, which the virtual machine writes to `/tmp/perf-PID.map` on request
//! (JDK 17 or later).

use std::collections::{BTreeSet, HashSet};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use spile_kernel::process;
use spile_profile::model::{Frame, Snapshot};

/// What makes virtual machines write the names at their end, and compile code whose stacks can be unwound.
const OPTIONS: &str =
    "-XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit -XX:+PreserveFramePointer";
/// The time that a running virtual machine has for its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The command with the options for Java in its environment.
pub(super) fn with_options(command: &[String]) -> Vec<String> {
    let given = std::env::var("JAVA_TOOL_OPTIONS").unwrap_or_default();
    let options = format!("JAVA_TOOL_OPTIONS={given} {OPTIONS}");
    let words = ["env".to_owned(), options].into_iter();
    words.chain(command.iter().cloned()).collect()
}

/// Asks the virtual machines among processes to write their names.
pub(super) fn request_names(processes: BTreeSet<u32>) {
    for pid in processes {
        let mappings = process::mappings(pid).unwrap_or_default();
        if mappings.iter().any(|m| m.path.ends_with("/libjvm.so")) {
            request_names_of(pid);
        }
    }
}

fn request_names_of(pid: u32) {
    let mut command = Command::new("jcmd");
    command.args([&pid.to_string(), "Compiler.perfmap"]);
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(mut child) = quiet.spawn() else {
        return;
    };
    let start = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The samples in generated code without names, of processes of Java and of others.
pub(super) fn unnamed(data: &Snapshot) -> [u64; 2] {
    let of_java = |f: &Frame| f.module.as_ref().is_some_and(|m| m == "libjvm.so");
    let is_unnamed = |f: &Frame| f.module.is_none() && f.function.starts_with("0x");
    let samples = || data.samples.iter();
    let java: HashSet<u32> = samples()
        .filter(|s| s.frames.iter().any(of_java))
        .map(|s| s.tid)
        .collect();
    let mut counts = [0; 2];
    for sample in samples().filter(|s| s.frames.first().is_some_and(is_unnamed)) {
        counts[usize::from(!java.contains(&sample.tid))] += sample.count;
    }
    counts
}

#[cfg(test)]
mod tests {
    use spile_profile::model::{Sample, StackFrame};

    use super::*;

    #[test]
    fn samples_without_names_are_counted_by_who_compiled_the_code() {
        let sample = |tid, names: &[&str]| Sample {
            tid,
            frames: names
                .iter()
                .map(|name| {
                    let (function, module) = name.split_once('@').unwrap_or((name, ""));
                    Frame::new(StackFrame {
                        function: function.into(),
                        module: (!module.is_empty()).then(|| module.into()),
                        ..StackFrame::default()
                    })
                })
                .collect(),
            count: 3,
            ..Sample::default()
        };
        let data = Snapshot {
            samples: vec![
                sample(1, &["0x7f00", "call@libjvm.so"]),
                sample(1, &["0x7f10"]),
                sample(1, &["C.f"]),
                sample(2, &["0x7f00"]),
                sample(2, &["0x1234@stripped"]),
            ],
            ..Snapshot::default()
        };
        assert_eq!(unnamed(&data), [6, 3]);
    }
}
