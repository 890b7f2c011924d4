//! The command line: `stap`'s options with their meanings unchanged, some options of spile's own, and the
//! subcommands. A subcommand is recognised only as the first argument (`./fmt` is a file).

use std::path::PathBuf;

use clap::Parser;
use spile_ir::HostKind;
use spile_runtime::io::series::SeriesLimits;

/// Runs SystemTap scripts on the live kernel by compiling them straight to eBPF.
#[derive(Debug, Parser, Default)]
#[command(
    name = "spile",
    disable_version_flag = true,
    override_usage = "spile [OPTIONS] FILE [ARGS]...\n       spile [OPTIONS] -e SCRIPT [ARGS]...\n       spile [OPTIONS] -l|-L PATTERN\n       spile fmt [--check] [FILE]...\n       spile lsp\n       spile attach|stop [PID]\n       spile report [OPTIONS] FILE|DIR...\n       spile diff A B\n       spile syscount [OPTIONS]\n       spile profile [OPTIONS] [--] CMD [ARGS]...",
    after_help = "FILE can be - for standard input. ARGS become $1, @1, ... in the script.\n\
                  Options can stand before or after FILE; -- ends them."
)]
pub(crate) struct Cli {
    /// Run this script instead of a file
    #[arg(short = 'e', value_name = "SCRIPT")]
    pub script: Option<String>,
    /// Also run this script (repeatable)
    #[arg(short = 'E', value_name = "SCRIPT")]
    pub extra: Vec<String>,
    /// Start CMD when the probes are armed, and end when it ends; target() is its PID
    #[arg(short = 'c', value_name = "CMD", conflicts_with = "pid")]
    pub command: Option<String>,
    /// Write the script at a prompt, and run it from there (`help` shows the commands)
    #[arg(short = 'i', long)]
    pub interactive: bool,
    /// Set target() to PID
    #[arg(short = 'x', value_name = "PID")]
    pub pid: Option<u32>,
    /// End after SECS seconds
    #[arg(short = 'T', value_name = "SECS")]
    pub timeout: Option<f64>,
    /// Print details: passes with their times, storage of globals (repeatable)
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Print details of single passes: a digit for each pass, 0 for none
    #[arg(long, value_name = "ABCDE", value_parser = digits)]
    pub vp: Vec<String>,
    /// Report hits and times of each probe at the end
    #[arg(short = 't')]
    pub timing: bool,
    /// Write the output to FILE (the name may contain % forms of strftime)
    #[arg(short = 'o', value_name = "FILE")]
    pub output: Option<String>,
    /// Find the script FILE by its name among the installed examples of spile and SystemTap
    #[arg(long)]
    pub example: bool,
    /// Run the session in the background, and print its PID; without -o, `spile attach` shows its output
    #[arg(short = 'F')]
    pub background: bool,
    /// Continue the output of -o in another file after SIZE megabytes, and keep the last N files
    #[arg(short = 'S', value_name = "SIZE[,N]", requires = "output", value_parser = series)]
    pub series: Option<SeriesLimits>,
    /// Stop after pass N: 1 parse, 2 analyse, 3 translate, 4 compile, 5 run
    #[arg(short = 'p', value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub pass: Option<u8>,
    /// List the probe points that match PATTERN
    #[arg(short = 'l', value_name = "PATTERN")]
    pub list: Option<String>,
    /// List the probe points that match PATTERN, with their variables
    #[arg(short = 'L', value_name = "PATTERN", conflicts_with = "list")]
    pub list_vars: Option<String>,
    /// Set the initial value of the global variable VAR
    #[arg(short = 'G', value_name = "VAR=VALUE")]
    pub globals: Vec<String>,
    /// Set a limit, e.g. MAXMAPENTRIES=10000
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    pub defines: Vec<String>,
    /// Also look for tapset files in DIR (repeatable)
    #[arg(short = 'I', value_name = "DIR")]
    pub include: Vec<PathBuf>,
    /// Use the namespaces of process PID, for paths of programs and for functions like ns_pid()
    #[arg(long, value_name = "PID")]
    pub target_namespaces: Option<u32>,
    /// Look up programs, libraries, their debugging information and the kernel of -r below DIR
    #[arg(long, value_name = "DIR", conflicts_with = "target_namespaces")]
    pub sysroot: Option<PathBuf>,
    /// Set the size of the output buffer in megabytes
    #[arg(short = 's', value_name = "MB", value_parser = clap::value_parser!(u32).range(1..=2048))]
    pub buffer_mb: Option<u32>,
    /// Run handlers in the kernel, or in the target's process, which needs no privilege; by default in the kernel where the user may
    #[arg(
        long,
        value_name = "HOST",
        default_value = "auto",
        hide_default_value = true
    )]
    pub runtime: Runtime,
    /// Enable guru mode
    #[arg(short = 'g')]
    pub guru: bool,
    /// Compile for the kernel of this release or build folder (a kernel that is not running: -p4 at most)
    #[arg(short = 'r', value_name = "DIR|RELEASE")]
    pub release: Option<String>,
    /// Also look up symbols and stacks in this program or library (repeatable)
    #[arg(short = 'd', value_name = "FILE")]
    pub objects: Vec<PathBuf>,
    /// Do not optimise
    #[arg(short = 'u')]
    pub unoptimised: bool,
    /// Suppress warnings
    #[arg(short = 'w')]
    pub no_warnings: bool,
    /// Treat warnings as errors
    #[arg(short = 'W')]
    pub warnings_are_errors: bool,
    /// Print the version
    #[arg(short = 'V', long = "version")]
    pub version: bool,
    /// Save the compiled object as NAME.bpf.o in the current directory
    #[arg(short = 'k')]
    pub keep: bool,
    /// Compile and print the code of a stage: functions with virtual registers, or instructions
    #[arg(long, value_name = "STAGE", conflicts_with_all = ["pass", "keep"])]
    pub dump: Option<Stage>,
    /// Name the compiled object NAME
    #[arg(short = 'm', value_name = "NAME", value_parser = module_name)]
    pub module: Option<String>,
    /// Serve `prometheus` probes over HTTP at ADDR, e.g. 127.0.0.1:9900
    #[arg(long, value_name = "ADDR")]
    pub prometheus: Option<String>,
    /// Do not print globals that the script writes and never reads
    #[arg(long)]
    pub no_global_var_display: bool,
    /// List the functions of the tapset library
    #[arg(long)]
    pub dump_functions: bool,
    /// List the probe aliases of the tapset library
    #[arg(long)]
    pub dump_probe_aliases: bool,
    /// List the kinds of probe points
    #[arg(long)]
    pub dump_probe_types: bool,
    /// Explain the code of a message, e.g. E0301: what it means, an example, the way out
    #[arg(long, value_name = "CODE")]
    pub explain: Option<String>,
    /// Report which probe points work on this machine, and why others do not
    #[arg(long)]
    pub check: bool,
    /// Print spile/sdt.h, the header that defines markers for C and C++ programs
    #[arg(long)]
    pub sdt_header: bool,
    /// Print spile/region.h, the header that lets C and C++ programs name regions for profiles
    #[arg(long)]
    pub region_header: bool,
    /// Print the completion script for SHELL: bash, zsh, fish
    #[arg(long, value_name = "SHELL")]
    pub completions: Option<clap_complete::Shell>,
    /// Colour messages: auto, always or never
    #[arg(long, alias = "colour", value_name = "WHEN", default_value = "auto", value_parser = ["auto", "always", "never"],
          num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    pub color: String,
    /// Do not end the session on errors in handlers
    #[arg(long)]
    pub suppress_handler_errors: bool,
    /// Let the kernel catch returns even where this can kill the program: coroutines, exceptions, Go
    #[arg(long)]
    pub unsafe_returns: bool,
    /// Replace missing variables by 0, with a warning
    #[arg(long)]
    pub skip_badvars: bool,
    /// Do not limit the statements of a handler (MAXACTION)
    #[arg(long)]
    pub suppress_time_limits: bool,
    /// Use the language of this release of SystemTap, the value of systemtap_v
    #[arg(long, value_name = "VERSION")]
    pub compatible: Option<String>,
    /// The file with the script that was written at the prompt of -i; see [`crate::interactive`].
    #[arg(skip)]
    pub script_file: Option<PathBuf>,
    /// Warn of parts of the script that depend on the release of SystemTap
    #[arg(long)]
    pub check_version: bool,
    /// Reads memory of processes only where it is resident; set by tools.
    #[arg(skip)]
    pub resident: bool,
    /// (Of tools only.) How long the session sleeps between two rounds of records.
    #[arg(skip)]
    pub rest_between: Option<std::time::Duration>,
    /// The script and its arguments
    #[arg(value_name = "FILE", hide = true)]
    pub rest: Vec<String>,
}

