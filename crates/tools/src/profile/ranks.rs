//! The rank of a process in a parallel program, which launchers set in the environment.

use spile_profile::model::{Launcher, Rank};

/// The environment variables of a launcher, by meaning.
struct Variables {
    launcher: Launcher,
    rank: &'static str,
    /// A variable that must be set too, because others set the rank's as well.
    with: Option<&'static str>,
    size: &'static [&'static str],
    local_rank: &'static [&'static str],
    local_size: &'static [&'static str],
    /// The variables that identify one start of the launcher, joined; the first group whose
    /// variables are all set counts.
    job: &'static [&'static [&'static str]],
}

/// The launchers, in order of precedence: the first whose rank is set counts. Slurm comes after
/// launchers that run in its jobs: they start their helpers by `srun`, one for each node, and each
/// rank there inherits that helper's `SLURM_PROCID`. In a batch script, which no `srun` started,
/// `SLURM_PROCID` is 0 and there is no step. The variables that `srun --mpi` sets for an MPI
/// library (`PMI_RANK`, `PMIX_RANK`) agree with Slurm's own.
const LAUNCHERS: [Variables; 5] = [
    Variables {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        with: None,
        size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        job: &[&["PMIX_NAMESPACE"]],
    },
    // Hydra, the launcher of MPICH and its derivatives.
    Variables {
        launcher: Launcher::Mpich,
        rank: "PMI_RANK",
        with: Some("MPI_LOCALRANKID"),
        size: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID"],
        local_size: &["MPI_LOCALNRANKS"],
        job: &[&["PMI_JOBID"], &["SLURM_JOB_ID", "SLURM_STEP_ID"]],
    },
    Variables {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        with: Some("SLURM_STEP_ID"),
        size: &["SLURM_NTASKS", "SLURM_NPROCS"],
        local_rank: &["SLURM_LOCALID"],
        local_size: &[],
        job: &[&["SLURM_JOB_ID", "SLURM_STEP_ID"]],
    },
    Variables {
        launcher: Launcher::Mpich,
        rank: "PMI_RANK",
        with: None,
        size: &["PMI_SIZE"],
        local_rank: &[],
        local_size: &[],
        job: &[&["PMI_JOBID"]],
    },
    Variables {
        launcher: Launcher::Pmix,
        rank: "PMIX_RANK",
        with: None,
        size: &["PMIX_SIZE"],
        local_rank: &[],
        local_size: &[],
        job: &[&["PMIX_NAMESPACE"]],
    },
];

/// The rank in an environment, if a launcher set one.
pub(super) fn rank(variable: impl Fn(&str) -> Option<String>) -> Option<Rank> {
    let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
    let first = |names: &[&str]| names.iter().find_map(|name| number(name));
    LAUNCHERS.iter().find_map(|l| {
        let rank = number(l.rank)?;
        if l.with.is_some_and(|name| variable(name).is_none()) {
            return None;
        }
        let joined = |names: &&[&str]| {
            let values: Option<Vec<String>> = names.iter().map(|name| variable(name)).collect();
            Some(values?.join("."))
        };
        let mut local_size = first(l.local_size);
        if l.launcher == Launcher::Slurm {
            let node = number("SLURM_NODEID").unwrap_or(0);
            local_size = variable("SLURM_STEP_TASKS_PER_NODE").and_then(|t| on_node(&t, node));
        }
        Some(Rank {
            rank,
            size: first(l.size),
            local_rank: first(l.local_rank),
            local_size,
            launcher: l.launcher,
            job: l.job.iter().find_map(joined),
        })
    })
}

/// The number of tasks of a node in Slurm's list: `2(x3),1` is three nodes with two tasks and one
/// with one.
fn on_node(list: &str, node: u32) -> Option<u32> {
    let mut before = 0u32;
    for group in list.trim().split(',') {
        let (tasks, nodes) = match group.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (group, 1),
        };
        before = before.checked_add(nodes)?;
        if node < before {
            return tasks.parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<Rank> {
        rank(|name| {
            let found = variables.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn ranks_of_each_launcher_are_recognised() {
        assert_eq!(of(&[("PATH", "/bin")]), None);
        let open = of(&[
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("PMIX_RANK", "3"),
            ("PMIX_NAMESPACE", "77.1"),
        ])
        .unwrap();
        assert_eq!(open.launcher, Launcher::OpenMpi);
        assert_eq!((open.rank, open.size), (3, Some(8)));
        assert_eq!((open.local_rank, open.local_size), (Some(1), Some(2)));
        assert_eq!(open.job.as_deref(), Some("77.1"));
        let slurm = of(&[
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "6"),
            ("SLURM_JOB_ID", "12"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_NODEID", "2"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x2),1"),
            ("PMI_RANK", "5"),
            ("PMIX_RANK", "5"),
        ])
        .unwrap();
        assert_eq!(slurm.launcher, Launcher::Slurm);
        assert_eq!(slurm.job.as_deref(), Some("12.0"));
        assert_eq!((slurm.local_rank, slurm.local_size), (Some(0), Some(1)));
        let mpich = of(&[
            ("PMI_RANK", "0"),
            ("PMI_SIZE", "2"),
            ("MPI_LOCALNRANKS", "2"),
            ("MPI_LOCALRANKID", "0"),
        ])
        .unwrap();
        assert_eq!(mpich.launcher, Launcher::Mpich);
        assert_eq!(
            (mpich.size, mpich.local_size, mpich.job),
            (Some(2), Some(2), None)
        );
        assert_eq!(of(&[("PMIX_RANK", "1")]).unwrap().launcher, Launcher::Pmix);
        // A value that is not a number is not a rank.
        assert_eq!(of(&[("PMI_RANK", "first")]), None);
    }

    #[test]
    fn ranks_within_jobs_of_slurm_are_recognised() {
        let batch = [
            ("SLURM_JOB_ID", "11"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "2"),
        ];
        // A batch script is not a rank.
        assert_eq!(of(&batch), None);
        let hydra = [
            ("SLURM_STEP_ID", "4"),
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "2"),
            ("MPI_LOCALRANKID", "1"),
        ];
        let rank = of(&[&batch[..], &hydra].concat()).unwrap();
        assert_eq!((rank.launcher, rank.rank), (Launcher::Mpich, 1));
        assert_eq!(rank.job.as_deref(), Some("11.4"));
        // Without a step every start has the job's number, which identifies none.
        assert_eq!(of(&[&batch[..], &hydra[1..]].concat()).unwrap().job, None);
    }

    #[test]
    fn tasks_of_nodes_are_parsed() {
        let of = |list| [0, 1, 2, 3].map(|node| on_node(list, node));
        assert_eq!(of("2(x2),1"), [Some(2), Some(2), Some(1), None]);
        assert_eq!(of("4"), [Some(4), None, None, None]);
        assert_eq!(of("2(x"), [None; 4]);
        assert_eq!(of(""), [None; 4]);
        assert_eq!(of("1(x4294967295),1(x9)")[0], Some(1));
    }
}
