//! The readers: Python's packages in an environment of their own, and those of npm. They are
//! installed below cargo's folder for tests and stay there.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Packages of PyPI.
const PYTHON: [&str; 4] = [
    "llnl-hatchet==2026.2.0",
    "otf2==3.2",
    "jsonschema==4.26.0",
    "opentelemetry-proto==1.45.2",
];
/// Packages of npm.
const NPM: [&str; 2] = ["speedscope@1.25.0", "@firefox-devtools/profiler-cli@0.10.0"];

/// The paths of the readers.
pub(crate) struct Tools {
    /// A Python with the packages.
    pub python: PathBuf,
    /// The folder of speedscope's page.
    pub speedscope: PathBuf,
    /// The script of the Firefox profiler's command line.
    pub firefox: PathBuf,
}

/// The readers, which are installed if missing.
pub(crate) fn tools() -> &'static Tools {
    static TOOLS: OnceLock<Tools> = OnceLock::new();
    TOOLS.get_or_init(|| {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readers");
        install(&root);
        Tools {
            python: root.join("python/bin/python3"),
            speedscope: root.join("npm/node_modules/speedscope/dist/release"),
            firefox: root
                .join("npm/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js"),
        }
    })
}

/// Test programs run at the same time: one installs, the others wait.
fn install(root: &Path) {
    std::fs::create_dir_all(root).expect("a folder");
    let lock = File::create(root.join("lock")).expect("a file");
    lock.lock().expect("a lock");
    let wanted = [&PYTHON[..], &NPM[..]].concat().join("\n");
    let done = root.join("installed");
    if std::fs::read_to_string(&done).is_ok_and(|have| have == wanted) {
        return;
    }
    let python = root.join("python");
    output(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&python),
    );
    let mut pip = Command::new(python.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]);
    output(pip.args(PYTHON));
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-save", "--prefix"]);
    output(npm.arg(root.join("npm")).args(NPM));
    std::fs::write(done, wanted).expect("a file");
}

/// The output of a program that must succeed.
pub(crate) fn output(command: &mut Command) -> String {
    let out = command.output();
    let out = out.unwrap_or_else(|e| panic!("{command:?}: {e} (`make deps` installs it)"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        out.status.success(),
        "{command:?}: {}\n{}{}",
        out.status,
        text(&out.stdout),
        text(&out.stderr)
    );
    text(&out.stdout)
}