/// One to five digits.
fn digits(text: &str) -> Result<String, String> {
    let fits = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    match fits {
        true => Ok(text.to_owned()),
        false => Err("one to five digits, one for each pass".to_owned()),
    }
}

/// The limits of output files: megabytes of a file, and the number of files.
fn series(text: &str) -> Result<SeriesLimits, String> {
    let (size, files) = match text.split_once(',') {
        Some((size, files)) => (size, Some(files)),
        None => (text, None),
    };
    let number = |text: &str| text.parse().ok().filter(|n| *n > 0);
    let megabytes = number(size).and_then(|n: u32| u64::from(n).checked_mul(1 << 20));
    let files = files.map(|f| number(f).ok_or(()));
    match (megabytes, files.transpose()) {
        (Some(bytes), Ok(files)) => Ok(SeriesLimits { bytes, files }),
        _ => Err("megabytes of a file, and perhaps the number of files: SIZE or SIZE,N".to_owned()),
    }
}

impl Cli {
    /// Whether details of a pass are printed: by `-v` or `--vp`.
    pub(crate) fn is_verbose(&self, pass: usize) -> bool {
        let is_asked = |digits: &String| digits.as_bytes().get(pass - 1).is_some_and(|d| *d > b'0');
        self.verbose > 0 || self.vp.iter().any(is_asked)
    }
}

