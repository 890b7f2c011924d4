//! A Slurm cluster that consists of this machine: its two daemons with a configuration of their
//! own, without accounts, keys or control groups.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Seconds within which the machine must be ready for jobs.
const READY: u32 = 120;

/// The daemons; dropping it ends them.
pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Cluster {
    /// Starts the daemons and waits until jobs can run.
    pub(crate) fn start() -> Cluster {
        let mut cluster = Cluster {
            dir: tempfile::tempdir().unwrap(),
            daemons: Vec::new(),
        };
        for folder in ["state", "spool"] {
            std::fs::create_dir(cluster.dir.path().join(folder)).unwrap();
        }
        std::fs::write(cluster.configuration(), cluster.text()).unwrap();
        for name in ["slurmctld", "slurmd"] {
            let said = File::create(cluster.dir.path().join(name)).unwrap();
            let daemon = cluster
                .command(name)
                .arg("-D")
                .stdin(Stdio::null())
                .stdout(said.try_clone().unwrap())
                .stderr(said)
                .spawn()
                .unwrap_or_else(|e| panic!("{name} (`make deps` installs it): {e}"));
            cluster.daemons.push(daemon);
        }
        for _ in 0..READY * 5 {
            let mut asked = cluster.command("sinfo");
            let state = asked.args(["-h", "-o", "%t"]).output().unwrap().stdout;
            // (A star after the state means that the node has not responded yet.)
            if state.trim_ascii() == b"idle" {
                return cluster;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let said = |name| std::fs::read_to_string(cluster.dir.path().join(name));
        panic!("Slurm: {:?} {:?}", said("slurmctld"), said("slurmd"));
    }

    fn configuration(&self) -> PathBuf {
        self.dir.path().join("slurm.conf")
    }

    fn text(&self) -> String {
        // Both at once, otherwise they could be the same.
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [control, node] = ports.map(|port| port.local_addr().unwrap().port());
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy();
        let host = host.split('.').next().unwrap_or_default();
        let dir = self.dir.path().display();
        format!(
            "ClusterName=test\n\
             SlurmctldHost={host}(127.0.0.1)\n\
             SlurmctldPort={control}\n\
             SlurmdPort={node}\n\
             SlurmUser=root\n\
             SlurmdUser=root\n\
             AuthType=auth/none\n\
             CredType=cred/none\n\
             StateSaveLocation={dir}/state\n\
             SlurmdSpoolDir={dir}/spool\n\
             SlurmctldPidFile={dir}/slurmctld.pid\n\
             SlurmdPidFile={dir}/slurmd.pid\n\
             ProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\n\
             SelectType=select/linear\n\
             SchedulerType=sched/builtin\n\
             SchedulerParameters=sched_interval=2,batch_sched_delay=0\n\
             MpiDefault=none\n\
             ReturnToService=2\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs=2\n\
             PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP\n"
        )
    }

    /// One of Slurm's programs, for this cluster.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.configuration());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
