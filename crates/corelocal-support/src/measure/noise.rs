//! How noisy the machine was during a measurement, and what to do about it.
//!
//! Steal is the time that the hypervisor gave to other guests while this machine wanted to run. The others' share is
//! the cpu time of other programs here. Involuntary switches are how often the kernel preempted the measuring thread.
//! All of them make figures worse independently of the contestant.
//!
//! Invariant: observing never fails; values that the system does not provide are `None` or zero.

use std::fs;
use std::time::{Duration, Instant};

use crate::schema::Noise;

/// Above this share of stolen time, medians of short rounds begin to move.
const STEAL_LIMIT: f64 = 0.02;

/// Above this share of the machine, threads no longer get the cpus they would have had.
const OTHERS_LIMIT: f64 = 0.1;

/// The kernel counts in ticks of 10 ms; shares of fewer ticks than this may be rounding.
const TICKS_LIMIT: f64 = 3.0;

/// Every switch spoils one round at most; below this rate the quartiles do not notice.
const SWITCH_LIMIT: f64 = 50.0;

/// An observation that has begun.
pub struct Watch {
    start: Instant,
    reading: Option<Reading>,
    /// `None` when several threads share the measurement: they preempt each other by design.
    switches: Option<libc::c_long>,
    cpu: Option<usize>,
}

impl Watch {
    /// Begins to watch. `cpu` is the one that the measuring thread is pinned to, `single` tells whether it measures
    /// alone.
    pub fn start(single: bool, cpu: Option<usize>) -> Self {
        Self {
            start: Instant::now(),
            reading: Reading::now(cpu),
            switches: single.then(|| usage(libc::RUSAGE_THREAD).ru_nivcsw),
            cpu,
        }
    }

    /// Ends, on the thread that began.
    pub fn finish(self) -> Noise {
        let wall_s = self.start.elapsed().as_secs_f64();
        let readings = self.reading.zip(Reading::now(self.cpu));
        let now = || usage(libc::RUSAGE_THREAD).ru_nivcsw;
        let switches = self.switches.map_or(0, |from| now() - from);
        Noise {
            wall_s,
            steal: readings.map(|(from, to)| from.watched.stolen_until(to.watched)),
            others: readings.map(|(from, to)| from.others_until(to, wall_s)),
            involuntary_per_s: if wall_s > 0.0 { switches as f64 / wall_s } else { 0.0 },
            pinned: self.cpu,
        }
    }
}

/// Clock ticks of one line of `/proc/stat` (see `proc_stat(5)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    steal: u64,
}

impl Ticks {
    /// Returns the line of one cpu, or of all of them.
    fn parse(stat: &str, cpu: Option<usize>) -> Option<Self> {
        let name = cpu.map_or("cpu".to_owned(), |cpu| format!("cpu{cpu}"));
        let mut lines = stat.lines().map(|line| line.split_ascii_whitespace());
        let fields: Vec<u64> = lines.find_map(|mut words| {
            (words.next()? == name).then(|| words.map_while(|word| word.parse().ok()).collect())
        })?;
        let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = fields[..] else {
            return None;
        };
        Some(Self { busy: user + nice + system + irq + softirq, steal })
    }

    /// Returns the share of the time with runnable threads that the hypervisor gave to other guests.
    fn stolen_until(self, to: Self) -> f64 {
        let steal = to.steal.saturating_sub(self.steal) as f64;
        let busy = to.busy.saturating_sub(self.busy) as f64;
        if steal > 0.0 { steal / (steal + busy) } else { 0.0 }
    }
}

/// The whole machine and this program at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    /// The ticks of the watched cpus: the one measured on, or all.
    watched: Ticks,
    all: Ticks,
    cpus: usize,
    /// Cpu time of this process and of the children it has waited for.
    own_s: f64,
}

