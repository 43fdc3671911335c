//! What it costs to ask for the time: through the vDSO, through a system call, and straight from
//! the time-stamp counter, which is the least that any clock built on it can cost.
//!
//! Invariants:
//! - The rows called vDSO go through libc, as programs do. Whether libc and the kernel then stay in
//!   user space depends on the clock source, which the table names.
//! - Counter rows exist only where the instruction does; elsewhere they say so.

use std::time::Instant;

use crate::bench::loops::{Loop, loop_of};
use crate::bench::{Contest, Context, Table};
use crate::report::schema::{self, Row};

/// The table.
pub struct Clock;

const MONOTONIC: &str = "vdso-monotonic";

impl Table for Clock {
    fn id(&self) -> &'static str {
        "clock"
    }

    fn title(&self) -> &'static str {
        "Reading the clock"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let source = &cx.machine.clocksource;
        let contest = Contest::new(self, about(source))
            .source(
                "Andy Lutomirski, x86, vdso, pvclock: Simplify and speed up the vdso pvclock \
                 reader, 2015",
                "https://git.kernel.org/torvalds/c/6b078f5de7fc0851af4102493c7b5bb07e49c4cb",
                "the author's KVM guest, model not given",
            )
            .baseline(MONOTONIC)
            .cycles()
            .row(
                Row::new(MONOTONIC, "vDSO CLOCK_MONOTONIC")
                    .published(64.0, "ns", "kvm-clock before the change")
                    .published(19.0, "ns", "kvm-clock after the change"),
                vdso(libc::CLOCK_MONOTONIC),
            )
            .row(Row::new("vdso-realtime", "vDSO CLOCK_REALTIME"), vdso(libc::CLOCK_REALTIME))
            .row(
                Row::new("vdso-monotonic-raw", "vDSO CLOCK_MONOTONIC_RAW"),
                vdso(libc::CLOCK_MONOTONIC_RAW),
            )
            .row(Row::new("vdso-boottime", "vDSO CLOCK_BOOTTIME"), vdso(libc::CLOCK_BOOTTIME))
            .row(Row::new("vdso-tai", "vDSO CLOCK_TAI"), vdso(libc::CLOCK_TAI))
            .row(
                Row::new("vdso-coarse", "vDSO CLOCK_MONOTONIC_COARSE"),
                vdso(libc::CLOCK_MONOTONIC_COARSE),
            )
            .row(Row::new("time", "time()"), time())
            .row(Row::new("instant", "Rust Instant::now"), loop_of(Instant::now))
            .row(Row::new("syscall", "system call clock_gettime"), system_call());
        let contest = match slow_source(source) {
            Some(why) => contest.note(why),
            None => contest,
        };
        Ok(with_counter_rows(contest).measure(cx))
    }
}

fn about(clocksource: &str) -> String {
    let source = match clocksource {
        "" => "an unknown clock source".to_owned(),
        name => format!("the clock source {name}"),
    };
    format!(
        "The cost of one reading of the time under {source}. The counter rows are the floor: a \
         clock that reads the counter cannot be cheaper."
    )
}

/// Why the vDSO rows cost as much as a system call under this clock source.
fn slow_source(clocksource: &str) -> Option<String> {
    // Those whose counter user space can read and for which the vDSO has a reader.
    const READABLE: [&str; 6] = [
        "tsc",
        "kvm-clock",
        "hyperv_clocksource_tsc_page",
        "arch_sys_counter",
        "riscv_clocksource",
        "timebase",
    ];
    (!clocksource.is_empty() && !READABLE.contains(&clocksource)).then(|| {
        format!(
            "The vDSO cannot read the clock source {clocksource}, so every clock but the coarse \
             ones and time() makes a system call. If \
             /sys/devices/system/clocksource/clocksource0/available_clocksource lists tsc or \
             kvm-clock and the kernel did not mark it unstable, write that name to \
             current_clocksource beside it."
        )
    })
}

fn vdso(clock: libc::clockid_t) -> Loop<'static> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    loop_of(move || {
        // SAFETY: `time` is valid for writes; the clocks used here exist since Linux 3.10.
        unsafe { libc::clock_gettime(clock, &mut time) };
        time.tv_nsec
    })
}

fn time() -> Loop<'static> {
    // SAFETY: a null pointer is allowed: the time is returned only.
    loop_of(|| unsafe { libc::time(std::ptr::null_mut()) })
}

fn system_call() -> Loop<'static> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    loop_of(move || {
        // SAFETY: `time` is valid for writes of what the kernel writes, a timespec.
        unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
        time.tv_nsec
    })
}

const RDTSC: (&str, &str) = ("rdtsc", "rdtsc");
const LFENCE_RDTSC: (&str, &str) = ("lfence-rdtsc", "lfence; rdtsc");
const RDTSCP: (&str, &str) = ("rdtscp", "rdtscp");

fn counter_row((id, label): (&str, &str)) -> Row {
    Row::new(id, label)
}

#[cfg(target_arch = "x86_64")]
fn with_counter_rows(contest: Contest<Loop<'static>>) -> Contest<Loop<'static>> {
    use core::arch::x86_64::{__rdtscp, _mm_lfence, _rdtsc};

    use crate::machine::has_rdtscp;

    let contest = contest
        // SAFETY: every x86-64 has the counter, and Linux leaves it readable unless the process
        // asked for a fault (PR_SET_TSC), which nothing here does.
        .row(counter_row(RDTSC), loop_of(|| unsafe { _rdtsc() }))
        .row(
            counter_row(LFENCE_RDTSC),
            // SAFETY: as above; lfence belongs to SSE2, part of x86-64.
            loop_of(|| unsafe {
                _mm_lfence();
                _rdtsc()
            }),
        );
    if !has_rdtscp() {
        return contest.unavailable(counter_row(RDTSCP), "this processor has no rdtscp");
    }
    let mut aux = 0;
    // SAFETY: the processor has the instruction; `aux` is valid for writes.
    contest.row(counter_row(RDTSCP), loop_of(move || unsafe { __rdtscp(&mut aux) }))
}

#[cfg(not(target_arch = "x86_64"))]
fn with_counter_rows(contest: Contest<Loop<'static>>) -> Contest<Loop<'static>> {
    [RDTSC, LFENCE_RDTSC, RDTSCP].into_iter().fold(contest, |contest, row| {
        contest.unavailable(counter_row(row), "an instruction of x86 processors only")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::engine::Plan;
    use crate::report::schema::Machine;

    #[test]
    fn slow_clock_sources_are_explained() {
        assert_eq!(slow_source("tsc"), None);
        assert_eq!(slow_source("kvm-clock"), None);
        assert_eq!(slow_source(""), None);
        let why = slow_source("hpet").unwrap();
        assert!(why.contains("hpet") && why.contains("current_clocksource"), "{why}");
        assert!(about("tsc").contains("clock source tsc"));
    }

    #[test]
    fn every_row_is_measured_or_explained() {
        let machine = Machine { clocksource: "acpi_pm".to_owned(), ..Machine::default() };
        let plan = Plan { round: Duration::from_micros(50), rounds: 5, ..Plan::QUICK };
        let table = Clock.run(&mut Context::new(plan, &machine)).unwrap();
        assert_eq!(table.rows.len(), 12);
        for row in &table.rows {
            assert_eq!(row.points.is_empty(), row.unavailable.is_some(), "{}", row.id);
            for point in &row.points {
                assert!(point.stat.median > 0.0 && point.ratio.is_some(), "{}", row.id);
            }
        }
        assert!(table.notes.iter().any(|note| note.contains("acpi_pm")), "{:?}", table.notes);
    }
}
