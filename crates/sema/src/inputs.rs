//! The input of analysis.

use spile_syntax::ast::{FileId, LiteralBytes};
use spile_syntax::diag::Diagnostics;
use spile_syntax::source::Sources;

use crate::facts::Facts;
use crate::ids::UserIds;
use crate::library::Library;
use crate::probe::ProbeHandler;

/// Settings from the command line.
#[derive(Debug, Clone)]
pub struct AnalysisOptions {
    /// `-D NAME=VALUE`, in order.
    pub defines: Vec<(String, String)>,
    /// `-G NAME=VALUE`, in order.
    pub globals: Vec<(String, String)>,
    /// Globals that are written and never read print themselves at the end.
    pub display: bool,
    /// `--suppress-time-limits`: no MAXACTION.
    pub no_time_limits: bool,
    /// Name of the session: `-m`.
    pub session_name: String,
    /// `--skip-badvars`: missing variables and unreadable memory are 0.
    pub skip_badvars: bool,
    /// `-g`: verdicts take effect, so packets can be dropped.
    pub guru: bool,
    /// Statements whose values nobody uses are analysed, and can fail (`-u`, editors).
    pub keep_unused: bool,
    /// `--check-version`: functions of earlier releases of SystemTap are warnings.
    pub check_version: bool,
    /// `-t`: a probe without effect still has its hits counted.
    pub counts_hits: bool,
    /// Process id of the session.
    pub session_pid: i64,
    /// User id of the session.
    pub session_uid: i64,
    /// Inode number of the PID namespace of the numbers that `ns_pid()` and similar functions give.
    pub target_pidns: i64,
    /// The user namespace of the numbers that `ns_uid()` and similar functions give.
    pub target_users: UserIds,
}

impl Default for AnalysisOptions {
    fn default() -> Self {
        AnalysisOptions {
            defines: Vec::new(),
            globals: Vec::new(),
            display: true,
            no_time_limits: false,
            session_name: "spile".into(),
            skip_badvars: false,
            guru: false,
            keep_unused: false,
            check_version: false,
            counts_hits: false,
            session_pid: 0,
            session_uid: 0,
            target_pidns: 0,
            target_users: UserIds::default(),
        }
    }
}

/// The input of analysis.
pub struct Inputs<'a> {
    /// The user's and the library's files, indexed.
    pub library: &'a Library,
    /// The texts of the files, for the locations that run-time errors name.
    pub sources: &'a Sources,
    /// The machine.
    pub facts: &'a dyn Facts,
    /// Constant tables by name: `errno`, `signal`; entry `i` is the string for `i`. The names of
    /// system calls come from `facts`.
    pub tables: &'a dyn Fn(&str) -> Option<Vec<LiteralBytes>>,
    /// The settings of the run.
    pub options: &'a AnalysisOptions,
}

/// Resolves the points of a library file's probes.
pub type ResolvePoints<'a> = dyn FnMut(FileId, &mut Diagnostics) -> Vec<ProbeHandler> + 'a;
