//! `spile profile` under the launchers of OpenMPI and MPICH, and under Slurm's: each rank writes a
//! file, and `spile report` combines them. The program is `tests/programs/ranks.c`; `make deps`
//! installs its compiler and launchers.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::path::{Path, PathBuf};
use std::process::Command;

use spile_profile::file::read_path;
use spile_profile::model::{Launcher, Profile};

#[path = "ranks/slurm.rs"]
mod slurm;

/// Processor time in milliseconds of rank 1, for which rank 0 waits.
const MS: u64 = 500;

/// A run of two ranks.
struct Ranks {
    /// The folder with the ranks' files.
    folder: PathBuf,
    /// The files and profiles, in the order of ranks.
    files: Vec<(PathBuf, Profile)>,
}

/// Compiles the program in `dir` for one of the libraries; returns its path.
fn compiled(kind: &str, dir: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/ranks.c");
    let program = dir.join(kind);
    let done = Command::new(format!("mpicc.{kind}"))
        .args(["-O1", "-Wall", "-Werror", "-o"])
        .args([&program, &source])
        .output()
        .unwrap_or_else(|e| panic!("mpicc.{kind} (`make deps` installs it): {e}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    program
}

/// The library's own launcher.
fn mpirun(kind: &str) -> Command {
    let mut command = Command::new(format!("mpirun.{kind}"));
    if kind == "openmpi" {
        command.args(["--allow-run-as-root", "--oversubscribe"]);
    }
    command
}

/// Makes `launcher` start the program in `dir` with two ranks, each under `spile profile`.
fn run(kind: &str, launcher: Command, dir: &Path, options: &[&str]) -> Ranks {
    let program = compiled(kind, dir);
    let mut command = launcher;
    command.args(["-n", "2", env!("CARGO_BIN_EXE_spile"), "profile"]);
    command.args(options).arg("--").arg(&program);
    let out = command.arg(MS.to_string()).current_dir(dir).output();
    let out = out.unwrap_or_else(|e| panic!("{command:?} (`make deps` installs it): {e}"));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{kind}: {said}");
    // Ranks write files and print no summary, which would be one among the others'.
    assert_eq!(String::from_utf8_lossy(&out.stdout), "3\n", "{said}");
    assert!(!said.contains("Where the time went"), "{said}");

    let folder = match options {
        [_, folder] => dir.join(folder),
        _ => {
            let entries = std::fs::read_dir(dir).unwrap().flatten();
            let mut folders = entries.map(|e| e.path()).filter(|p| p.is_dir());
            let folder = folders.next().expect("a folder of the run");
            assert_eq!(folders.next(), None);
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            assert!(name.starts_with("spile-"), "{name}");
            folder
        }
    };
    ranks(kind, folder)
}

/// The files of two ranks.
fn ranks(kind: &str, folder: PathBuf) -> Ranks {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let files = (0..2).map(|rank| {
        let path = folder.join(format!("{kind}.{host}.{rank:05}.spile"));
        let read = read_path(&path).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
        assert_eq!(read.notes, []);
        (path, read.profile)
    });
    Ranks {
        files: files.collect(),
        folder,
    }
}

/// The output and the messages of `spile report`.
fn report(args: &[&str]) -> (String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_spile"))
        .arg("report")
        .args(args)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&out.stderr);
    assert!(out.status.success(), "{said}");
    (text(&out.stdout), said)
}

/// Number of finished getppid calls.
fn getppid(profile: &Profile) -> u64 {
    let calls = profile.data.calls.iter();
    let calls = calls.filter(|c| c.call == "getppid");
    calls.map(|c| c.count).sum()
}

/// Asserts the properties of two ranks under any launcher.
fn whole(ranks: &Ranks, launcher: Launcher) {
    for (number, (_, profile)) in (0..).zip(&ranks.files) {
        let header = &profile.header;
        let rank = header.rank.as_ref().expect("a rank");
        assert_eq!((rank.rank, rank.size), (number, Some(2)));
        assert_eq!((rank.local_rank, rank.local_size), (Some(number), Some(2)));
        assert_eq!(rank.launcher, launcher);
        assert_eq!(header.run, ranks.files[0].1.header.run);
        // `None` if the kernel reports the end of the process before its thread's last switch.
        let status = profile.end.as_ref().expect("the last line").status;
        assert!(matches!(status, Some(0) | None), "{status:?}");
        assert_eq!(getppid(profile), u64::from(number + 1) * 1000);
        let at = profile.data.at_ns;
        for thread in &profile.data.threads {
            let (wall, residual) = (thread.wall(at), thread.residual(at));
            assert!(residual.unsigned_abs() <= wall / 100, "{thread:?}");
        }
    }
    let user = |rank: usize| -> u64 {
        let threads = ranks.files[rank].1.data.threads.iter();
        threads.map(|t| t.parts.user).sum()
    };
    assert!(user(1) >= MS * 500_000, "{}", user(1));

    let folder = ranks.folder.to_str().unwrap();
    let (text, said) = report(&["--top", "1000", folder]);
    assert_eq!(said, "");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("2 ranks, 1 node, "), "{text}");
    let mut head = lines.iter().take_while(|l| !l.is_empty());
    let critical = head.find(|l| l.starts_with("Critical: "));
    let critical = critical.unwrap_or_else(|| panic!("{text}"));
    assert!(critical.starts_with("Critical: rank 1, "), "{text}");
    assert!(critical.contains(" times the mean"), "{text}");
    let (json, _) = report(&["--json", folder]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let mut places = json["places"].as_array().unwrap().iter();
    let in_mpi = places.any(|p| p["function"] == "MPI_Allreduce" && p["mpi"] == true);
    assert!(in_mpi, "{text}");
    let (_, uneven) = text
        .split_once("waiting for rank 1, which takes ")
        .expect(&text);
    let uneven = uneven.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        uneven[4..].starts_with(" times the mean outside of regions"),
        "{text}"
    );
    // Sums over both ranks, with their imbalance.
    assert_eq!(cell(&lines, "getppid", "calls"), "3000", "{text}");
    let uneven = cell(&lines, "getppid", "max/mean");
    let uneven: f64 = uneven.parse().unwrap();
    assert!((1.0..=2.0).contains(&uneven), "{text}");
    let (_, table) = text.split_once("\nRanks (").expect("a table of ranks");
    for rank in ["rank 0 ", "rank 1 "] {
        assert!(table.contains(&format!("\n{rank}")), "{text}");
    }
}

