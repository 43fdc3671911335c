//! The arguments of `lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    /// The command of `lab`.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// The commands of `lab`.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// List the models
    List,
    /// Search all interleavings of models, and show the shortest schedule to what is wrong
    Explore(ExploreArgs),
    /// Explore a scenario from a file, or a shipped one
    Run(ScenarioArgs),
    /// Run models at random, and show what their steps cost
    Simulate(SimulateArgs),
    /// Show how many concurrency ids and how much per-core memory a process uses, under each kernel's policy
    Plan(PlanArgs),
}

/// Arguments of `lab run`.
#[derive(Debug, Args)]
pub struct ScenarioArgs {
    /// A file, or the name of a shipped scenario
    #[arg(value_name = "FILE.toml", required_unless_present = "list")]
    pub file: Option<PathBuf>,
    /// List the shipped scenarios
    #[arg(long, conflicts_with = "file")]
    pub list: bool,
    /// Print a shipped scenario, as a beginning for one's own
    #[arg(long, conflicts_with = "list")]
    pub print: bool,
    /// The way of searching, and the output.
    #[command(flatten)]
    pub search: SearchArgs,
}

/// Arguments of `lab explore`.
#[derive(Debug, Args)]
pub struct ExploreArgs {
    /// Models as `lab list` names them, or the first part of their names (cid, futex, pvclock, rseq)
    #[arg(value_name = "MODEL", required = true)]
    pub models: Vec<String>,
    /// The way of searching, and the output.
    #[command(flatten)]
    pub search: SearchArgs,
}

/// The options of `lab explore` and `lab run` for the search.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Search only schedules that preempt a thread which could go on at most so many times
    #[arg(long, value_name = "N")]
    pub preemptions: Option<u8>,
    /// Give up after so many states (about 150 bytes of memory each)
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    pub states: usize,
    /// Count symmetric states singly
    #[arg(long)]
    pub no_symmetry: bool,
    /// Also write a page with a sequence diagram of each failure
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write the sequence diagram of the failure, of one model
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Containers of a machine, as TOML: cpus, kernel, and a list `[[container]]` with name, allowed, threads
    #[arg(value_name = "FILE.toml", conflicts_with_all = ["cpus", "allowed", "once_allowed", "threads", "kernel"])]
    pub file: Option<PathBuf>,
    /// The number of possible cpus [default: this machine's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8192))]
    pub cpus: Option<u32>,
    /// The cpus that the process may run on: 0-15,32 [default: all, or this process's]
    #[arg(long, value_name = "LIST")]
    pub allowed: Option<String>,
    /// Cpus that it was allowed to run on before
    #[arg(long, value_name = "LIST")]
    pub once_allowed: Option<String>,
    /// The number of its threads [default: one for each allowed cpu]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub threads: Option<u32>,
    /// A kernel version, to be marked: 6.12
    #[arg(long, value_name = "VERSION")]
    pub kernel: Option<String>,
    /// Mark the kernel of this machine
    #[arg(long, conflicts_with_all = ["cpus", "kernel", "file"])]
    pub this_machine: bool,
    /// Also write a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Models as `lab list` names them, or the first part of their names (cid, futex, pvclock, rseq)
    #[arg(value_name = "MODEL", required = true)]
    pub models: Vec<String>,
    /// The same seed gives the same steps
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// How many steps
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub steps: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
