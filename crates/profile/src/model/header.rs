//! What a file says of its recording before the first row.

use serde::{Deserialize, Serialize};

use super::{FORMAT, VERSION};
use crate::interpreter::Interpreter;

/// The recorded command, location and options: the first line of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Id of the run, equal in all its files and unique: the launcher's job number and step if
    /// there is one, otherwise made from host, process and start.
    pub run: String,
    /// The machine's name (the node), as in `uname -n`.
    pub host: String,
    /// The kernel's release.
    #[serde(default)]
    pub kernel: String,
    /// The processor's architecture, as in `uname -m`.
    #[serde(default)]
    pub arch: String,
    /// Number of online processors.
    #[serde(default)]
    pub cpus: u32,
    /// The version of spile that wrote the file.
    #[serde(default)]
    pub spile: String,
    /// The command and its arguments; empty where a running process or a machine was recorded.
    #[serde(default)]
    pub command: Vec<String>,
    /// The command's first process, or the process that was attached to.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The control group or the container whose processes were recorded, with its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The start of the recording in nanoseconds since 1970 (UTC): the origin of all points in
    /// time.
    pub started_unix_ns: u64,
    /// The rank of the command, if a launcher started it.
    #[serde(default)]
    pub rank: Option<Rank>,
    /// The options of the recording.
    #[serde(default)]
    pub options: Options,
    /// Why regions are missing, if the options did not exclude them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions_missing: Option<String>,
    /// Whether the program uses no library that has regions, so that reports need not say why they
    /// are missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub regions_unlikely: bool,
}

impl Default for Header {
    fn default() -> Header {
        Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            run: String::new(),
            host: String::new(),
            kernel: String::new(),
            arch: String::new(),
            cpus: 0,
            spile: String::new(),
            command: Vec::new(),
            pid: None,
            group: None,
            started_unix_ns: 0,
            rank: None,
            options: Options::default(),
            regions_missing: None,
            regions_unlikely: false,
        }
    }
}

impl Header {
    /// Whether regions were recorded.
    #[must_use]
    pub fn has_regions(&self) -> bool {
        !self.options.no_regions && self.regions_missing.is_none()
    }

    /// The command, quoted for a shell.
    pub fn command_line(&self) -> String {
        let words = || self.command.iter().map(String::as_str);
        // (A shell cannot take NUL, and a command cannot contain it.)
        shlex::try_join(words()).unwrap_or_else(|_| self.command.join(" "))
    }
}

/// The options of a recording. If an option is false, an empty list of its rows says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// [`Stack`] rows.
    pub stacks: bool,
    /// [`Sample`] rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<SampleRate>,
    /// [`TimedEvent`] rows.
    pub trace: bool,
    /// [`CallTotals::histogram`].
    pub histograms: bool,
    /// [`Futex`] rows.
    pub futexes: bool,
    /// The whole machine, instead of a command and its descendants.
    pub system: bool,
    /// The library that reports regions was not loaded.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_regions: bool,
    /// Interpreters whose functions are in stacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interpreters: Vec<Interpreter>,
    /// [`EventCount`] rows, of these events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<CountedEvent>,
}

impl Options {
    /// The options as on the command line.
    pub fn names(&self) -> Vec<&'static str> {
        let options = [
            ("--stacks", self.stacks),
            ("--trace", self.trace),
            ("--latency", self.histograms),
            ("--futexes", self.futexes),
            ("--system", self.system),
            ("--no-regions", self.no_regions),
            ("--no-samples", self.samples.is_none() && !self.system),
        ];
        let asked = options.into_iter().filter(|(_, asked)| *asked);
        asked.map(|(name, _)| name).collect()
    }
}

/// How running threads are sampled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleRate {
    /// The event whose counts trigger samples, such as "cpu-clock".
    pub event: String,
    /// Samples a second of a thread that runs.
    pub hz: u32,
}

/// An event of the processor or the kernel that is counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedEvent {
    /// Its name, such as "page-faults".
    pub event: String,
    /// Number of events for which there is one sample.
    pub period: u64,
}

/// The rank of a command that a launcher of parallel programs started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// Counted from 0 over the whole job.
    pub rank: u32,
    /// Number of ranks of the job, if the launcher gives it.
    #[serde(default)]
    pub size: Option<u32>,
    /// Counted from 0 on this node.
    #[serde(default)]
    pub local_rank: Option<u32>,
    /// Number of ranks on this node.
    #[serde(default)]
    pub local_size: Option<u32>,
    /// The launcher whose variables gave the rank.
    pub launcher: Launcher,
    /// The scheduler's or launcher's number of the job, with its step.
    #[serde(default)]
    pub job: Option<String>,
}

/// A launcher of parallel programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// Named by `OMPI_COMM_WORLD_RANK`.
    OpenMpi,
    /// Named by `PMIX_RANK`.
    Pmix,
    /// Named by `PMI_RANK`.
    Mpich,
    /// Named by `SLURM_PROCID`.
    Slurm,
}
