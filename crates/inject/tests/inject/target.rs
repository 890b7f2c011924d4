//! Programs to hook: compiled, started, and asked for their functions.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex};

use spile_inject::{FunctionHook, PlaceKind, PtRegs};
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    // Other users run what is in it.
    let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    folder
});
static LISTED: Mutex<BTreeMap<PathBuf, String>> = Mutex::new(BTreeMap::new());
static COMPILED: Mutex<Vec<(String, Option<PathBuf>)>> = Mutex::new(Vec::new());

/// The variable with the folder of sources, for a user who cannot read this repository.
pub(crate) const SOURCES: &str = "SPILE_INJECT_SOURCES";

/// The source of a program.
pub(crate) fn source(name: &str) -> PathBuf {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    std::env::var_os(SOURCES)
        .map_or(usual, PathBuf::from)
        .join(name)
}

/// A folder that every user can read.
pub(crate) fn folder() -> &'static Path {
    FOLDER.path()
}

/// The program that a command makes of a source; `None` if there is no such compiler.
pub(crate) fn try_compile(command: &str, name: &str) -> Option<PathBuf> {
    let mut compiled = COMPILED.lock().unwrap();
    let key = format!("{command} {name}");
    if let Some((_, path)) = compiled.iter().find(|(k, _)| *k == key) {
        return path.clone();
    }
    let path = FOLDER.path().join(format!("program-{}", compiled.len()));
    let mut words = command.split(' ');
    let mut compiler = Command::new(words.next().unwrap());
    compiler.args(words).arg("-o").arg(&path).arg(source(name));
    let path = match compiler.status() {
        // Also where a folder of programs is closed to this user.
        Err(_) => None,
        done => {
            assert!(done.unwrap().success(), "{compiler:?}");
            Some(path)
        }
    };
    compiled.push((key, path.clone()));
    path
}

/// See [`try_compile`]; skips the test where the compiler is missing.
pub(crate) fn compile(command: &str, name: &str) -> PathBuf {
    try_compile(command, name).unwrap_or_else(|| skip!("no {command}"))
}

/// The program of most tests.
pub(crate) fn usual() -> PathBuf {
    compile("gcc -O2 -pthread", "hooked.c")
}

