//! What it costs to ask for the time: through the vDSO, through a system call, by crates that promise
//! to be faster, by ours, and straight from the time-stamp counter, which is the least that any clock
//! built on it can cost. And how far each runs away from the kernel's clock meanwhile.
//!
//! Invariants:
//! - The rows called vDSO go through libc, as programs do. Whether libc and the kernel then stay in
//!   user space depends on the clock source, which the table names.
//! - Counter rows exist only where the instruction does; elsewhere they say so.
//! - Ours are measured after they have settled on a back-end, which the table names.

pub mod convert;
pub mod foreign;
pub mod pages;
pub mod pvclock;
pub mod start;
mod watched;

use std::time::Instant;

use corelocal::clock;
use corelocal_support::clock::labels;
use corelocal_support::clock::offset::kernel;
use corelocal_support::measure::loops::{Loop, loop_of, repeating};
use corelocal_support::schema::{self, Row};

use self::watched::{DRIFT, Watched, watched};
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct Clock;

const MONOTONIC: &str = "vdso-monotonic";

/// Rounds are so many times fewer than elsewhere: there are many rows.
pub const FEWER: usize = 2;

impl Table for Clock {
    fn id(&self) -> &'static str {
        "clock"
    }

    fn title(&self) -> &'static str {
        "Reading the clock"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        cx.plan.rounds /= FEWER;
        let source = &cx.machine.clocksource;
        let contest = Contest::new(self, about(source))
            .baseline(MONOTONIC)
            .tile("Reading the clock", "ours-now", &["instant"])
            .row(Row::new(MONOTONIC, "vDSO CLOCK_MONOTONIC"), vdso(libc::CLOCK_MONOTONIC))
            .row(Row::new("vdso-realtime", "vDSO CLOCK_REALTIME"), vdso(libc::CLOCK_REALTIME))
            .row(
                Row::new("vdso-monotonic-raw", "vDSO CLOCK_MONOTONIC_RAW"),
                vdso(libc::CLOCK_MONOTONIC_RAW),
            )
            .row(Row::new("vdso-boottime", "vDSO CLOCK_BOOTTIME"), vdso(libc::CLOCK_BOOTTIME))
            .row(Row::new("vdso-tai", "vDSO CLOCK_TAI"), vdso(libc::CLOCK_TAI))
            .row(
                Row::new("vdso-coarse", "vDSO CLOCK_MONOTONIC_COARSE"),
                coarse_vdso(libc::CLOCK_MONOTONIC_COARSE),
            )
            .row(Row::new("time", "time()"), time())
            .row(Row::new("instant", "Rust Instant::now"), {
                let first = Instant::now();
                watched(loop_of(Instant::now), move || first.elapsed().as_nanos() as u64)
            })
            .row(Row::new("syscall", "system call clock_gettime"), system_call());
        let contest = match slow_source(source) {
            Some(why) => contest.note(why),
            None => contest,
        };
        let contest = with_ours(with_rivals(with_counter_rows(contest)));
        Ok(contest.measure(cx))
    }
}

/// Crates that promise to be faster than the vDSO, and Abseil.
fn with_rivals(contest: Contest<Watched>) -> Contest<Watched> {
    let contest = contest.row(Row::new("quanta", "quanta Instant::now"), {
        let first = quanta::Instant::now();
        watched(loop_of(quanta::Instant::now), move || first.elapsed().as_nanos() as u64)
    });
    let contest = ["minstant", "fastant"].into_iter().fold(contest, |contest, name| {
        let row = |how: &str| Row::new(name, format!("{name} Instant::now{how}"));
        match foreign::load_clock(name) {
            Err(why) => contest.unavailable(row(""), format!("{why:#}")),
            Ok(rival) => {
                let how = if rival.is_fast { "" } else { ", by the system's clock" };
                let run = repeating(move |times| (rival.reads)(times));
                contest.row(row(how), watched(run, move || (rival.nanos)()))
            }
        }
    });
    let contest = contest
        .row(
            Row::new("coarsetime", "coarsetime Instant::now"),
            loop_of(coarsetime::Instant::now).into(),
        )
        .row(
            Row::new("coarsetime-recent", "coarsetime Instant::recent"),
            loop_of(coarsetime::Instant::recent).into(),
        );
    let row = Row::new("absl", "absl::GetCurrentTimeNanos");
    match foreign::absl() {
        Err(why) => contest.unavailable(row, format!("{why:#}")),
        Ok(now) => contest.row(row, watched(loop_of(move || now()), move || now() as u64)),
    }
}

