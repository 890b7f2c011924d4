//! One guest under qemu. Its first serial line is the console, which is kept for errors; its second
//! has the results of tests, which are written out at the end.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::packages::Kernel;

/// The kind of emulation: all processors in one thread. A thread for each is no faster here, and
/// qemu 7.2 then lets one processor run stale code that another has just replaced, as kernels do
/// with jump labels: one guest in six died of a breakpoint that was already removed.
const EMULATION: &str = "tcg,thread=single";
/// Memory in MB besides the image and its unpacked content.
const MEMORY: usize = 1400;
/// Memory in MB of a second node, which has no processors. No page goes there that does not ask for it.
const SECOND_NODE: usize = 128;
/// Maximum time without output from a guest: longer than the longest case may take.
const SILENCE: Duration = Duration::from_secs(4000);
/// Maximum time to power off after the last output.
const FAREWELL: Duration = Duration::from_secs(30);
/// The emulated processor. qemu 7.2 can lose the flags at a `cmpxchg16b`, after which the kernel
/// traps (6.12 within seconds); without it Linux 7 has no task storage of BPF programs. Five-level
/// page tables only cost time.
const PROCESSOR: &str = "max,-cx16,-la57";
/// Number of console lines that are shown when a guest dies or hangs.
const TAIL: usize = 60;

/// The kernel's parameters: few messages, and an oops ends it. The check that timers tick is off:
/// an emulated timer is too late for it on a loaded machine.
const KERNEL_LINE: &str = "console=ttyS0 loglevel=4 panic=-1 oops=panic nowatchdog no_timer_check random.trust_cpu=on numa_balancing=disable";

/// Boots a kernel with an image; returns the lines of its results. An error if a test fails, or the
/// guest does not finish. Results are written as they come, or all at the end if other guests run
/// at the same time.
pub(super) fn run(kernel: &Kernel, image: &[u8], alone: bool) -> Result<Vec<String>, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let initrd = dir.path().join("image");
    let console = dir.path().join("console");
    fs::write(&initrd, image).map_err(|e| format!("{}: {e}", initrd.display()))?;
    let memory = MEMORY + 2 * (image.len() >> 20);
    let total = format!("{}M", memory + SECOND_NODE);
    let ram = |node, size| format!("memory-backend-ram,id=memory{node},size={size}M");
    let mut child = Command::new("qemu-system-x86_64")
        .args([
            "-accel", EMULATION, "-cpu", PROCESSOR, "-smp", "2", "-m", &total,
        ])
        .args(["-object", &ram(0, memory), "-object", &ram(1, SECOND_NODE)])
        .args(["-numa", "node,nodeid=0,cpus=0-1,memdev=memory0"])
        .args(["-numa", "node,nodeid=1,memdev=memory1"])
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        .args(["-append", KERNEL_LINE])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(&initrd)
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .args(["-serial", "stdio"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("qemu-system-x86_64: {e}; install qemu-system-x86"))?;
    let start = Instant::now();
    let (lines, end) = listen(&mut child, alone);
    let status = lines
        .iter()
        .find_map(|l| l.strip_prefix("spile-vm: ended "))
        .map(str::to_owned);
    match end {
        End::Closed => drop(child.wait()),
        End::Silent => {
            // It hangs, and no other process waits for it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
    let seconds = start.elapsed().as_secs();
    let mut text = format!("=== kernel {} ({seconds} s)\n", kernel.release);
    for line in lines.iter().filter(|_| !alone) {
        text += line;
        text.push('\n');
    }
    let result = match (status.as_deref(), end) {
        (Some("0"), _) => Ok(lines),
        (Some(_), _) => Err(format!("tests failed\n{}", failures(&lines))),
        (None, End::Silent) => Err(format!("the guest hangs\n{}", tail(&console))),
        (None, End::Closed) => Err(format!("the guest died\n{}", tail(&console))),
    };
    // One write, so that output of concurrent guests is not mixed.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    result
}

/// The output about failed tests, to be repeated at the end.
fn failures(lines: &[String]) -> String {
    let mut text = String::new();
    let mut within = false;
    for line in lines {
        within = (within || line == "failures:") && !line.starts_with("test result:");
        if within {
            text += line;
            text.push('\n');
        }
    }
    text
}

/// The end of a guest's results.
#[derive(Clone, Copy)]
enum End {
    Closed,
    Silent,
}

/// The lines of results, until the guest closes the connection or is silent for too long.
fn listen(child: &mut Child, alone: bool) -> (Vec<String>, End) {
    let Some(out) = child.stdout.take() else {
        return (Vec::new(), End::Closed);
    };
    let (send, receive) = channel();
    // The thread ends with the guest, whose pipe it reads.
    std::thread::spawn(move || {
        for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line)
                .trim_end_matches('\r')
                .to_owned();
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let mut lines = Vec::new();
    let mut timeout = SILENCE;
    loop {
        match receive.recv_timeout(timeout) {
            Ok(line) => {
                if line.starts_with("spile-vm: ended ") {
                    timeout = FAREWELL;
                }
                if alone {
                    println!("{line}");
                }
                lines.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => return (lines, End::Closed),
            Err(RecvTimeoutError::Timeout) => return (lines, End::Silent),
        }
    }
}

/// The end of the console's text.
fn tail(console: &Path) -> String {
    let bytes = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL);
    format!("--- its console ends with\n{}", lines[from..].join("\n"))
}
