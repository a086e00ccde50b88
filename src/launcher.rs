//! How a process learns which launcher started it: the variables that launchers set, in one table.

use crate::error::{Error, Result};

/// A launcher, and the variables by which its processes know it.
#[derive(Debug)]
struct Launcher {
    name: &'static str,
    /// The variable with the rank of a process.
    rank: &'static str,
    /// The variable with the number of ranks.
    size: &'static str,
    /// The variable with the number of ranks on this machine, if there is one.
    local_size: &'static str,
    /// A variable without which `rank` may be of something else.
    sign: &'static str,
    /// Whether it starts the ranks of MPI. A single process of another launcher needs no MPI.
    starts_mpi: bool,
}

/// The launchers, those that name themselves most clearly first, because one may start another: Open
/// MPI's mpirun starts its ranks on a cluster through srun, and then the variables of both are set.
///
/// | started by | shown by |
/// |---|---|
/// | mpirun of Open MPI | `OMPI_COMM_WORLD_RANK` of `OMPI_COMM_WORLD_SIZE` |
/// | jsrun | `JSM_NAMESPACE_RANK` of `JSM_NAMESPACE_SIZE` |
/// | srun --mpi=pmix | `PMIX_RANK` of `SLURM_STEP_NUM_TASKS` |
/// | srun --mpi=pmi2, mpiexec.hydra of MPICH and Intel MPI | `PMI_RANK` of `PMI_SIZE` |
/// | srun --mpi=none | `SLURM_PROCID` of `SLURM_STEP_NUM_TASKS` |
/// | mpiexec of MVAPICH2 | `MV2_COMM_WORLD_RANK` of `MV2_COMM_WORLD_SIZE` |
/// | mpiexec of Cray PALS | `PALS_RANKID` of `PMI_SIZE` |
/// | flux run | `FLUX_TASK_RANK` of `FLUX_JOB_SIZE` |
/// | torchrun | `RANK` of `WORLD_SIZE`, with `TORCHELASTIC_RUN_ID` |
///
/// A batch script of Slurm has `SLURM_PROCID` and `SLURM_NTASKS` and is one process; only the steps that
/// srun starts have `SLURM_STEP_NUM_TASKS`.
const LAUNCHERS: [Launcher; 9] = [
    Launcher {
        name: "mpirun",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        sign: "OMPI_COMM_WORLD_RANK",
        starts_mpi: true,
    },
    Launcher {
        name: "jsrun",
        rank: "JSM_NAMESPACE_RANK",
        size: "JSM_NAMESPACE_SIZE",
        local_size: "JSM_NAMESPACE_LOCAL_SIZE",
        sign: "JSM_NAMESPACE_RANK",
        starts_mpi: true,
    },
    Launcher {
        name: "mpiexec of MVAPICH2",
        rank: "MV2_COMM_WORLD_RANK",
        size: "MV2_COMM_WORLD_SIZE",
        local_size: "MV2_COMM_WORLD_LOCAL_SIZE",
        sign: "MV2_COMM_WORLD_RANK",
        starts_mpi: true,
    },
    Launcher {
        name: "mpiexec of Cray PALS",
        rank: "PALS_RANKID",
        size: "PMI_SIZE",
        local_size: "PMI_LOCAL_SIZE",
        sign: "PALS_RANKID",
        starts_mpi: true,
    },
    Launcher {
        name: "flux run",
        rank: "FLUX_TASK_RANK",
        size: "FLUX_JOB_SIZE",
        local_size: "",
        sign: "FLUX_TASK_RANK",
        starts_mpi: true,
    },
    Launcher {
        name: "srun --mpi=pmix",
        rank: "PMIX_RANK",
        size: "SLURM_STEP_NUM_TASKS",
        local_size: "SLURM_STEP_TASKS_PER_NODE",
        sign: "PMIX_RANK",
        starts_mpi: true,
    },
    Launcher {
        name: "mpiexec.hydra or srun --mpi=pmi2",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_size: "MPI_LOCALNRANKS",
        sign: "PMI_RANK",
        starts_mpi: true,
    },
    Launcher {
        name: "srun without MPI",
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local_size: "SLURM_STEP_TASKS_PER_NODE",
        sign: "SLURM_STEP_NUM_TASKS",
        starts_mpi: false,
    },
    Launcher {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local_size: "LOCAL_WORLD_SIZE",
        sign: "TORCHELASTIC_RUN_ID",
        starts_mpi: false,
    },
];

