//! What decides about the fast paths and is not the library's to ask.

use std::{env, fs};

use corelocal_support::machine;
use serde::Serialize;

use super::clock_state::Clock;

/// The facts of the machine that findings depend on. Unknown ones are empty or false.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Surroundings {
    /// The C library and its version.
    pub libc: String,
    /// The vendor string of the hypervisor; empty on bare metal.
    pub hypervisor: String,
    /// The kernel's current clock source.
    pub clocksource: String,
    /// The state of this process's clock.
    pub clock: Clock,
    /// A seccomp filter is installed.
    pub seccomp: bool,
    /// The program runs under valgrind, which has no rseq.
    pub valgrind: bool,
    /// The kernel is gVisor's.
    pub gvisor: bool,
    /// Whether `GLIBC_TUNABLES` keeps libc from registering threads.
    pub rseq_tunable_off: bool,
}

impl Surroundings {
    /// Asks /proc, /sys and the environment.
    pub fn read() -> Surroundings {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let variable = |name: &str| env::var_os(name).unwrap_or_default();
        let status = read("/proc/self/status");
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        let tunables = variable("GLIBC_TUNABLES").to_string_lossy().into_owned();
        Surroundings {
            libc: machine::libc_version(),
            hypervisor: machine::hypervisor(),
            clocksource: machine::clocksource(),
            clock: Clock::look(),
            seccomp: mode.is_some_and(|mode| mode.trim() != "0"),
            valgrind: variable("LD_PRELOAD").to_string_lossy().contains("vgpreload"),
            gvisor: read("/proc/version").contains("gVisor"),
            rseq_tunable_off: tunables.split(':').any(|one| one == "glibc.pthread.rseq=0"),
        }
    }
}
