//! The cost of counting system calls for a web server: requests a second of nginx on loopback,
//! untraced, under an empty BPF program (the kernel's own cost), and under each tool, in turns.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::peers::{Armed, Tool, output};
use crate::{Empty, bpftrace_tool, median, named, report, spile};

/// Default number of rounds; `SPILE_ROUNDS` overrides it.
const ROUNDS: usize = 20;
/// Duration of each measurement in seconds.
const SECONDS: &str = "1";
/// Number of open connections.
const CONNECTIONS: &str = "16";
/// Wait until tools are armed: they have no common sign, and all take less than this.
const ARMED: Duration = Duration::from_millis(1500);
/// Time limit for nginx's first answer.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A process that is killed on drop.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Measures.
pub(crate) fn run() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_server, url) = match serve(dir.path()) {
        Ok(served) => served,
        Err(e) => return eprintln!("nginx: {e}; Debian has both: apt install nginx-light wrk"),
    };
    let sleeper = Command::new("sleep").arg("100000").spawn();
    let sleeper = Ended(sleeper.expect("sleep runs"));
    let tools = tools(&sleeper.0.id().to_string());
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); tools.len() + 2];
    let mut problems = Vec::new();
    // The first requests of server and client are slower.
    let _ = requests(&url);
    let asked = std::env::var("SPILE_ROUNDS").ok();
    let rounds = asked.and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    for _ in 0..rounds {
        rates[0].extend(requests(&url));
        if let Some(_empty) = Empty::attach() {
            rates[1].extend(requests(&url));
        }
        for (tool, rates) in tools.iter().zip(&mut rates[2..]) {
            if !tool.installed() {
                continue;
            }
            match with_tracefs(tool).start() {
                Ok(running) => {
                    rates.extend(requests(&url));
                    running.stop();
                }
                Err(e) => problems.push(e),
            }
        }
    }
    report(problems);
    table(&tools, &rates);
}

/// The tools; every second one only counts the calls of another process.
fn tools(other: &str) -> Vec<Tool> {
    let quiet = |tool: Tool, name: &str| Tool {
        armed: Armed::After(ARMED),
        ..named(tool, name)
    };
    // bpfcc has a program of the same name in Python, which Debian calls syscount-bpfcc.
    let libbpf = |args: &[&str]| {
        let mut argv = vec!["/usr/sbin/syscount"];
        argv.extend(args);
        Tool::new("", &argv, "")
    };
    let all = "tracepoint:raw_syscalls:sys_enter { @[args->id] = count(); }";
    let filtered =
        format!("tracepoint:raw_syscalls:sys_enter /pid == {other}/ {{ @[args->id] = count(); }}");
    vec![
        quiet(spile(&["syscount"]), "spile syscount"),
        quiet(spile(&["syscount", "-p", other]), "spile syscount -p other"),
        quiet(libbpf(&[]), "libbpf-tools syscount"),
        quiet(libbpf(&["-p", other]), "libbpf-tools syscount -p other"),
        quiet(bpftrace_tool("", all), "bpftrace"),
        quiet(bpftrace_tool("", &filtered), "bpftrace /pid == other/"),
    ]
}

/// Wraps a tool so that it finds tracefs, which the peers need. If the machine has not mounted it, it is
/// mounted for the tool only.
fn with_tracefs(tool: &Tool) -> Tool {
    if Path::new("/sys/kernel/tracing/events").exists() {
        return tool.clone();
    }
    let mount = "mount -t tracefs none /sys/kernel/tracing; mount -t debugfs none /sys/kernel/debug; \
                 exec \"$@\"";
    let wrapped = ["unshare", "-m", "sh", "-c", mount, "sh"].map(String::from);
    Tool {
        argv: wrapped.into_iter().chain(tool.argv.clone()).collect(),
        ..tool.clone()
    }
}