/// This process as one rank of those that a launcher started.
#[derive(Clone, Copy, Debug)]
pub struct Launched {
    launcher: &'static Launcher,
    rank: u32,
    /// The number of ranks, if the launcher tells it.
    size: Option<u32>,
    /// The number of ranks on this machine, if the launcher tells it.
    local_size: Option<u32>,
}

impl Launched {
    /// Returns the rank of this process; `None` when no launcher started it, or one without MPI started it
    /// alone.
    #[must_use]
    pub fn of_environment() -> Option<Self> {
        Self::of(&|name| std::env::var(name).ok())
    }

    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name| variable(name)?.parse::<u32>().ok();
        let launched = LAUNCHERS.iter().find_map(|launcher| {
            variable(launcher.sign)?;
            let [size, local_size] = [launcher.size, launcher.local_size].map(number);
            Some(Self { launcher, rank: number(launcher.rank)?, size, local_size })
        })?;
        (launched.launcher.starts_mpi || launched.size != Some(1)).then_some(launched)
    }

    /// The rank of this process.
    #[must_use]
    pub fn rank(self) -> u32 {
        self.rank
    }

    /// The number of ranks, if the launcher tells it.
    #[must_use]
    pub fn size(self) -> Option<u32> {
        self.size
    }

    /// Whether all ranks are known to run on this machine.
    #[must_use]
    pub fn is_on_one_machine(self) -> bool {
        self.size.is_some() && self.local_size == self.size
    }

    /// The name of the launcher.
    #[must_use]
    pub fn launcher(self) -> &'static str {
        self.launcher.name
    }

    /// Checks that MPI connects this process with the other ranks, when it counts `world` ranks; 1 is
    /// also the number without MPI.
    ///
    /// # Errors
    /// `InvalidArgument` when the launcher started several ranks and each is alone: each would do the
    /// work of all.
    pub fn check_connected(self, world: u32, remedy: &str) -> Result<()> {
        let Self { launcher, rank, size, .. } = self;
        let Launcher { name, rank: variable, size: of, sign, .. } = launcher;
        // A rank above 0 has others beside it, also where the launcher does not tell how many.
        if world > 1 || rank == 0 && size.is_none_or(|size| size <= 1) {
            return Ok(());
        }
        let (started, each) = match size {
            Some(size) => (format!("{rank} of {size}"), format!("each of {size} ranks")),
            None => (rank.to_string(), "each rank".to_owned()),
        };
        let variables =
            size.map_or_else(|| (*variable).to_owned(), |_| format!("{variable} of {of}"));
        Err(Error::invalid(format!(
            "expected rank {started} that {name} started ({variables}) to be connected with the others, \
             found it alone: {each} would fold all rows; {remedy}; to fold alone on purpose, unset {sign}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that has these variables.
    fn launched(variables: &[(&str, &str)]) -> Option<Launched> {
        Launched::of(&|name| {
            let (_, value) = variables.iter().find(|(own, _)| *own == name)?;
            Some((*value).to_owned())
        })
    }

    /// What a step of srun has, whichever MPI it was told.
    const STEP: [(&str, &str); 3] =
        [("SLURM_PROCID", "2"), ("SLURM_NTASKS", "4"), ("SLURM_STEP_NUM_TASKS", "4")];

    #[test]
    fn each_launcher_is_known_by_its_variables() {
        let mpirun = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")];
        // Below srun, whose step has a daemon on each of 7 machines.
        let daemons = [("PMIX_RANK", "2"), ("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "7")];
        let pmi = [("PMI_RANK", "2"), ("PMI_SIZE", "4")];
        for (name, variables) in [
            ("mpirun", mpirun.to_vec()),
            ("mpirun", [&daemons[..], &mpirun].concat()),
            ("jsrun", vec![("JSM_NAMESPACE_RANK", "2"), ("JSM_NAMESPACE_SIZE", "4")]),
            ("srun --mpi=pmix", [&STEP[..], &[("PMIX_RANK", "2")]].concat()),
            ("mpiexec.hydra or srun --mpi=pmi2", pmi.to_vec()),
            ("mpiexec.hydra or srun --mpi=pmi2", [&STEP[..], &pmi].concat()),
            ("srun without MPI", STEP.to_vec()),
            (
                "mpiexec of MVAPICH2",
                vec![("MV2_COMM_WORLD_RANK", "2"), ("MV2_COMM_WORLD_SIZE", "4")],
            ),
            ("mpiexec of Cray PALS", [&pmi[..], &[("PALS_RANKID", "2")]].concat()),
            ("flux run", [&pmi[..], &[("FLUX_TASK_RANK", "2"), ("FLUX_JOB_SIZE", "4")]].concat()),
            ("torchrun", vec![("RANK", "2"), ("WORLD_SIZE", "4"), ("TORCHELASTIC_RUN_ID", "none")]),
        ] {
            let found = launched(&variables).expect(name);
            assert_eq!((found.launcher(), found.rank(), found.size()), (name, 2, Some(4)));
            assert!(found.check_connected(4, "").is_ok());
            let alone = found.check_connected(1, "use another").unwrap_err().to_string();
            assert!(alone.contains(&format!("rank 2 of 4 that {name} started")), "{alone}");
            assert!(alone.contains("use another"), "{alone}");
        }
    }

    #[test]
    fn a_process_that_no_launcher_started_has_no_rank() {
        for variables in [
            vec![],
            // A batch script, and the shell of salloc.
            vec![("SLURM_PROCID", "0"), ("SLURM_NTASKS", "64"), ("SLURM_JOB_ID", "7")],
            vec![("SLURM_NTASKS", "64")],
            // Other programs use such names, too.
            vec![("RANK", "2"), ("WORLD_SIZE", "4")],
            vec![("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")],
            vec![("RANK", "0"), ("WORLD_SIZE", "1"), ("TORCHELASTIC_RUN_ID", "none")],
            vec![("OMPI_COMM_WORLD_RANK", "first")],
        ] {
            assert!(launched(&variables).is_none(), "{variables:?}");
        }
    }

    #[test]
    fn ranks_are_on_one_machine_if_the_launcher_says_so() {
        for (local, is_on_one) in [(Some("4"), true), (Some("2"), false), (None, false)] {
            let mut variables =
                vec![("RANK", "2"), ("WORLD_SIZE", "4"), ("TORCHELASTIC_RUN_ID", "7")];
            variables.extend(local.map(|local| ("LOCAL_WORLD_SIZE", local)));
            assert_eq!(launched(&variables).expect("a rank").is_on_one_machine(), is_on_one);
        }
        // Two ranks on each of two machines.
        let mut step = STEP.to_vec();
        step.push(("SLURM_STEP_TASKS_PER_NODE", "2(x2)"));
        assert!(!launched(&step).expect("a rank").is_on_one_machine());
        assert!(!launched(&[("PMIX_RANK", "3")]).expect("a rank").is_on_one_machine());
    }

    #[test]
    fn a_rank_above_0_is_refused_alone_also_without_a_size() {
        let found = launched(&[("PMIX_RANK", "3")]).expect("a rank");
        assert_eq!((found.rank, found.size), (3, None));
        assert!(found.check_connected(4, "").is_ok());
        let alone = found.check_connected(1, "").unwrap_err().to_string();
        assert!(alone.contains("rank 3 that srun --mpi=pmix started (PMIX_RANK)"), "{alone}");
        let first = launched(&[("PMIX_RANK", "0")]).expect("a rank");
        assert!(first.check_connected(1, "").is_ok());
    }
}
