//! `spile profile --cgroup` on the live kernel: the processes of a control group are recorded, also those that enter
//! it later or are started in it by others, and no process outside of it.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use spile_kernel::cgroup;
use spile_profile::file::read_path;
use spile_profile::model::{Profile, Thread};

/// Only a hanging session takes so long.
const LIMIT: Duration = Duration::from_secs(120);

/// A control group and the programs of a test; both end with it.
struct Group {
    folder: PathBuf,
    programs: tempfile::TempDir,
    running: Vec<Child>,
}

impl Group {
    /// A control group in that tree; the test is skipped where none can be made.
    fn new(version_2: bool, name: &str) -> Group {
        Group::named(version_2, &format!("spile-{name}-{}", std::process::id()))
    }

    fn named(version_2: bool, name: &str) -> Group {
        let tree = cgroup::hierarchies()
            .into_iter()
            .find(|tree| (tree.id == 0) == version_2 && !tree.root.ends_with("cpuset"));
        let folder = tree.map(|tree| tree.root.join(name));
        let made = folder.filter(|folder| fs::create_dir(folder).is_ok());
        Group {
            folder: made.unwrap_or_else(|| spile_testing::skip("no control group can be made")),
            programs: tempfile::tempdir().unwrap(),
            running: Vec::new(),
        }
    }

    /// A program of that name which does what this one does.
    fn program(&self, of: &str, name: &str) -> PathBuf {
        let path = self.programs.path().join(name);
        std::os::unix::fs::symlink(of, &path).unwrap();
        path
    }

    /// Starts a shell with this script, outside of the group; its process.
    fn start(&mut self, name: &str, script: &str) -> u32 {
        let shell = self.program("/bin/sh", name);
        let started = Command::new(shell).args(["-c", script]).spawn().unwrap();
        self.running.push(started);
        self.running.last().unwrap().id()
    }