/// What runs the session's compiled handlers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Runtime {
    /// The kernel with privileges, or without a target; otherwise its process.
    #[default]
    Auto,
    // SystemTap's other name is that of its smaller eBPF back-end.
    #[value(alias = "bpf")]
    Kernel,
    Process,
}

impl Runtime {
    /// The compiler's host.
    pub(crate) fn host(self) -> HostKind {
        match self {
            Runtime::Auto | Runtime::Kernel => HostKind::Kernel,
            Runtime::Process => HostKind::Process,
        }
    }
}

/// A form of the code that `--dump` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stage {
    // Not documentation, because clap would print the long form of `--help` then.
    // The functions that are made from LIR.
    Lir,
    // The instructions of each program, with the script's lines.
    Bpf,
}

/// Formats SystemTap scripts.
#[derive(Debug, Parser)]
#[command(
    name = "spile fmt",
    bin_name = "spile fmt",
    after_help = "Without FILE, or for -, standard input is formatted to standard output."
)]
pub(crate) struct Fmt {
    /// Change nothing; print the names of files that would change, and exit with 1 if there are any
    #[arg(long)]
    pub check: bool,
    /// Also look for macros in the tapset files of DIR (repeatable)
    #[arg(short = 'I', value_name = "DIR")]
    pub include: Vec<PathBuf>,
    /// Scripts to format
    #[arg(value_name = "FILE")]
    pub files: Vec<String>,
}

/// Runs a language server for editors over standard input and output.
#[derive(Debug, Parser)]
#[command(name = "spile lsp", bin_name = "spile lsp")]
pub(crate) struct Lsp {
    /// Also look for tapset files in DIR (repeatable)
    #[arg(short = 'I', value_name = "DIR")]
    pub include: Vec<PathBuf>,
    /// Set a limit, e.g. MAXMAPENTRIES=10000
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    pub defines: Vec<String>,
    /// Run handlers in the kernel, or in the target's process, which needs no privilege; by default in the kernel where the user may
    #[arg(
        long,
        value_name = "HOST",
        default_value = "auto",
        hide_default_value = true
    )]
    pub runtime: Runtime,
    /// Enable guru mode
    #[arg(short = 'g')]
    pub guru: bool,
    /// Use standard input and output (always so; accepted because some editors pass it)
    #[arg(long)]
    pub stdio: bool,
}

/// Shows the output of a session in the background, which `-F` started without `-o`.
#[derive(Debug, Parser)]
#[command(
    name = "spile attach",
    bin_name = "spile attach",
    after_help = "Ctrl-C ends the session, Ctrl-\\ leaves it. The exit status is that of the session."
)]
pub(crate) struct Attach {
    /// The process that -F printed; not needed if there is only one session
    #[arg(value_name = "PID")]
    pub pid: Option<u32>,
}

/// Ends a session in the background, and shows the rest of its output.
#[derive(Debug, Parser)]
#[command(name = "spile stop", bin_name = "spile stop")]
pub(crate) struct Stop {
    /// The process that -F printed; not needed if there is only one session
    #[arg(value_name = "PID")]
    pub pid: Option<u32>,
}

/// Longest name of `-m`, which is a module's in SystemTap.
pub(crate) const LONGEST_MODULE_NAME: usize = 60;

/// The name of `-m`; like SystemTap's it may end with `.ko`.
fn module_name(text: &str) -> Result<String, String> {
    let path = text.strip_suffix(".ko").unwrap_or(text);
    // A folder can stand before it.
    let name = path.rsplit('/').next().unwrap_or(path);
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(legal) {
        return Err("a name has letters, digits and underscores".into());
    }
    if name.len() > LONGEST_MODULE_NAME {
        return Err(format!(
            "a name has at most {LONGEST_MODULE_NAME} characters"
        ));
    }
    Ok(path.into())
}
