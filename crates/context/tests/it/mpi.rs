//! MPI calls with OpenMPI and MPICH, from C and Fortran.

use std::path::Path;
use std::process::Command;

use crate::build::{compile, line as source_line, shared};
use crate::watch::{Process, line, parse};

const SOURCE: &str = "context-mpi.c";

/// Two ranks, each watched.
fn run(kind: &str, dir: &Path, program: &Path) -> Vec<Process> {
    let mut command = Command::new(format!("mpirun.{kind}"));
    if kind == "openmpi" {
        command.args(["--allow-run-as-root", "--oversubscribe"]);
    }
    let script = r#"exec "$0" env LD_PRELOAD="$1" "$2" >"$3/$$.seen""#;
    command.args(["-n", "2", "sh", "-c", script]);
    command.args([&shared("watch"), &shared("context.so"), program, dir]);
    let out = command.output().expect("mpirun");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{kind}: {:?} {said}", out.status);
    let files = std::fs::read_dir(dir).expect("a folder").flatten();
    let files = files.filter(|e| e.file_name().to_string_lossy().ends_with(".seen"));
    let mut text = String::new();
    for file in files {
        text += &std::fs::read_to_string(file.path()).expect("text");
    }
    assert!(text.contains("2 ranks"), "{text}");
    parse(&text)
}

#[test]
fn calls_of_mpi_from_c_are_announced() {
    for kind in ["openmpi", "mpich"] {
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join("mpi");
        let compiler = format!("mpicc.{kind}");
        if compile(&compiler, &["-O2", "-g"], SOURCE, &program).is_none() {
            spile_testing::skip_variant(&compiler);
            continue;
        }
        let ranks = run(kind, dir.path(), &program);
        assert_eq!(ranks.len(), 2);
        for rank in &ranks {
            assert_eq!(rank.paths("after-init"), [""]);
            assert_eq!(rank.paths("in-allreduce"), ["exchange/MPI_Allreduce"]);
            for label in ["after-allreduce", "in-exchange"] {
                assert_eq!(rank.paths(label), ["exchange"]);
            }
            for (path, kind) in [
                ("MPI_Init", 4),
                ("exchange", 0),
                ("exchange/MPI_Sendrecv", 4),
                ("exchange/MPI_Ialltoallw", 4),
                ("exchange/MPI_Wait", 4),
                ("MPI_Barrier", 4),
                ("MPI_Finalize", 4),
            ] {
                assert_eq!(rank.region(path).kind, kind, "{path}");
            }
            // Of two ranks each is the other's neighbour on both sides.
            let peers: Vec<_> = rank.regions.values().filter(|r| r.kind == 5).collect();
            assert_eq!(peers.len(), 1, "{peers:?}");
            assert_eq!(rank.path(peers[0].parent), "exchange/MPI_Sendrecv");
            assert!(["0", "1"].contains(&&*peers[0].name), "{peers:?}");
            let reduce = rank.region("exchange/MPI_Allreduce");
            assert_eq!(line(reduce), source_line(SOURCE, "allreduce"));
            // Calls by the MPI library itself are not reported.
            assert!(rank.regions.values().filter(|r| r.kind == 4).all(|r| {
                let file = r.code.rsplit_once('+').expect("in a file").0;
                Path::new(file) == program
            }));
        }
    }
}

#[test]
fn calls_of_mpi_from_fortran_are_announced() {
    for kind in ["openmpi", "mpich"] {
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join("mpi");
        let compiler = format!("mpif90.{kind}");
        if compile(&compiler, &["-O2"], "context-mpi.f90", &program).is_none() {
            spile_testing::skip_variant(&compiler);
            continue;
        }
        let ranks = run(kind, dir.path(), &program);
        assert_eq!(ranks.len(), 2);
        for rank in &ranks {
            for name in ["MPI_Init", "MPI_Reduce", "MPI_Allreduce", "MPI_Finalize"] {
                assert_eq!(rank.region(name).kind, 4);
            }
        }
    }
}