fn with_ours(contest: Contest<Watched>) -> Contest<Watched> {
    clock::settle();
    let status = clock::status();
    let contest = contest
        .note(format!("corelocal reads {}.", labels::serving(&status)))
        .row(
            Row::ours("ours-monotonic", "corelocal monotonic()"),
            watched(loop_of(clock::monotonic), clock::monotonic),
        )
        .row(
            Row::ours("ours-unordered", "corelocal monotonic_unordered()"),
            watched(loop_of(clock::monotonic_unordered), clock::monotonic_unordered),
        )
        .row(
            Row::ours("ours-now", "corelocal now()"),
            watched(loop_of(clock::now), || clock::now().as_nanos() as u64),
        )
        .row(
            Row::ours("ours-realtime", "corelocal realtime()"),
            watched(loop_of(clock::realtime), clock::realtime),
        )
        .row(Row::ours("ours-coarse", "corelocal coarse()"), loop_of(clock::coarse).into())
        .row(Row::ours("ours-ticks", "corelocal Ticks::now"), loop_of(clock::Ticks::now).into())
        .row(
            Row::ours("ours-bounded", "corelocal now_bounded()"),
            loop_of(clock::now_bounded).into(),
        );
    let contest = match clock::now_bounded() {
        Ok(_) => contest,
        Err(why) => contest.note(format!("now_bounded() says: {why}.")),
    };
    if status.fallbacks.total() == 0 {
        return contest;
    }
    contest.note(labels::fallbacks(&status))
}

fn about(clocksource: &str) -> String {
    let source = match clocksource {
        "" => "an unknown clock source".to_owned(),
        name => format!("the clock source {name}"),
    };
    format!(
        "The cost of one reading of the time under {source}. The counter rows are the minimum for a clock that \
         reads the counter. {DRIFT}: the drift from CLOCK_MONOTONIC while the table was measured; 0 if there \
         may have been none."
    )
}

/// Returns why the vDSO rows cost as much as a system call under this clock source.
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
            "The vDSO cannot read the clock source {clocksource}, so every clock except the coarse ones and \
             time() makes a system call. If /sys/devices/system/clocksource/clocksource0/available_clocksource \
             lists tsc or kvm-clock and the kernel did not mark it unstable, write that name to \
             current_clocksource beside it."
        )
    })
}

fn vdso(clock: libc::clockid_t) -> Watched {
    watched(clock_gettime(clock), move || kernel(clock))
}

/// Leaves it unwatched: it stands still between ticks.
fn coarse_vdso(clock: libc::clockid_t) -> Watched {
    clock_gettime(clock).into()
}

fn clock_gettime(clock: libc::clockid_t) -> Loop<'static> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    loop_of(move || {
        // SAFETY: `time` is valid for writes; the clocks used here exist since Linux 3.10.
        unsafe { libc::clock_gettime(clock, &mut time) };
        time.tv_nsec
    })
}

fn time() -> Watched {
    // SAFETY: a null pointer is allowed: the time is returned only.
    loop_of(|| unsafe { libc::time(std::ptr::null_mut()) }).into()
}

fn system_call() -> Watched {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    loop_of(move || {
        // SAFETY: `time` is valid for writes of what the kernel writes, a timespec.
        unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
        time.tv_nsec
    })
    .into()
}

const RDTSC: (&str, &str) = ("rdtsc", "rdtsc");
const LFENCE_RDTSC: (&str, &str) = ("lfence-rdtsc", "lfence; rdtsc");
const RDTSCP: (&str, &str) = ("rdtscp", "rdtscp");

fn counter_row((id, label): (&str, &str)) -> Row {
    Row::new(id, label)
}

#[cfg(target_arch = "x86_64")]
fn with_counter_rows(contest: Contest<Watched>) -> Contest<Watched> {
    use core::arch::x86_64::{__rdtscp, _mm_lfence, _rdtsc};

    use corelocal_support::machine::has_rdtscp;

    let contest = contest
        // SAFETY: every x86-64 has the counter, and Linux leaves it readable unless the process
        // asked for a fault (PR_SET_TSC), which nothing here does.
        .row(counter_row(RDTSC), loop_of(|| unsafe { _rdtsc() }).into())
        .row(
            counter_row(LFENCE_RDTSC),
            // SAFETY: the counter is readable: every x86-64 has it, and nothing here sets PR_SET_TSC. lfence belongs
            // to SSE2, part of x86-64.
            loop_of(|| unsafe {
                _mm_lfence();
                _rdtsc()
            })
            .into(),
        );
    if !has_rdtscp() {
        return contest.unavailable(counter_row(RDTSCP), "this processor has no rdtscp");
    }
    let mut aux = 0;
    // SAFETY: the processor has the instruction; `aux` is valid for writes.
    contest.row(counter_row(RDTSCP), loop_of(move || unsafe { __rdtscp(&mut aux) }).into())
}

#[cfg(not(target_arch = "x86_64"))]
fn with_counter_rows(contest: Contest<Watched>) -> Contest<Watched> {
    [RDTSC, LFENCE_RDTSC, RDTSCP].into_iter().fold(contest, |contest, row| {
        contest.unavailable(counter_row(row), "an instruction of x86 processors only")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

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
        assert_eq!(table.rows.len(), 25);
        for row in &table.rows {
            assert_eq!(row.points.is_empty(), row.unavailable.is_some(), "{}", row.id);
            for point in &row.points {
                assert!(point.stat.median > 0.0 && point.ratio.is_some(), "{}", row.id);
            }
        }
        assert!(table.notes.iter().any(|note| note.contains("acpi_pm")), "{:?}", table.notes);
    }
}
