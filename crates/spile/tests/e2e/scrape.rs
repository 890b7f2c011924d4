//! Scrapes metrics over HTTP and reads them with the parser of Prometheus' own Python client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for the expected samples to appear.
const PATIENCE: Duration = Duration::from_secs(120);

/// Prints a line for each sample.
const PARSER: &str = r#"
import sys
from prometheus_client.parser import text_string_to_metric_families as parse
for family in parse(sys.stdin.read()):
    for s in family.samples:
        labels = ",".join('%s="%s"' % pair for pair in s.labels.items())
        print("%s{%s} %.10g" % (s.name, labels, s.value))
"#;

/// Pythons that may have the parser: the distribution's own first.
const PYTHONS: [&str; 2] = ["/usr/bin/python3", "python3"];

/// Scrapes until all patterns match the samples. `stderr` has the address, and has to match `after`
/// before the first scrape.
pub(crate) fn until(
    patterns: &[String],
    after: Option<&str>,
    stderr: &dyn Fn() -> String,
) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    let mut last = "no address was announced".to_owned();
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
        let said = stderr();
        let Some(addr) = address(&said) else {
            continue;
        };
        if !after.map_or(Ok(true), |p| crate::matches(p, &said))? {
            continue;
        }
        let samples = parse(&get(&addr)?)?;
        let missing = patterns
            .iter()
            .map(|p| Ok((p, crate::matches(p, &samples)?)))
            .collect::<Result<Vec<_>, String>>()?
            .into_iter()
            .find(|(_, found)| !found);
        match missing {
            None => return Ok(()),
            Some((p, _)) => last = format!("the metrics lack /{p}/:\n{samples}"),
        }
    }
    Err(last)
}

fn address(stderr: &str) -> Option<String> {
    let (_, rest) = stderr.split_once("http://")?;
    Some(rest.split_once("/metrics")?.0.to_owned())
}

/// The body of a response, which has to be a success.
fn get(addr: &str) -> Result<String, String> {
    let ask = || -> std::io::Result<String> {
        let mut socket = TcpStream::connect(addr)?;
        socket.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {addr}\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|e| format!("{addr}: {e}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no end of the head")?;
    let version = "Content-Type: text/plain; version=0.0.4";
    if !head.starts_with("HTTP/1.1 200 OK") || !head.contains(version) {
        return Err(format!("not a good answer: {head}"));
    }
    Ok(body.to_owned())
}

/// The samples, one on each line.
fn parse(body: &str) -> Result<String, String> {
    let mut why = String::new();
    for python in PYTHONS {
        let child = Command::new(python)
            .args(["-c", PARSER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else { continue };
        let mut stdin = child.stdin.take().ok_or("no pipe")?;
        // A Python without the parser ends at once.
        let _ = stdin.write_all(body.as_bytes());
        drop(stdin);
        let out = child.wait_with_output().map_err(|e| e.to_string())?;
        if out.status.success() {
            return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
        }
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        if !text.contains("ModuleNotFoundError") {
            return Err(format!("the parser refused it: {text}\n{body}"));
        }
        why = text;
    }
    Err(format!(
        "no parser (install python3-prometheus-client): {why}"
    ))
}
