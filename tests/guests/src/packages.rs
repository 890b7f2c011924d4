//! Debian's cloud kernels and its static busybox, fetched with apt, which knows the mirror, proxies
//! and keys of this machine, retries, and checks signatures and sums. Nothing is installed; apt
//! gets a state of its own. Unpacked files are cached in the user's cache directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// Kernels by name, with the Debian suite that has them.
pub(super) const KERNELS: [(&str, &str); 3] =
    [("6.1", "bookworm"), ("6.12", "trixie"), ("newest", "sid")];

/// The package that always depends on a suite's newest cloud kernel.
const META: &str = "linux-image-cloud-amd64";

/// Age from which on a cached kernel is looked up again.
const FRESH: Duration = Duration::from_secs(14 * 24 * 3600);

/// Modules that are loaded in every guest, in this order, so that there are functions and
/// tracepoints of modules, and bridges. They depend on no other modules.
const MODULES: [&str; 8] = [
    "dummy",
    "watchdog",
    "softdog",
    "llc",
    "stp",
    "bridge",
    "br_netfilter",
    "tun",
];

/// Modules that a case loads itself: an NFS server with its client, disks in memory, mirrors and file systems on them,
/// SCSI disks, disks that answer late, cables between network devices and bundles of these, and a terminal. No order; a
/// kernel may lack some of them.
const FOR_CASES: [&str; 30] = [
    "auth_rpcgss",
    "bonding",
    "brd",
    "configfs",
    "dns_resolver",
    "eql",
    "fat",
    "fscache",
    "grace",
    "lockd",
    "md-mod",
    "msdos",
    "netfs",
    "nfs",
    "nfs_acl",
    "nfsd",
    "nfsv2",
    "nfsv3",
    "nfsv4",
    "nls_cp437",
    "null_blk",
    "raid1",
    "scsi_common",
    "scsi_debug",
    "scsi_mod",
    "sd_mod",
    "sunrpc",
    "tls",
    "ttyprintk",
    "veth",
];

/// Modules among these whose debugging information cases need, besides that of the modules of every guest.
const DEBUGGED: [&str; 1] = ["scsi_mod"];

/// The kernel's configuration in the cache.
const CONFIG: &str = "config";

/// Folder of these modules in the cache.
const LOADABLE: &str = "loadable";

/// Keys of Debian's archive, if apt does not trust them by default.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A bootable kernel.
pub(super) struct Kernel {
    /// Its version in the package's name.
    pub release: String,
    pub image: PathBuf,
    pub busybox: PathBuf,
    /// Modules in load order.
    pub modules: Vec<PathBuf>,
    /// Modules that cases load.
    pub for_cases: Vec<PathBuf>,
    /// Its configuration.
    pub config: PathBuf,
    /// Files of debugging information: their path here, and their path in the guest.
    pub debuginfo: Vec<(PathBuf, PathBuf)>,
}

/// The mirror of Debian's packages on this machine, or the one that the user gave.
pub(crate) fn mirror(given: Option<&str>) -> Result<String, String> {
    if let Some(uri) = given {
        return Ok(uri.to_owned());
    }
    let targets = || {
        let out = Command::new("apt-get")
            .args(["indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"])
            .arg("Created-By: Packages")
            .output()
            .map_err(|e| format!("apt-get: {e}; kernels are taken from Debian's packages"))?;
        Ok::<_, String>(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let debian = |text: &str| {
        let found = text.lines().find_map(|l| l.strip_prefix("Debian|Debian|"));
        found.map(str::to_owned)
    };
    if let Some(uri) = debian(&targets()?) {
        return Ok(uri);
    }
    // A fresh machine has no package lists yet.
    let _ = Command::new("apt-get").args(["update", "-qq"]).status();
    debian(&targets()?).ok_or_else(|| "apt has no source of Debian's packages: --mirror URI".into())
}

fn cache() -> Result<PathBuf, String> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => {
            let home = std::env::var_os("HOME").ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
            Path::new(&home).join(".cache")
        }
    };
    Ok(base.join("spile/vm"))
}

