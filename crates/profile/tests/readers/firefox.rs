//! The Firefox profiler's own command line. A server of its holds the profile, the commands ask it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::tools::{output, tools};

/// A profile that was read.
pub(crate) struct Firefox {
    folder: tempfile::TempDir,
}

impl Firefox {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Firefox {
        let folder = tempfile::tempdir().expect("a folder");
        let firefox = Firefox { folder };
        // It reports a failure if the server starts slowly, as it does on a busy machine.
        let out = firefox.command(&["load"]).arg(path).output();
        let said = out.expect("node (`make deps` installs it)").stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(said.is_empty() || said.contains("still starting"), "{said}");
        loop {
            let out = firefox.command(&["status"]).output().expect("node");
            if out.status.success() {
                break;
            }
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(!said.contains("failed"), "{said}");
            std::thread::sleep(Duration::from_millis(100));
        }
        firefox
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("node");
        command.arg(&tools().firefox).args(args);
        command.env("PROFILER_CLI_SESSION_DIR", self.folder.path());
        command
    }

    /// The answer to a command.
    pub(crate) fn ask(&self, args: &[&str]) -> Value {
        let text = output(self.command(args).arg("--json"));
        serde_json::from_str(&text).expect("JSON")
    }

    /// The names of its threads, with their handles.
    pub(crate) fn threads(&self) -> Vec<(String, String)> {
        let list = self.ask(&["thread", "list"]);
        let rows = list["threads"].as_array().expect("threads").iter();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        rows.map(|row| (text(&row["name"]), text(&row["threadHandle"])))
            .collect()
    }

    /// The markers of a thread: their names and lengths in nanoseconds.
    pub(crate) fn markers(&self, handle: &str) -> Vec<(String, u64)> {
        let list = self.ask(&["thread", "markers", "--list", "--thread", handle]);
        let row = |row: &Value| {
            let name = row["name"].as_str().expect("text").to_owned();
            (name, ns(&row["duration"]))
        };
        let rows = list["flatMarkers"].as_array();
        rows.into_iter().flatten().map(row).collect()
    }

    /// The functions of a thread by their names with binaries: their own time and that with the
    /// functions that they called, in nanoseconds.
    pub(crate) fn functions(&self, handle: &str) -> Vec<(String, u64, u64)> {
        let command = ["thread", "functions", "--include-idle", "--thread", handle];
        let list = self.ask(&command);
        assert_eq!(list["weightType"], "tracing-ms");
        let row = |row: &Value| {
            let name = row["nameWithLibrary"].as_str().expect("text").to_owned();
            (name, ns(&row["selfSamples"]), ns(&row["totalSamples"]))
        };
        let rows = list["functions"].as_array().expect("functions");
        rows.iter().map(row).collect()
    }
}

/// Milliseconds in nanoseconds.
fn ns(value: &Value) -> u64 {
    (value.as_f64().expect("a number") * 1e6).round() as u64
}

impl Drop for Firefox {
    fn drop(&mut self) {
        let _ = self.command(&["stop"]).output();
    }
}
