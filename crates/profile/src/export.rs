//! Exports: profiles in the formats of other tools. In the tests each format's own reader reads
//! them (`crates/profile/tests/readers`).

mod chrome;
mod files;
mod firefox;
mod hatchet;
mod location;
mod otf2;
mod otlp;
mod pprof;
mod stacks;
mod table;
mod tau;

use std::fmt;

use crate::run::Run;

pub use files::ExportFiles;

/// A format.
#[derive(Debug)]
pub struct ExportFormat {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description in one line.
    pub what: &'static str,
    /// Whether it consists of several files.
    pub folder: bool,
    /// Whether it needs a trace.
    pub trace: bool,
    make: fn(&Run) -> ExportFiles,
}

/// All formats.
pub const FORMATS: [ExportFormat; 10] = [
    ExportFormat {
        name: "tau",
        what: "a folder of TAU's profiles, with call paths",
        folder: true,
        trace: false,
        make: tau::export,
    },
    ExportFormat {
        name: "hatchet",
        what: "JSON for Hatchet's from_json; times in nanoseconds",
        folder: false,
        trace: false,
        make: hatchet::json,
    },
    ExportFormat {
        name: "hatchet-literal",
        what: "JSON for Hatchet's from_literal; times in nanoseconds",
        folder: false,
        trace: false,
        make: hatchet::literal,
    },
    ExportFormat {
        name: "pprof",
        what: "for `go tool pprof` and similar tools",
        folder: false,
        trace: false,
        make: pprof::export,
    },
    ExportFormat {
        name: "folded",
        what: "one line for each call path with its nanoseconds, for flame graphs",
        folder: false,
        trace: false,
        make: stacks::folded,
    },
    ExportFormat {
        name: "speedscope",
        what: "JSON for speedscope",
        folder: false,
        trace: false,
        make: stacks::speedscope,
    },
    ExportFormat {
        name: "firefox",
        what: "JSON for the Firefox profiler",
        folder: false,
        trace: false,
        make: firefox::export,
    },
    ExportFormat {
        name: "otlp",
        what: "OpenTelemetry's profiles, a message of its protocol",
        folder: false,
        trace: false,
        make: otlp::export,
    },
    ExportFormat {
        name: "chrome",
        what: "trace events as JSON, for Perfetto and Chromium; needs a recording with a trace",
        folder: false,
        trace: true,
        make: chrome::export,
    },
    ExportFormat {
        name: "otf2",
        what: "a folder of an OTF2 archive, for Vampir and similar tools; needs a recording with a trace",
        folder: true,
        trace: true,
        make: otf2::export,
    },
];

/// The error of an export that needs a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoTrace;

impl fmt::Display for NoTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the recording has no trace: record with --trace")
    }
}

impl ExportFormat {
    /// The format of that name.
    pub fn named(name: &str) -> Option<&'static ExportFormat> {
        FORMATS.iter().find(|f| f.name == name)
    }

    /// Makes the files.
    ///
    /// # Errors
    /// A format that needs a trace, and a run without one.
    pub fn export(&self, run: &Run) -> Result<ExportFiles, NoTrace> {
        if self.trace && run.profiles.iter().all(|p| p.events.is_empty()) {
            return Err(NoTrace);
        }
        Ok((self.make)(run))
    }
}
