//! The initramfs of a guest: busybox, init, the job, and the tests with their files. These have the
//! same paths as on this machine, because the tests contain the paths.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Built;
use super::cpio::Archive;
use super::packages::Kernel;

/// Directories of the repository that tests read.
const FOLDERS: [&str; 6] = [
    "tests/cases",
    "tests/programs",
    "include",
    "examples",
    "tapset",
    "crates/spile/tests/differential/cases",
];

/// Directories of SystemTap's example scripts in Debian, which many cases run.
const EXAMPLES: [&str; 2] = [
    "/usr/share/systemtap/examples",
    "/usr/share/doc/systemtap-client/examples",
];

/// Debian packages with programs that cases call; their dependencies are included, too.
const PACKAGES: [&str; 19] = [
    "bash",
    "binutils",
    "bpftool",
    "coreutils",
    "curl",
    "dash",
    "findutils",
    "g++",
    "gcc",
    "grep",
    "libc-bin",
    "libc6-dbg",
    "make",
    "perl-base",
    "procps",
    "python3",
    "python3-prometheus-client",
    "util-linux",
    "xz-utils",
];

/// Links that no package has.
const LINKS: [(&str, &str); 2] = [("/usr/bin/cc", "gcc"), ("/usr/bin/c++", "g++")];

/// Files of packages that no case needs.
const NEEDLESS: [&str; 6] = [
    "/usr/share/",
    "/var/",
    "/lto",
    "lto-dump",
    "san.",
    "/gprofng",
];

/// The root directory of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Adds a directory recursively; symbolic links are replaced by their targets.
fn tree(archive: &mut Archive, dir: &Path) -> Result<(), String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => tree(archive, &path)?,
            false => archive.file(&path, &read(&path)?),
        }
    }
    Ok(())
}

fn lines_of(command: &mut Command) -> Result<Vec<String>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().map_err(|e| format!("{name}: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    Ok(text.lines().map(str::to_owned).collect())
}

/// Files of the packages that cases need, and of their dependencies.
pub(super) fn programs() -> Result<Vec<PathBuf>, String> {
    let only = [
        "recommends",
        "suggests",
        "conflicts",
        "breaks",
        "replaces",
        "enhances",
    ];
    let mut depends = Command::new("apt-cache");
    depends.args(["depends", "--recurse", "--installed"]);
    depends.args(only.map(|kind| format!("--no-{kind}")));
    let mut packages = lines_of(depends.args(PACKAGES))?;
    packages.retain(|line| line.starts_with(|c: char| c.is_ascii_alphanumeric()));
    packages.sort();
    packages.dedup();
    // Virtual packages have no files; that is reported only on standard error.
    let mut files = lines_of(Command::new("dpkg-query").arg("-L").args(&packages))?;
    files.retain(|f| f.starts_with('/') && !NEEDLESS.iter().any(|n| f.contains(n)));
    files.sort();
    files.dedup();
    let files: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
    let files: Vec<PathBuf> = files.into_iter().filter(|f| f.is_file()).collect();
    match files.iter().any(|f| f.ends_with("gcc")) {
        true => Ok(files),
        false => Err(format!("--programs: install {}", PACKAGES.join(" "))),
    }
}

/// The image of a kernel's guest that runs `job`, shell commands.
pub(super) fn build(
    kernel: &Kernel,
    built: &Built,
    programs: &[PathBuf],
    job: &str,
) -> Result<Vec<u8>, String> {
    let mut archive = Archive::default();
    let root = root();
    for file in programs {
        // Packages still have files in /bin and /lib, which are symbolic links on this machine.
        let folder = file.parent().unwrap_or(file);
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
        let location = folder.join(file.file_name().unwrap_or_default());
        match fs::read_link(file) {
            Ok(target) => archive.link(&location, &target.to_string_lossy()),
            Err(_) => archive.file(&location, &read(file)?),
        }
        // In the guest, /bin is busybox's directory.
        if file.starts_with("/bin") && location != *file {
            archive.link(file, &location.to_string_lossy());
        }
    }
    for folder in ["/lib", "/lib32", "/lib64", "/libx32"].map(Path::new) {
        if let (Ok(target), false) = (fs::read_link(folder), programs.is_empty()) {
            archive.link(folder, &target.to_string_lossy());
        }
    }
    for (link, target) in LINKS.iter().filter(|_| !programs.is_empty()) {
        archive.link(Path::new(link), target);
    }
    archive.device(Path::new("/dev/console"), 5, 1);
    archive.device(Path::new("/dev/null"), 1, 3);
    for folder in ["/bin", "/proc", "/sys", "/tmp", "/mnt", "/root", "/modules"] {
        archive.folder(Path::new(folder));
    }
    archive.file(Path::new("/bin/busybox"), &read(&kernel.busybox)?);
    archive.file(Path::new("/init"), include_bytes!("init.sh"));
    archive.file(
        Path::new("/etc/passwd"),
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    );
    archive.file(Path::new("/etc/hostname"), b"guest\n");
    archive.file(Path::new("/etc/group"), b"root:x:0:\nnogroup:x:65534:\n");
    for (n, module) in kernel.modules.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        // Named so that a shell sorts them in load order.
        archive.file(
            &Path::new("/modules").join(format!("{n:02}-{name}")),
            &read(module)?,
        );
    }
    let loadable = Path::new("/usr/lib/modules").join(&kernel.release);
    for module in &kernel.for_cases {
        let name = module.file_name().unwrap_or_default();
        archive.file(&loadable.join(name), &read(module)?);
    }
    let config = Path::new("/boot").join(format!("config-{}", kernel.release));
    archive.file(&config, &read(&kernel.config)?);
    for (file, location) in &kernel.debuginfo {
        archive.file(location, &read(file)?);
    }
    for program in &built.programs {
        archive.file(program, &read(program)?);
        let name = match *program == built.spile {
            true => "spile".as_ref(),
            false => program.file_name().unwrap_or_default(),
        };
        archive.link(&Path::new("/bin").join(name), &program.to_string_lossy());
    }
    for folder in FOLDERS {
        tree(&mut archive, &root.join(folder))?;
    }
    let own = crate::programs::folder();
    if own.is_dir() && !programs.is_empty() {
        tree(&mut archive, &own)?;
    }
    // Tests start in the directory of their crate, and save failing scripts next to the programs.
    archive.folder(&root.join("crates/spile"));
    // The parent of TARGET/TRIPLE/PROFILE/spile that is meant depends on cargo.
    for target in built.spile.ancestors().skip(2).take(2) {
        archive.folder(&target.join("tmp"));
    }
    if let Some(dir) = EXAMPLES.map(Path::new).into_iter().find(|dir| dir.is_dir()) {
        tree(&mut archive, dir)?;
    }
    archive.file(Path::new("/job"), job.as_bytes());
    Ok(archive.finish())
}