impl Reading {
    fn now(cpu: Option<usize>) -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let own = cpu_time(&usage(libc::RUSAGE_SELF)) + cpu_time(&usage(libc::RUSAGE_CHILDREN));
        Some(Self {
            watched: Ticks::parse(&stat, cpu)?,
            all: Ticks::parse(&stat, None)?,
            cpus: stat.lines().filter(|l| l.starts_with("cpu") && !l.starts_with("cpu ")).count(),
            own_s: own.as_secs_f64(),
        })
    }

    /// Returns the share of all cpus' time that was used, and not by us.
    fn others_until(self, to: Self, wall_s: f64) -> f64 {
        let busy_s = to.all.busy.saturating_sub(self.all.busy) as f64 / ticks_per_s();
        let share = (busy_s - (to.own_s - self.own_s)) / (wall_s * self.cpus as f64);
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

fn ticks_per_s() -> f64 {
    // SAFETY: takes an integer and returns one.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

fn usage(of: libc::c_int) -> libc::rusage {
    // SAFETY: all-zero bytes are a valid rusage, which is plain integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writes; on an error it stays zero.
    unsafe { libc::getrusage(of, &mut usage) };
    usage
}

fn cpu_time(usage: &libc::rusage) -> Duration {
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Returns `true` if other programs or guests disturbed a measurement.
pub fn is_disturbed(noise: &Noise) -> bool {
    advice(noise).is_some()
}

/// Returns `true` if one was disturbed less than another.
pub fn is_quieter(noise: &Noise, than: &Noise) -> bool {
    let amount = |noise: &Noise| {
        let shares =
            noise.steal.unwrap_or(0.0) / STEAL_LIMIT + noise.others.unwrap_or(0.0) / OTHERS_LIMIT;
        shares + noise.involuntary_per_s / SWITCH_LIMIT
    };
    amount(noise) < amount(than)
}

/// Returns the noise of several measurements together, weighted by their time.
pub fn of_all(noises: &[Noise]) -> Noise {
    let wall_s: f64 = noises.iter().map(|noise| noise.wall_s).sum();
    let mean = |value: &dyn Fn(&Noise) -> Option<f64>| {
        let weighted = noises.iter().map(|noise| Some(value(noise)? * noise.wall_s));
        Some(weighted.sum::<Option<f64>>()? / wall_s).filter(|mean| mean.is_finite())
    };
    Noise {
        wall_s,
        steal: mean(&|noise| noise.steal),
        others: mean(&|noise| noise.others),
        involuntary_per_s: mean(&|noise| Some(noise.involuntary_per_s)).unwrap_or(0.0),
        pinned: noises.first().and_then(|noise| noise.pinned),
    }
}

/// Returns what is wrong and what to do; `None` when the machine was quiet enough.
pub fn advice(noise: &Noise) -> Option<String> {
    let mut parts = Vec::new();
    let beyond = |share: Option<f64>, limit: f64| {
        share.filter(|share| *share > limit && share * noise.wall_s * 100.0 >= TICKS_LIMIT)
    };
    if let Some(steal) = beyond(noise.steal, STEAL_LIMIT) {
        parts.push(format!(
            "The hypervisor gave {:.0} % of this machine's cpu time to other guests: run again at \
             a quieter hour, or on a machine with dedicated cpus.",
            steal * 100.0
        ));
    }
    if let Some(others) = beyond(noise.others, OTHERS_LIMIT) {
        parts.push(format!(
            "Other programs used {:.0} % of the machine's cpu time: stop them, and run again.",
            others * 100.0
        ));
    }
    if noise.involuntary_per_s > SWITCH_LIMIT {
        let away = noise.pinned.map(|cpu| format!(" or move them off cpu {cpu}"));
        parts.push(format!(
            "The measuring thread lost its cpu {:.0} times per second: stop other programs{}, and \
             run again.",
            noise.involuntary_per_s,
            away.unwrap_or_default()
        ));
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}

#[cfg(test)]
mod tests;