    fn enters(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Starts `spile profile --cgroup`, and waits until it records.
    fn record(&self, args: &[&str]) -> (Child, PathBuf) {
        let file = self.programs.path().join("p.spile");
        let child = Command::new(env!("CARGO_BIN_EXE_spile"))
            .args(["profile", "--checkpoint", "1", "-o", file.to_str().unwrap()])
            .args(["--cgroup", self.folder.to_str().unwrap()])
            .args(args)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        while file.metadata().map_or(0, |m| m.len()) == 0 {
            assert!(begin.elapsed() < LIMIT, "no recording");
            std::thread::sleep(Duration::from_millis(10));
        }
        (child, file)
    }

    fn end_programs(&mut self) {
        for mut child in self.running.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end_programs();
        for pid in cgroup::processes(&self.folder) {
            // SAFETY: a signal to a process that this test started.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
        // Processes leave the group a little after their end.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A spinning loop that ends by itself.
const SPIN: &str = "i=0; while [ $i -lt 100000000 ]; do i=$((i+1)); done";

fn read(child: Child, file: &Path) -> (Profile, Output) {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let read = read_path(file).unwrap_or_else(|e| panic!("{e:?}: {said}"));
    (read.profile, output)
}

/// The threads of processes of that name.
fn named<'p>(profile: &'p Profile, name: &str) -> Vec<&'p Thread> {
    let threads = profile.data.threads.iter();
    threads.filter(|t| t.name == name).collect()
}

#[track_caller]
fn closes(profile: &Profile) {
    let at = profile.data.at_ns;
    for thread in &profile.data.threads {
        let (wall, residual) = (thread.wall(at), thread.residual(at));
        assert!(
            residual.unsigned_abs() <= wall / 100,
            "{residual} of {wall}: {thread:?}"
        );
    }
}

/// Starts a program in the group although this process is outside.
fn start_inside(group: &Group, program: &Path) -> u32 {
    let folder = fs::File::open(&group.folder).unwrap();
    let path = std::ffi::CString::new(program.to_str().unwrap()).unwrap();
    let arguments = [path.as_ptr(), c"5".as_ptr(), std::ptr::null()];
    // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
    // set_tid_size, cgroup. The flag is CLONE_INTO_CGROUP.
    let mut request = [0_u64; 11];
    request[0] = 0x2_0000_0000;
    request[4] = libc::SIGCHLD.unsigned_abs().into();
    request[10] = folder.as_raw_fd().unsigned_abs().into();
    // SAFETY: the kernel reads the request; the child only executes a program, or ends.
    let pid = unsafe {
        let pid = libc::syscall(libc::SYS_clone3, request.as_ptr(), size_of_val(&request));
        if pid == 0 {
            libc::execv(path.as_ptr(), arguments.as_ptr());
            libc::_exit(1);
        }
        pid
    };
    assert!(pid > 0, "{}", std::io::Error::last_os_error());
    u32::try_from(pid).unwrap()
}

/// Records a group with processes of all kinds.
fn members_are_recorded(version_2: bool, name: &str) {
    let mut group = Group::new(version_2, name);
    let inside = group.start("inside", SPIN);
    group.enters(inside);
    group.start("outside", SPIN);
    let late = group.start("late", SPIN);
    let sleeper = group.program("/bin/sleep", "sleeper");
    let asleep = Command::new(&sleeper).arg("60").spawn().unwrap();
    let asleep_pid = asleep.id();
    group.running.push(asleep);
    let (child, file) = group.record(&[]);
    group.enters(late);
    group.enters(asleep_pid);
    let born = group.program("/bin/sleep", "born");
    let born = version_2.then(|| start_inside(&group, &born));
    // A member's child is one, too.
    let script = format!("echo $$ > {}/cgroup.procs; {SPIN}", group.folder.display());
    group.start("itself", &script);
    std::thread::sleep(Duration::from_secs(2));
    // SAFETY: a signal to a child that is not waited for yet.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) };
    let (profile, output) = read(child, &file);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("cgroup "), "{said}");
    closes(&profile);
    assert!(named(&profile, "outside").is_empty(), "{said}");
    let one = |name| match named(&profile, name)[..] {
        [thread] => thread,
        ref others => panic!("{name}: {others:?}\n{said}"),
    };
    let at = profile.data.at_ns;
    assert_eq!((one("inside").started_ns, one("inside").tid), (0, inside));
    for name in ["inside", "late", "itself"] {
        assert!(one(name).parts.user > 0, "{name}: {said}");
    }
    for name in ["late", "itself", "sleeper"] {
        let thread = one(name);
        assert!(thread.started_ns > 0 && thread.wall(at) < at, "{thread:?}");
    }
    let (blocked, wall) = (one("sleeper").parts.blocked, one("sleeper").wall(at));
    assert!(
        blocked > 0 && blocked >= wall / 100 * 99,
        "{blocked} of {wall}"
    );
    if let Some(born) = born {
        assert_eq!(one("born").tid, born);
    }
}

#[test]
fn members_of_a_group_are_recorded() {
    members_are_recorded(true, "members");
}

#[test]
fn members_of_a_group_of_version_1_are_recorded() {
    members_are_recorded(false, "members");
}

#[test]
fn the_recording_ends_when_the_group_is_empty() {
    let mut group = Group::new(true, "ends");
    let one = group.start("one", SPIN);
    group.enters(one);
    let (child, file) = group.record(&[]);
    group.end_programs();
    let (profile, _) = read(child, &file);
    assert_eq!(named(&profile, "one").len(), 1);
    assert!(named(&profile, "one")[0].ended_ns.is_some());
}

#[test]
fn containers_are_found_by_the_beginning_of_their_ids() {
    let id = format!("{:032x}{:032x}", std::process::id(), 0xc0ffee);
    let mut group = Group::named(true, &format!("docker-{id}.scope"));
    let one = group.start("one", SPIN);
    group.enters(one);
    let spile = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "-d", "1", "--container", &id[..32]])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&spile.stderr);
    let head = said.lines().next().unwrap_or_default();
    assert!(spile.status.success(), "{said}");
    assert!(
        head.starts_with("container 0000") && head.contains("1 thread"),
        "{said}"
    );
}

#[test]
fn groups_without_processes_and_wrong_names_are_refused() {
    let group = Group::new(true, "empty");
    let said = |args: &[&str]| {
        let spile = Command::new(env!("CARGO_BIN_EXE_spile"))
            .arg("profile")
            .args(args)
            .output()
            .unwrap();
        assert_eq!(spile.status.code(), Some(1), "{args:?}");
        String::from_utf8_lossy(&spile.stderr).into_owned()
    };
    let folder = group.folder.to_str().unwrap();
    let name = group.folder.file_name().unwrap().to_str().unwrap();
    for text in [folder, name] {
        let said = said(&["--cgroup", text]);
        assert!(
            said.contains("this control group has no processes"),
            "{said}"
        );
    }
    let said_of_similar = said(&["--cgroup", &name.replace("spile", "spiel")]);
    assert!(
        said_of_similar.contains("there is no such control group"),
        "{said_of_similar}"
    );
    assert!(said_of_similar.contains(name), "{said_of_similar}");
    let none = said(&["--container", "no-such-container"]);
    assert!(none.contains("there is no such container"), "{none}");
    let both = said(&["--cgroup", name, "-p", "1"]);
    assert!(both.contains("cannot be used with"), "{both}");
    let command = said(&["--cgroup", name, "--", "true"]);
    assert!(command.contains("cannot be used with"), "{command}");
}