/// A running program.
pub(crate) struct Target {
    child: Child,
    program: PathBuf,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

fn command(program: &Path, words: &str) -> Command {
    let mut command = Command::new(program);
    let words = words.split(' ').filter(|w| !w.is_empty());
    command
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

impl Target {
    /// Starts it, and waits for its first line.
    pub(crate) fn start(program: &Path, words: &str) -> Target {
        let mut target = Target::spawn(program, command(program, words));
        assert!(target.line().starts_with("ready"));
        target
    }

    /// Starts it as a traced child that stands at its first instruction.
    pub(crate) fn stopped(program: &Path, words: &str) -> Target {
        let mut command = command(program, words);
        // SAFETY: safe after a fork.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let target = Target::spawn(program, command);
        // The session leaves the report of the stop, too.
        let flags = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: fills in the structure.
        let info = unsafe {
            libc::waitid(libc::P_PID, target.pid(), info.as_mut_ptr(), flags);
            info.assume_init()
        };
        assert_eq!(info.si_code, libc::CLD_TRAPPED);
        target
    }

    /// Starts it by another command.
    pub(crate) fn spawn(program: &Path, mut command: Command) -> Target {
        let mut child = command.spawn().unwrap();
        Target {
            program: program.to_owned(),
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets a program at its start run.
    pub(crate) fn release(&mut self) {
        // SAFETY: touches no memory.
        let done = unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid(), 0, 0) };
        assert_eq!(done, 0);
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Sends it a line.
    pub(crate) fn go(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Reads its lines until one starts with a word.
    pub(crate) fn until(&mut self, word: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "no line {word} in {lines:?}");
            lines.push(line);
            if lines.last().is_some_and(|l| l.starts_with(word)) {
                return lines;
            }
        }
    }

    /// Ends its input, and waits for its end.
    pub(crate) fn end(mut self) -> ExitStatus {
        self.input = None;
        self.child.wait().unwrap()
    }

    pub(crate) fn kill(mut self) -> ExitStatus {
        self.child.kill().unwrap();
        self.child.wait().unwrap()
    }

    pub(crate) fn maps(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap()
    }

    /// What is mapped, without what the program's own memory grows by.
    pub(crate) fn own_maps(&self) -> Vec<String> {
        let maps = self.maps();
        maps.lines()
            .filter(|l| l.contains("memfd:"))
            .map(str::to_owned)
            .collect()
    }

    fn base(&self) -> u64 {
        let head = std::fs::read(&self.program).unwrap();
        const ET_EXEC: u8 = 2;
        if head[16] == ET_EXEC {
            return 0;
        }
        let name = self.program.to_str().unwrap();
        let maps = self.maps();
        let first = maps.lines().find(|l| l.ends_with(name)).unwrap();
        u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap()
    }

    /// A hook of one of its functions.
    pub(crate) fn hook(&self, function: &str, handler: u64) -> FunctionHook {
        let listed = symbols(&self.program);
        let words = listed.lines().map(|l| l.split(' ').collect::<Vec<_>>());
        let symbol = words
            .into_iter()
            .find(|w| w.last() == Some(&function))
            .unwrap();
        let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
        let size = if symbol.len() == 4 {
            number(symbol[1])
        } else {
            64
        };
        FunctionHook {
            address: self.base() + number(symbol[0]),
            size,
            offset: 0,
            kind: PlaceKind::Instruction,
            through: false,
            ends: false,
            handler,
            cookie: 7,
            reads: PtRegs::ALL,
        }
    }

    /// A hook of a function of a library.
    pub(crate) fn hook_of(&self, library: &str, function: &str, handler: u64) -> FunctionHook {
        let maps = self.maps();
        let line = maps.lines().find(|l| l.contains(library)).unwrap();
        let base = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        let path = line.split(' ').next_back().unwrap();
        let output = Command::new("nm")
            .args(["-D", "-S", path])
            .output()
            .unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        let start = format!("{function}@@");
        let words = listed.lines().map(|l| l.split(' ').collect::<Vec<_>>());
        let symbol = words
            .into_iter()
            .find(|w| w[w.len() - 1].starts_with(&start));
        let symbol = symbol.unwrap();
        let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
        FunctionHook {
            address: base + number(symbol[0]),
            size: number(symbol[1]),
            offset: 0,
            kind: PlaceKind::Instruction,
            through: false,
            ends: false,
            handler,
            cookie: 1 << 40,
            reads: PtRegs::ALL,
        }
    }

    /// Hooks of all its functions that are not in `but`, the C library's as well if that is linked in.
    pub(crate) fn all_hooks(&self, but: &[&str], handler: u64) -> Vec<FunctionHook> {
        let mut all = BTreeMap::new();
        for line in symbols(&self.program).lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, _, "T" | "t" | "W" | "i", name] = words[..] else {
                continue;
            };
            if !but.contains(&name) {
                let hook = self.hook(name, handler);
                all.insert(hook.address, hook);
            }
        }
        all.into_values().collect()
    }

    pub(crate) fn hooks(&self, functions: &[&str], handler: u64) -> Vec<FunctionHook> {
        functions.iter().map(|f| self.hook(f, handler)).collect()
    }

    /// The bytes of its code.
    pub(crate) fn code(&self, hooks: &[FunctionHook]) -> Vec<Vec<u8>> {
        use std::os::unix::fs::FileExt as _;
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.pid())).unwrap();
        let read = |h: &FunctionHook| {
            let mut bytes = vec![0; 16];
            memory.read_exact_at(&mut bytes, h.address).unwrap();
            bytes
        };
        hooks.iter().map(read).collect()
    }
}

/// What `nm` prints of a program.
fn symbols(program: &Path) -> String {
    let mut listed = LISTED.lock().unwrap();
    let list = listed.entry(program.to_owned()).or_insert_with(|| {
        let output = Command::new("nm").arg("-S").arg(program).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    });
    list.clone()
}

/// What a program prints without hooks.
pub(crate) fn printed(program: &Path, words: &str) -> Vec<String> {
    let mut target = Target::start(program, words);
    target.go();
    let lines = target.until("signals");
    assert_eq!(target.end().code(), Some(7));
    lines
}
