//! Which rank of a parallel program a process is: launchers say it in the environment.

use spile_profile::model::{Launcher, Rank};

/// The variables of a launcher, by what they say.
struct Variables {
    launcher: Launcher,
    rank: &'static str,
    size: &'static [&'static str],
    local_rank: &'static [&'static str],
    local_size: &'static [&'static str],
    /// What tells one start of the launcher from all others, joined where there are several.
    job: &'static [&'static str],
}

/// The first whose rank is set counts: `srun` sets its own around those of the MPI library that it
/// serves, and they agree.
const LAUNCHERS: [Variables; 4] = [
    Variables {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        job: &["PMIX_NAMESPACE"],
    },
    Variables {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        size: &["SLURM_NTASKS", "SLURM_NPROCS"],
        local_rank: &["SLURM_LOCALID"],
        local_size: &[],
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
    Variables {
        launcher: Launcher::Mpich,
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID"],
        local_size: &["MPI_LOCALNRANKS"],
        job: &["PMI_JOBID"],
    },
    Variables {
        launcher: Launcher::Pmix,
        rank: "PMIX_RANK",
        size: &["PMIX_SIZE"],
        local_rank: &[],
        local_size: &[],
        job: &["PMIX_NAMESPACE"],
    },
];

/// The rank that an environment names, if it names one.
pub fn rank(variable: impl Fn(&str) -> Option<String>) -> Option<Rank> {
    let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
    let first = |names: &[&str]| names.iter().find_map(|name| number(name));
    LAUNCHERS.iter().find_map(|l| {
        let rank = number(l.rank)?;
        let job: Vec<String> = l.job.iter().filter_map(|name| variable(name)).collect();
        Some(Rank {
            rank,
            size: first(l.size),
            local_rank: first(l.local_rank),
            local_size: first(l.local_size),
            launcher: l.launcher,
            job: (!job.is_empty()).then(|| job.join(".")),
        })
    })
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
    fn each_launcher() {
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
            ("PMI_RANK", "5"),
        ])
        .unwrap();
        assert_eq!(slurm.launcher, Launcher::Slurm);
        assert_eq!(slurm.job.as_deref(), Some("12.0"));
        let mpich = of(&[
            ("PMI_RANK", "0"),
            ("PMI_SIZE", "2"),
            ("MPI_LOCALNRANKS", "2"),
        ])
        .unwrap();
        assert_eq!(mpich.launcher, Launcher::Mpich);
        assert_eq!(
            (mpich.size, mpich.local_size, mpich.job),
            (Some(2), Some(2), None)
        );
        assert_eq!(of(&[("PMIX_RANK", "1")]).unwrap().launcher, Launcher::Pmix);
        // What is no number is no rank.
        assert_eq!(of(&[("PMI_RANK", "first")]), None);
    }
}