/// The cell of a row under the title of a column. Numbers end in the column where their titles end.
fn cell<'a>(lines: &[&'a str], row: &str, column: &str) -> &'a str {
    let head = lines
        .iter()
        .find_map(|l| l.find(column).filter(|_| l.starts_with("call ")));
    let end = head.expect("the table of calls") + column.len();
    let line = lines.iter().find(|l| l.split(' ').next() == Some(row));
    let text = &line.expect(row)[..end];
    text.rsplit(' ').next().unwrap_or_default()
}

#[test]
fn ranks_of_openmpi_write_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let ranks = run("openmpi", mpirun("openmpi"), dir.path(), &[]);
    whole(&ranks, Launcher::OpenMpi);
}

#[test]
fn ranks_of_mpich_write_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let ranks = run("mpich", mpirun("mpich"), dir.path(), &["-o", "files"]);
    whole(&ranks, Launcher::Mpich);

    // Without its last line a file is cut short, but its account counts.
    let (path, profile) = &ranks.files[1];
    let folder = ranks.folder.to_str().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let end = text.trim_end().rfind('\n').unwrap() + 1;
    std::fs::write(path, &text[..end]).unwrap();
    let (same, said) = report(&["--top", "1000", folder]);
    let lines: Vec<&str> = same.lines().collect();
    let name = path.display();
    assert!(
        said.starts_with(&format!("WARNING: {name}: is truncated")),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(cell(&lines, "getppid", "calls"), "3000", "{same}");

    // A file cut within its account is reported, and the other rank's is used.
    std::fs::write(path, &text[..end / 2]).unwrap();
    let (rest, said) = report(&["--top", "1000", folder]);
    let lines: Vec<&str> = rest.lines().collect();
    assert!(
        said.contains("before its first complete checkpoint"),
        "{said}"
    );
    assert_eq!(cell(&lines, "getppid", "calls"), "1000", "{rest}");

    // A file of another run is named and left out.
    std::fs::write(path, &text).unwrap();
    let other = ranks.folder.join("other.spile");
    let run = &profile.header.run;
    std::fs::write(&other, text.replacen(run.as_str(), "another", 1)).unwrap();
    let (first, said) = report(&["--top", "1000", folder]);
    let lines: Vec<&str> = first.lines().collect();
    let location = other.display();
    let wanted = format!(
        "WARNING: {location}: belongs to run another, not to {run}, and is not used (--run chooses)\n"
    );
    assert_eq!(said, wanted);
    assert_eq!(cell(&lines, "getppid", "calls"), "3000", "{first}");
}

#[test]
fn ranks_of_slurm_write_their_files() {
    let cluster = slurm::Cluster::start();
    for (kind, interface) in [("mpich", "pmi2"), ("openmpi", "pmix")] {
        let dir = tempfile::tempdir().unwrap();
        let mut srun = cluster.command("srun");
        srun.arg(format!("--mpi={interface}"));
        let ranks = run(kind, srun, dir.path(), &["-o", "files"]);
        whole(&ranks, Launcher::Slurm);
    }

    // A batch script is not a rank, though Slurm gives it a number; its children have the
    // launcher's ranks.
    let dir = tempfile::tempdir().unwrap();
    let program = compiled("mpich", dir.path());
    let spile = env!("CARGO_BIN_EXE_spile");
    let script = format!(
        "#!/bin/sh\n{spile} profile -- true &&\n\
         mpiexec.mpich -n 2 {spile} profile -o files -- {} {MS}\n\
         echo $? > status.new; mv status.new status\n",
        program.display()
    );
    let path = dir.path().join("script");
    std::fs::write(&path, script).unwrap();
    let mut batch = cluster.command("sbatch");
    batch.args(["-n", "2", "-o", "said"]).arg(path);
    let done = batch.current_dir(dir.path()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    // (sbatch's own --wait polls at growing intervals.)
    let read = |name| std::fs::read_to_string(dir.path().join(name));
    let status = (0..1200).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        read("status").ok()
    });
    let said = read("said").unwrap_or_default();
    assert_eq!(status.as_deref(), Some("0\n"), "{said}");
    assert_eq!(said.matches("Where the time went").count(), 1, "{said}");
    let ranks = ranks("mpich", dir.path().join("files"));
    whole(&ranks, Launcher::Mpich);
}
