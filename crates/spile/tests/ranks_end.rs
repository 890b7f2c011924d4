//! MPI ranks that die, and ranks of different programs, with OpenMPI and MPICH.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use spile_profile::file::read_path;
use spile_profile::model::Profile;

mod common;
use common::regions::{adds_up, of_name};

/// A program of `tests/programs`, compiled for one of MPI's libraries.
fn compiled(kind: &str, name: &str, dir: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/programs")
        .join(format!("{name}.c"));
    let program = dir.join(format!("{name}-{kind}"));
    let done = Command::new(format!("mpicc.{kind}"))
        .args(["-O1", "-Wall", "-Werror", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    let done = done.unwrap_or_else(|e| panic!("mpicc.{kind} (`make deps` installs it): {e}"));
    assert!(done.success());
    program
}

/// A launcher, which does not wait forever for ranks that nobody ends. Ranks that abort leave their memory
/// images in `dir`.
fn launcher(kind: &str, dir: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.current_dir(dir);
    command.args(["-k", "10", "120", &format!("mpirun.{kind}")]);
    if kind == "openmpi" {
        command.args(["--allow-run-as-root", "--oversubscribe"]);
    }
    command
}

fn spile(args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spile"));
    command.args(args).arg(folder).output().unwrap()
}

/// The profile of a rank.
fn rank(folder: &Path, number: u32) -> Profile {
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let read = files.filter_map(|file| Some(read_path(&file.path()).ok()?.profile));
    let of = |p: &Profile| p.header.rank.as_ref().map(|r| r.rank) == Some(number);
    read.into_iter().find(of).expect("its profile")
}

/// Launchers end the other ranks when one ends by a signal, but not when spile, which is the rank
/// for them, only exits with a status. MPICH waits for ranks that exit in MPI_Init, profiled or
/// not.
#[test]
fn ranks_that_die_in_mpi_init_end_the_run() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, how, status) in [
        ("openmpi", "kill", 9),
        ("openmpi", "abort", 6),
        ("openmpi", "exit", 3 << 8),
        ("openmpi", "before", 3 << 8),
        ("mpich", "kill", 9),
        ("mpich", "abort", 6),
    ] {
        let program = compiled(kind, "ranks-end", dir.path());
        let folder = tempfile::tempdir().unwrap();
        let mut command = launcher(kind, dir.path());
        command.args(["-n", "2", env!("CARGO_BIN_EXE_spile"), "profile", "-o"]);
        command.arg(folder.path()).arg("--").arg(program);
        let done = command.args([how, "1"]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        let code = done.status.code();
        assert!(code != Some(0) && code != Some(124), "{kind} {how}: {said}");
        let dead = rank(folder.path(), 1);
        adds_up(&dead);
        let ended = dead.end.as_ref().unwrap().status.unwrap();
        assert_eq!(ended & 0xff7f, status, "{kind} {how}");
        let entries = u64::from(how != "before");
        assert_eq!(of_name(&dead, "MPI_Init").0, entries, "{kind} {how}");
        let report = spile(&["report"], folder.path());
        let text = String::from_utf8_lossy(&report.stdout);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let how = match status & 0x7f {
            0 => "with status 3".to_owned(),
            signal => format!("by signal {signal}"),
        };
        let expected = format!("Failed, the first to end first: rank 1 {how} after ");
        assert!(text.contains(&expected), "{kind}: {text}");
    }
}

/// Each rank can be another program, with regions of its own.
#[test]
fn ranks_of_different_programs_have_regions_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["openmpi", "mpich"] {
        let (one, other) = (
            compiled(kind, "barriers", dir.path()),
            compiled(kind, "barriers-marked", dir.path()),
        );
        let folder = tempfile::tempdir().unwrap();
        let mut command = launcher(kind, dir.path());
        for (nth, program) in [&one, &other].into_iter().enumerate() {
            if nth > 0 {
                command.arg(":");
            }
            command.args(["-n", "1", env!("CARGO_BIN_EXE_spile"), "profile", "-o"]);
            command.arg(folder.path()).arg("--").arg(program);
            command.args(["20", "300"]);
        }
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{kind}: {said}");
        let ranks = [rank(folder.path(), 0), rank(folder.path(), 1)];
        for (profile, marked) in ranks.iter().zip([0, 3]) {
            adds_up(profile);
            assert_eq!(of_name(profile, "MPI_Barrier").0, 3, "{kind}");
            assert_eq!(of_name(profile, "marked work").0, marked, "{kind}");
        }
        let run = spile_profile::Run::new(ranks.to_vec());
        let summary = run.summary();
        assert_eq!(summary.critical().expect("two ranks").title, "rank 1");
        let report = spile(&["report"], folder.path());
        let text = String::from_utf8_lossy(&report.stdout);
        for name in ["2 ranks of 2 programs", "marked work", "MPI_Barrier"] {
            assert!(text.contains(name), "{kind}: {text}");
        }
    }
}
