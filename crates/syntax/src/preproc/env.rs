//! The environment of the preprocessor's conditions.

use std::fmt;

use super::version::version_order;

/// The value of `runtime` where the kernel runs handlers; it is `process` where the target's processes do.
///
/// SystemTap's own values are `kernel`, `dyninst` and `bpf`. Scripts and tapsets write `runtime ==
/// "bpf"` for text restricted to SystemTap's BPF back-end, which supports a far smaller language
/// than this one, and `!= "dyninst"` or nothing for the full language. So `kernel` selects the text
/// for the full language.
pub const RUNTIME: &str = "kernel";

/// The version of SystemTap whose language this is: the value of `systemtap_v`.
pub const SYSTEMTAP_VERSION: &str = "5.6";

/// The value of `systemtap_privilege`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Privilege {
    /// Root, or equivalent.
    #[default]
    Stapdev,
    /// Member of the group that may run certain scripts.
    Stapsys,
    /// Anyone.
    Stapusr,
}

impl Privilege {
    /// The spelling in conditions.
    pub fn name(self) -> &'static str {
        match self {
            Privilege::Stapdev => "stapdev",
            Privilege::Stapsys => "stapsys",
            Privilege::Stapusr => "stapusr",
        }
    }
}

/// Looks up a kernel configuration option.
pub trait KernelConfig {
    /// The value of `CONFIG_NAME` (`y`, `m`, text without quotes, a number); `None` where not set.
    fn get(&self, name: &str) -> Option<String>;

    /// Whether the configuration can be read at all.
    fn is_available(&self) -> bool {
        true
    }
}

/// A kernel with unknown configuration: no option is set.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoConfig;

impl KernelConfig for NoConfig {
    fn get(&self, _: &str) -> Option<String> {
        None
    }

    fn is_available(&self) -> bool {
        false
    }
}

impl<F: Fn(&str) -> Option<String>> KernelConfig for F {
    fn get(&self, name: &str) -> Option<String> {
        self(name)
    }
}

/// The values of conditions and arguments.
pub struct PreprocEnv {
    /// The script's arguments, `$1` first.
    pub args: Vec<String>,
    /// `kernel_vr`: as `uname -r` prints it.
    pub kernel_release: String,
    /// `kernel_v`: the release up to its first `-`.
    pub kernel_version: String,
    /// `systemtap_v`
    pub systemtap_version: String,
    /// `arch`: `x86_64`, `arm64`, `powerpc`, `s390`, ... (SystemTap's names)
    pub arch: String,
    /// `runtime`; see [`RUNTIME`].
    pub runtime: String,
    /// `systemtap_privilege`
    pub privilege: Privilege,
    /// `guru_mode`: `-g`
    pub guru: bool,
    /// Parts of the script that depend on `systemtap_v` are warnings: `--check-version`.
    pub check_version: bool,
    /// `CONFIG_...`
    pub config: Box<dyn KernelConfig>,
}

impl PreprocEnv {
    /// The environment of a kernel, with no arguments, no guru mode and no configuration.
    /// `machine` is as `uname -m` prints it.
    pub fn new(kernel_release: &str, machine: &str) -> Self {
        let version = kernel_release.split('-').next().unwrap_or(kernel_release);
        Self {
            args: Vec::new(),
            kernel_release: kernel_release.to_owned(),
            kernel_version: version.to_owned(),
            systemtap_version: SYSTEMTAP_VERSION.to_owned(),
            arch: systemtap_arch(machine).to_owned(),
            runtime: RUNTIME.to_owned(),
            privilege: Privilege::default(),
            guru: false,
            check_version: false,
            config: Box::new(NoConfig),
        }
    }

    /// Whether the language of the script's version has what came with `version`.
    pub fn has_version(&self, version: &str) -> bool {
        version_order(self.systemtap_version.as_bytes(), version.as_bytes()).is_ge()
    }

    /// Sets the script's arguments.
    pub fn with_args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the source of `CONFIG_...`.
    pub fn with_config(mut self, config: impl KernelConfig + 'static) -> Self {
        self.config = Box::new(config);
        self
    }
}

impl fmt::Debug for PreprocEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreprocEnv")
            .field("args", &self.args)
            .field("kernel_release", &self.kernel_release)
            .field("arch", &self.arch)
            .finish_non_exhaustive()
    }
}

/// SystemTap names architectures like the kernel's `arch/` directories, except x86.
fn systemtap_arch(machine: &str) -> &str {
    const NAMES: &[(&str, &str)] = &[
        ("aarch64", "arm64"),
        ("i486", "i386"),
        ("i586", "i386"),
        ("i686", "i386"),
        ("ppc", "powerpc"),
        ("ppc64", "powerpc"),
        ("ppc64le", "powerpc"),
        ("s390x", "s390"),
        ("armv7l", "arm"),
        ("riscv64", "riscv"),
    ];
    NAMES
        .iter()
        .find(|(m, _)| *m == machine)
        .map_or(machine, |(_, n)| n)
}