/// The kernel of a name; from the cache if it is recent or there is no network.
pub(super) fn kernel(name: &str, mirror: &str) -> Result<Kernel, String> {
    let Some((_, suite)) = KERNELS.iter().find(|(known, _)| *known == name) else {
        let names = KERNELS.map(|(name, _)| name).join(", ");
        return Err(format!("no kernel {name}; there are {names}"));
    };
    let dir = cache()?.join(suite);
    let said = |e: io::Error| format!("{}: {e}", dir.display());
    fs::create_dir_all(&dir).map_err(said)?;
    // Other processes can be fetching the same kernel.
    let lock = fs::File::create(dir.join("lock")).map_err(said)?;
    lock.lock().map_err(said)?;
    let ready = dir.join("ready");
    let kept = cached(&ready);
    if let Some((kernel, age)) = kept {
        if age < FRESH {
            return Ok(kernel);
        }
        return match fetch(&dir, mirror, suite) {
            Ok(kernel) => Ok(kernel),
            Err(why) => {
                let days = age.as_secs() / (24 * 3600);
                eprintln!("{why}\n{name}: using the kernel of {days} days ago");
                Ok(kernel)
            }
        };
    }
    fetch(&dir, mirror, suite)
        .map_err(|why| format!("kernel {name} cannot be had from {mirror} {suite}: {why}"))
}

/// An unpacked kernel in the cache, and its age.
fn cached(ready: &Path) -> Option<(Kernel, Duration)> {
    let mark = ready.join("release");
    let release = fs::read_to_string(&mark).ok()?;
    let since = fs::metadata(&mark).and_then(|m| m.modified()).ok()?;
    let modules = MODULES.map(|name| ready.join(format!("{name}.ko")));
    // An earlier version of this program needed fewer of them.
    let newest = ready.join(LOADABLE).join("ttyprintk.ko");
    let config = ready.join(CONFIG);
    if !modules.iter().chain([&newest, &config]).all(|m| m.exists()) {
        return None;
    }
    let mut for_cases = Vec::new();
    files(&ready.join(LOADABLE), &mut for_cases);
    let kernel = Kernel {
        release,
        image: ready.join("vmlinuz"),
        busybox: ready.join("busybox"),
        modules: modules.to_vec(),
        for_cases,
        config,
        debuginfo: Vec::new(),
    };
    let age = SystemTime::now().duration_since(since).unwrap_or_default();
    Some((kernel, age))
}

/// apt with a state of its own in `dir`.
fn apt(dir: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    let options = [
        ("Dir::State", dir.join("state")),
        ("Dir::State::lists", dir.join("state/lists")),
        ("Dir::State::status", dir.join("state/status")),
        ("Dir::Cache", dir.join("cache")),
        ("Dir::Etc::sourcelist", dir.join("sources.list")),
        ("Dir::Etc::sourceparts", "/dev/null".into()),
        ("Dir::Etc::preferencesparts", "/dev/null".into()),
        ("APT::Sandbox::User", "root".into()),
        ("APT::Architecture", "amd64".into()),
        ("APT::Architectures", "amd64".into()),
        ("APT::Update::Error-Mode", "any".into()),
        ("Acquire::Retries", "5".into()),
        ("Acquire::http::Timeout", "60".into()),
        ("Acquire::Languages", "none".into()),
        (
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled",
            "false".into(),
        ),
        (
            "Acquire::IndexTargets::deb::CNF::DefaultEnabled",
            "false".into(),
        ),
    ];
    for (name, value) in options {
        command.arg("-o").arg(format!("{name}={}", value.display()));
    }
    command.current_dir(dir).stdin(Stdio::null());
    command
}

/// The output of a command; its errors if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().map_err(|e| format!("{name}: {e}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(format!(
            "{name} failed:\n{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr).trim_end()
        )),
    }
}

