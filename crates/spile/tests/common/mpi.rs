//! MPI programs under `spile profile`, which tests of times in their calls share.

use std::path::{Path, PathBuf};
use std::process::Command;

use spile_profile::file::read_path;
use spile_profile::model::Profile;

use super::compiled_by;

/// An MPI program, compiled for one of the libraries.
pub(crate) fn mpi_program(kind: &str, dir: &Path, name: &str, more: &[&str]) -> PathBuf {
    let program = dir.join(format!("{name}-{kind}"));
    if !program.exists() {
        let compiler = if name.ends_with(".f90") {
            "mpif90"
        } else {
            "mpicc"
        };
        compiled_by(&format!("{compiler}.{kind}"), name, &program, more);
    }
    program
}

/// Runs a program with each rank's work under a library's launcher; returns each rank's profile,
/// and all output.
pub(crate) fn ranks(
    kind: &str,
    launch: &[&str],
    program: &Path,
    work: &[&str],
) -> (Vec<Profile>, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(format!("mpirun.{kind}"));
    if kind == "openmpi" {
        command.args(["--allow-run-as-root", "--oversubscribe"]);
    }
    let number = work.len().to_string();
    command.args(launch).args(["-n", &number]);
    command.args([env!("CARGO_BIN_EXE_spile"), "profile", "-o"]);
    let out = command
        .arg(folder.path())
        .arg("--")
        .arg(program)
        .args(work)
        .output()
        .unwrap_or_else(|e| panic!("mpirun.{kind} (`make deps` installs it): {e}"));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{kind}: {said}");
    let files = std::fs::read_dir(folder.path()).unwrap().flatten();
    let mut profiles: Vec<Profile> = files
        .map(|e| read_path(&e.path()).unwrap().profile)
        .collect();
    profiles.sort_by_key(|p| p.header.rank.as_ref().expect("a rank").rank);
    assert_eq!(profiles.len(), work.len(), "{said}");
    let printed = String::from_utf8_lossy(&out.stdout).into_owned();
    (profiles, printed)
}