/// Starts nginx with one worker, on a processor of its own if there are several; returns its
/// address.
fn serve(dir: &Path) -> Result<(Ended, String), String> {
    let socket = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let port = socket.local_addr().map_err(|e| e.to_string())?.port();
    drop(socket);
    let location = dir.display();
    let page = "<html><body>".to_owned() + &"spile ".repeat(100) + "</body></html>\n";
    std::fs::write(dir.join("index.html"), page).map_err(|e| e.to_string())?;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {location}/{kind};\n"))
        .concat();
    let config = format!(
        "user root;\nworker_processes 1;\nworker_cpu_affinity auto;\ndaemon off;\npid {location}/pid;\n\
         error_log {location}/error.log;\nevents {{ worker_connections 256; }}\n\
         http {{\naccess_log off;\nkeepalive_requests 1000000000;\n{temporary}\
         server {{ listen 127.0.0.1:{port}; root {location}; }}\n}}\n"
    );
    let file = dir.join("nginx.conf");
    std::fs::write(&file, config).map_err(|e| e.to_string())?;
    let child = Command::new("nginx")
        .arg("-c")
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let server = Ended(child.map_err(|e| e.to_string())?);
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if begin.elapsed() > START_LIMIT {
            let log = std::fs::read_to_string(dir.join("error.log")).unwrap_or_default();
            return Err(format!("does not answer\n{log}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((server, format!("http://127.0.0.1:{port}/index.html")))
}

/// Requests a second as measured by wrk.
fn requests(url: &str) -> Option<f64> {
    let last = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
    let mut wrk = Command::new("taskset");
    wrk.args(["-c", &last.to_string(), "wrk", "-t", "1", "-c", CONNECTIONS])
        .args(["-d", SECONDS, url]);
    let text = output(wrk, Duration::from_secs(30));
    let rate = text.lines().find_map(|l| l.strip_prefix("Requests/sec:"))?;
    rate.trim().parse().ok()
}

fn table(tools: &[Tool], rates: &[Vec<f64>]) {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let deviation = |v: &[f64]| {
        let middle = mean(v);
        let squares = v.iter().map(|x| (x - middle).powi(2)).sum::<f64>();
        (squares / (v.len() as f64 - 1.0)).sqrt()
    };
    let plain = median(rates[0].clone());
    // Ratio to the untraced rate of the same round, which slow changes of the machine do not
    // affect.
    let paired = |v: &[f64]| median(v.iter().zip(&rates[0]).map(|(x, of)| x / of).collect());
    println!(
        "nginx on loopback, {} rounds of {SECONDS} s: requests a second",
        rates[0].len()
    );
    println!(
        "{:<32} {:>9} {:>9} {:>8} {:>10} {:>13}",
        "", "mean", "median", "stdev", "of plain", "in its round"
    );
    let names = ["untraced", "an empty program at sys_enter"]
        .into_iter()
        .chain(tools.iter().map(|t| &*t.name));
    for (name, rates) in names.zip(rates) {
        if rates.is_empty() {
            println!("{name:<32} not installed, or does not run here");
            continue;
        }
        let middle = median(rates.clone());
        println!(
            "{name:<32} {:>9.0} {middle:>9.0} {:>8.0} {:>9.1}% {:>12.1}%",
            mean(rates),
            deviation(rates),
            100.0 * middle / plain,
            100.0 * paired(rates)
        );
    }
    for (what, ours, theirs) in [("all processes", 2, 4), ("another process", 3, 5)] {
        if rates[ours].is_empty() || rates[theirs].is_empty() {
            continue;
        }
        let loss = |v: &[f64]| 1.0 - paired(v);
        if loss(&rates[theirs]) <= 0.0 {
            println!(
                "{what}: no loss under libbpf-tools' syscount; the machine is too busy to tell"
            );
            continue;
        }
        let gone = 100.0 * (1.0 - loss(&rates[ours]) / loss(&rates[theirs]));
        println!("{what}: {gone:.0}% less loss than under libbpf-tools' syscount");
    }
}