/// Adds the debugging information of a kernel and of its modules, from a package of some hundred
/// megabytes, without the parts that only linkers need.
pub(super) fn add_debuginfo(kernel: &mut Kernel, name: &str, mirror: &str) -> Result<(), String> {
    let entry = KERNELS.iter().find(|(kernel, _)| *kernel == name);
    let suite = entry.map_or("", |k| k.1);
    let dir = cache()?.join(suite);
    let release = kernel.release.clone();
    let ready = dir.join(format!("debug-{release}-{}", DEBUGGED.join("-")));
    if !ready.exists() {
        let work = prepare(&dir, mirror, suite, &["deb"])?;
        eprintln!("fetching the debugging information of {release}");
        download(&work, &[format!("linux-image-{release}-dbg")])?;
        // Up to some release a file of that name, later a symbolic link to the one next to the
        // modules.
        let mut wanted = vec![
            format!("*/vmlinux-{release}"),
            format!("*/lib/modules/{release}/vmlinux"),
        ];
        wanted.extend((MODULES.iter().chain(&DEBUGGED)).map(|name| format!("*/{name}.ko*")));
        unpack(&work, &wanted)?;
        let new = work.join("new");
        let said = |e: io::Error| format!("{}: {e}", new.display());
        fs::create_dir_all(&new).map_err(said)?;
        let mut all = Vec::new();
        files(&work.join("files"), &mut all);
        for file in all.iter().filter(|f| !f.is_symlink()) {
            let mut copy = Command::new("objcopy");
            let to = match file.ends_with("vmlinux") {
                true => new.join(format!("vmlinux-{release}")),
                false => new.join(file.file_name().unwrap_or_default()),
            };
            if file.extension().is_none_or(|e| e != "ko" && e != "debug") {
                copy.arg("--remove-section=.rela*");
            }
            output(copy.arg(file).arg(&to))?;
        }
        fs::rename(&new, &ready).map_err(said)?;
        let _ = fs::remove_dir_all(&work);
    }
    let mut all = Vec::new();
    files(&ready, &mut all);
    let root = Path::new("/usr/lib/debug");
    for file in all {
        let name = file.file_name().unwrap_or_default();
        let to = match name.to_string_lossy().starts_with("vmlinux") {
            true => root.join("boot").join(name),
            false => root.join("lib/modules").join(&release).join(name),
        };
        kernel.debuginfo.push((file, to));
    }
    Ok(())
}

/// Prepares a directory for apt below `dir`, with the lists of a suite: of packages (`deb`), of sources (`deb-src`).
pub(crate) fn prepare(
    dir: &Path,
    mirror: &str,
    suite: &str,
    kinds: &[&str],
) -> Result<PathBuf, String> {
    let said = |e: io::Error| format!("{}: {e}", dir.display());
    let work = dir.join("work");
    let _ = fs::remove_dir_all(&work);
    for folder in [
        "state/lists/partial",
        "cache/archives/partial",
        "debs",
        "files",
    ] {
        fs::create_dir_all(work.join(folder)).map_err(said)?;
    }
    let signed = match Path::new(KEYRING).exists() {
        true => format!("[signed-by={KEYRING}] "),
        false => String::new(),
    };
    let line = |kind: &&str| format!("{kind} {signed}{mirror} {suite} main\n");
    let sources: String = kinds.iter().map(line).collect();
    fs::write(work.join("sources.list"), sources).map_err(said)?;
    fs::write(work.join("state/status"), "").map_err(said)?;
    output(apt(&work, "apt-get").arg("update"))?;
    Ok(work)
}

pub(crate) fn download(work: &Path, packages: &[String]) -> Result<(), String> {
    let mut download = apt(work, "apt-get");
    let download = download.current_dir(work.join("debs"));
    output(download.arg("download").args(packages)).map(drop)
}

/// Fetches the files of a source package.
pub(crate) fn source(work: &Path, package: &str) -> Result<(), String> {
    let mut fetch = apt(work, "apt-get");
    let fetch = fetch.current_dir(work.join("debs"));
    output(fetch.args(["source", "--download-only", package])).map(drop)
}

