//! The clock: which back-end reads it, why not a better one, and what to do.
//!
//! Invariant: that of `findings.rs`.

use corelocal::clock::{Backend, Cause, Source};
use corelocal::sys::Caps;
use corelocal_support::clock::{counter, labels};

use super::clock_state::Clock;
use super::finding::{Finding, State};
use super::surroundings::Surroundings;

const NAME: &str = "clock";

/// The clock sources that the vDSO can read in user space.
const READABLE: [&str; 5] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "unknown"];

/// Returns the finding.
pub fn finding(caps: &Caps, around: &Surroundings) -> Finding {
    let clock = &around.clock;
    let source = match around.clocksource.as_str() {
        "" => "unknown",
        source => source,
    };
    let kept = match clock.synchronised {
        Some(true) => "; synchronised",
        Some(false) => "; not synchronised, so times have no error bounds",
        None => "",
    };
    let vdso = if caps.vdso.clock_gettime { "clock_gettime" } else { "none" };
    let offered = format!("clock source {source}; vDSO: {vdso}{kept}");
    let used = match clock.backend {
        Backend::KernelPage => format!("{}: exact, no call", serving(clock)),
        Backend::Paravirtual | Backend::Anchor => format!("{}: within some 20 ns", serving(clock)),
        _ if clock.limit.as_deref() == Some("libc") => "clock_gettime by libc".to_owned(),
        _ if !caps.vdso.clock_gettime || !READABLE.contains(&source) => {
            "clock_gettime, a system call".to_owned()
        }
        _ => "clock_gettime by the vDSO".to_owned(),
    };
    let finding = Finding::new(NAME, used, offered);
    if clock.backend == Backend::KernelPage {
        return Finding { why: clock.doubts(), ..finding };
    }
    let degraded =
        |why: String, remedy: &str| finding.clone().but(State::Degraded, why, Some(remedy));
    if let Some(limit) = &clock.limit {
        let why = format!("CORELOCAL_CLOCK={limit} limits the back-end");
        return degraded(why, "unset CORELOCAL_CLOCK");
    }
    if !caps.vdso.clock_gettime {
        let why = "this process has no vDSO (valgrind, or booted with vdso=0)";
        return degraded(why.to_owned(), "boot without vdso=0");
    }
    if !READABLE.contains(&source) {
        return degraded(
            format!("the clock source {source} cannot be read from user space"),
            "choose tsc or kvm-clock in /sys/devices/system/clocksource/clocksource0/",
        );
    }
    if !counter::IS_READ {
        let why = "the clock is read in place on x86-64 and aarch64 only";
        return finding.but(State::Absent, why, None);
    }
    match (clock.doubts(), clock.fallbacks.first()) {
        (Some(doubts), Some((cause, _))) => degraded(doubts, remedy(*cause)),
        _ => degraded("it has not settled".to_owned(), "run this again on a quieter machine"),
    }
}

fn serving(clock: &Clock) -> String {
    let fence = labels::ordering(clock.fence);
    let source = match clock.source {
        Source::Pvclock if clock.backend == Backend::KernelPage => " with KVM's page",
        _ => "",
    };
    format!("{}{source}{fence}", labels::reads(clock.backend))
}

fn remedy(cause: Cause) -> &'static str {
    match cause {
        Cause::UnknownLayout => {
            "run a kernel from Linux 5.10 to 7.2, whose layouts are known, or report this one with the \
             output of `corelocal clock --json`"
        }
        Cause::Inconsistent => "report it with the output of `corelocal clock --json`",
        Cause::UpdateStalled => {
            "start the program again, or let it call clock::settle(): a virtual cpu was stopped in \
             the middle of an update"
        }
        Cause::SourceSwitched => {
            "choose a clock source once, before the program starts; or let it call clock::settle()"
        }
        Cause::Unsynchronised => {
            "choose tsc in /sys/devices/system/clocksource/clocksource0/, if the kernel trusts it"
        }
        Cause::TimeNamespace => "run it outside of the time namespace for speed",
        Cause::NoResources => "raise the limits of memory and of open files (ulimit -v, ulimit -n)",
        _ => "see `corelocal clock`",
    }
}

#[cfg(test)]
mod tests;