/// Fetches and unpacks the newest kernel of a suite into `dir`/ready.
fn fetch(dir: &Path, mirror: &str, suite: &str) -> Result<Kernel, String> {
    let said = |e: io::Error| format!("{}: {e}", dir.display());
    eprintln!("fetching the kernel of {suite}");
    let work = prepare(dir, mirror, suite, &["deb"])?;
    let text = output(apt(&work, "apt-cache").args(["depends", META]))?;
    let release = text
        .lines()
        .find_map(|l| l.trim().strip_prefix("Depends: linux-image-"))
        .ok_or(format!("{META} depends on no kernel:\n{text}"))?
        .to_owned();
    // From 7.0 on the image package is empty, and depends on these.
    let parts = ["linux-base-", "linux-binary-", "linux-modules-"];
    let parts = parts.map(|part| format!("{part}{release}"));
    let available = output(apt(&work, "apt-cache").arg("pkgnames"))?;
    let mut packages: Vec<String> = parts
        .into_iter()
        .filter(|package| available.lines().any(|l| l == package))
        .collect();
    if packages.is_empty() {
        packages.push(format!("linux-image-{release}"));
    }
    packages.push("busybox-static".into());
    download(&work, &packages)?;
    let mut wanted = vec![
        "*/vmlinuz*".to_owned(),
        format!("*/boot/config-{release}"),
        format!("*/modules/{release}/config"),
        "./bin/busybox".into(),
        "./usr/bin/busybox".into(),
    ];
    wanted.extend(
        MODULES
            .iter()
            .chain(&FOR_CASES)
            .map(|name| format!("*/{name}.ko*")),
    );
    unpack(&work, &wanted)?;
    let new = dir.join("new");
    let _ = fs::remove_dir_all(&new);
    fs::create_dir_all(&new).map_err(said)?;
    gather(&work.join("files"), &release, &new)?;
    fs::write(new.join("release"), &release).map_err(said)?;
    let ready = dir.join("ready");
    let _ = fs::remove_dir_all(&ready);
    fs::rename(&new, &ready).map_err(said)?;
    fs::remove_dir_all(&work).map_err(said)?;
    cached(&ready)
        .map(|(kernel, _)| kernel)
        .ok_or_else(|| format!("{}: not complete", ready.display()))
}

/// Unpacks the needed files of the fetched packages.
fn unpack(work: &Path, wanted: &[String]) -> Result<(), String> {
    let debs = fs::read_dir(work.join("debs")).map_err(|e| e.to_string())?;
    for deb in debs.flatten() {
        let mut files = Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(deb.path())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("dpkg-deb: {e}"))?;
        let tar = files.stdout.take().ok_or("dpkg-deb: no pipe")?;
        // Not every package has files for each pattern, which tar counts as a failure; missing
        // files are detected afterwards.
        let _ = output(
            Command::new("tar")
                .arg("-xC")
                .arg(work.join("files"))
                .arg("--wildcards")
                .args(wanted)
                .stdin(tar),
        );
        let status = files.wait().map_err(|e| format!("dpkg-deb: {e}"))?;
        if !status.success() {
            return Err(format!("dpkg-deb {}: {status}", deb.path().display()));
        }
    }
    Ok(())
}

/// All files below a directory.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().is_ok_and(|t| t.is_dir()) {
            true => files(&entry.path(), found),
            false => found.push(entry.path()),
        }
    }
}

/// Copies the unpacked files to where `kept` expects them.
fn gather(from: &Path, release: &str, to: &Path) -> Result<(), String> {
    let mut all = Vec::new();
    files(from, &mut all);
    let find = |start: &str| {
        all.iter().find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(start)
        })
    };
    let required = |start: &str| {
        find(start).ok_or_else(|| format!("the packages of {release} have no {start}"))
    };
    for name in ["vmlinuz", "busybox"] {
        let to = to.join(name);
        fs::copy(required(name)?, &to).map_err(|e| format!("{}: {e}", to.display()))?;
    }
    let config = format!("config-{release}");
    let configs = [config.as_str(), CONFIG].map(std::ffi::OsStr::new);
    let found = (all.iter()).find(|path| path.file_name().is_some_and(|n| configs.contains(&n)));
    let found = found.ok_or_else(|| format!("the packages of {release} have no {config}"))?;
    fs::copy(found, to.join(CONFIG)).map_err(|e| format!("{}: {e}", found.display()))?;
    for name in MODULES {
        let file = format!("{name}.ko");
        unpack_module(required(&file)?, &to.join(&file))?;
    }
    let loadable = to.join(LOADABLE);
    fs::create_dir(&loadable).map_err(|e| format!("{}: {e}", loadable.display()))?;
    for name in FOR_CASES {
        let file = format!("{name}.ko");
        if let Some(packed) = find(&file) {
            unpack_module(packed, &loadable.join(&file))?;
        }
    }
    Ok(())
}

/// Writes a module, which some packages have compressed.
fn unpack_module(packed: &Path, to: &Path) -> Result<(), String> {
    let (program, arguments): (_, &[&str]) = match packed.extension().is_some_and(|e| e == "xz") {
        true => ("xz", &["-dc"]),
        false => ("cat", &[]),
    };
    let unpacked = Command::new(program).args(arguments).arg(packed).output();
    let unpacked = unpacked.map_err(|e| format!("{}: {e}", packed.display()))?;
    fs::write(to, unpacked.stdout).map_err(|e| format!("{}: {e}", to.display()))
}
