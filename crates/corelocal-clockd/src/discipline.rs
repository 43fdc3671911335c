//! The state of the clock's synchronisation: whether a daemon maintains it, its maximum error, and the next leap
//! second. This file reads it from the kernel, where the daemon (chrony, ntpd, systemd-timesyncd) has stored it.
//!
//! Invariant: bounds are rounded outwards.

use std::io;

use corelocal::clock::page::{Leap, Status};

use super::bound::{self, Report};

/// The source of the information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// The kernel.
    #[default]
    Kernel,
    /// chronyd.
    Chrony,
    /// The command line, whatever happens.
    User,
}

/// The known error of the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Discipline {
    /// Whether the clock is kept right.
    pub status: Status,
    /// The maximum error in nanoseconds: now, or at the report if there is one.
    pub max_error_ns: u64,
    /// The estimated error, in nanoseconds.
    pub estimated_error_ns: Option<u64>,
    /// The maximum error of the known rate, in parts per billion.
    pub drift_ppb: u32,
    /// The rate at which the kernel's clock is being slewed besides, in parts per billion.
    pub slew_ppb: u32,
    /// The report that error and rate come from, if not from the kernel.
    pub report: Option<Report>,
    /// A leap second nearby.
    pub leap: Leap,
    /// TAI - UTC, if anybody told the kernel.
    pub tai_offset: Option<i16>,
    /// The kernel's greatest error, which falls only when a daemon tells a new one.
    pub told_ns: u64,
    /// Whether the kernel has no maximum error since the clock was set.
    pub is_reset: bool,
    /// The time of the last comparison with other clocks, in nanoseconds since 1970, if it is known.
    pub measured: Option<u64>,
    /// The source of the information.
    pub whose: Whose,
}

/// The rate error of the worst oscillator by the kernel's assumption (`MAXFREQ`), in parts per billion.
pub const WORST_PPB: u32 = 500_000;

/// The kernel's greatest error when the clock was just set (`NTP_PHASE_LIMIT`), in nanoseconds.
const RESET_NS: u64 = 16_000_000_000;

/// The answer of `adjtimex(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kernel {
    /// Whether a daemon maintains the clock.
    pub is_kept: bool,
    /// Whether no error was told since the clock was set.
    pub is_reset: bool,
    /// The greatest error as it was told, with what the kernel let it grow by since.
    pub told_ns: u64,
    /// The greatest error now, in nanoseconds.
    pub max_error_ns: u64,
    /// In nanoseconds.
    pub estimated_error_ns: u64,
    /// In parts per billion.
    pub drift_ppb: u32,
    /// A leap second nearby.
    pub leap: Leap,
    /// TAI - UTC.
    pub tai_offset: Option<i16>,
    /// The correction of the clock's rate, in parts per million.
    pub rate_ppm: f64,
}

impl Kernel {
    /// Asks.
    ///
    /// # Errors
    /// What the kernel answered: `EPERM` under some seccomp filters.
    pub fn query() -> io::Result<Kernel> {
        // SAFETY: integers, of which zero is a value; no mode: nothing is set.
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: valid for reads and writes.
        let state = unsafe { libc::adjtimex(&mut timex) };
        if state < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Kernel::of(state, &timex))
    }

    fn of(state: libc::c_int, timex: &libc::timex) -> Kernel {
        // `c_long`, whose width differs.
        let nanos = |micros: libc::c_long| u64::try_from(micros).unwrap_or(0).saturating_mul(1000);
        // Parts per million, times 2^16.
        const UNIT: f64 = 65_536.0;
        let tolerance = u64::try_from(timex.tolerance).unwrap_or(0);
        let drift = (tolerance.saturating_mul(1000)).div_ceil(1 << 16);
        // Microseconds of a tick, of which there are a hundred in a second.
        let tick = (timex.tick as f64 - 10_000.0) * 100.0;
        let drift = if drift == 0 { WORST_PPB } else { u32::try_from(drift).unwrap_or(WORST_PPB) };
        // The kernel lets its error grow at the first tick of a second, up to 10 ms late, and its clock is off
        // besides by what it is told to slew by. Without STA_NANO, times are cut off at a microsecond.
        const TICK: u64 = 10_000_000;
        let is_nano = timex.status & libc::STA_NANO != 0;
        let unit = if is_nano { 1 } else { 1000 };
        let into_second = u64::try_from(timex.time.tv_usec).unwrap_or(0).saturating_mul(unit);
        let pending = timex.offset.unsigned_abs().saturating_mul(unit);
        let cut = if is_nano { 0 } else { unit };
        let grown = bound::growth(into_second.saturating_add(TICK), drift);
        Kernel {
            is_kept: state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0,
            is_reset: nanos(timex.maxerror) >= RESET_NS,
            told_ns: nanos(timex.maxerror),
            max_error_ns: nanos(timex.maxerror).saturating_add(pending).saturating_add(grown + cut),
            estimated_error_ns: nanos(timex.esterror),
            drift_ppb: drift,
            leap: match state {
                libc::TIME_INS => Leap::InsertionAhead,
                libc::TIME_DEL => Leap::DeletionAhead,
                libc::TIME_OOP => Leap::Inserting,
                _ => Leap::None,
            },
            tai_offset: i16::try_from(timex.tai).ok().filter(|tai| *tai != 0),
            rate_ppm: tick + timex.freq as f64 / UNIT,
        }
    }
}

impl From<Kernel> for Discipline {
    fn from(kernel: Kernel) -> Discipline {
        Discipline {
            status: if kernel.is_kept { Status::Synchronized } else { Status::Unknown },
            max_error_ns: kernel.max_error_ns,
            estimated_error_ns: Some(kernel.estimated_error_ns),
            drift_ppb: kernel.drift_ppb,
            slew_ppb: bound::ppb(kernel.rate_ppm.abs() * 1e-6),
            report: None,
            leap: kernel.leap,
            tai_offset: kernel.tai_offset,
            is_reset: kernel.is_reset,
            told_ns: kernel.told_ns,
            measured: None,
            whose: Whose::Kernel,
        }
    }
}

impl Discipline {
    /// Returns one that is right to within this, whatever anybody was told.
    pub fn trusted_to(self, max_error_ns: u64) -> Discipline {
        Discipline {
            status: Status::Synchronized,
            max_error_ns,
            estimated_error_ns: None,
            whose: Whose::User,
            ..self
        }
    }

    /// Returns what holds when the kernel does not answer.
    pub fn unknown() -> Discipline {
        let kernel = Kernel { drift_ppb: WORST_PPB, ..Kernel::default() };
        Discipline { estimated_error_ns: None, ..Discipline::from(kernel) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timex() -> libc::timex {
        // SAFETY: integers.
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        timex.maxerror = 1234;
        timex.esterror = 56;
        timex.tolerance = 500 << 16;
        timex.tai = 37;
        timex
    }

    fn of(state: libc::c_int, timex: &libc::timex) -> Discipline {
        Discipline::from(Kernel::of(state, timex))
    }

    #[test]
    fn units_and_states() {
        let kept = of(libc::TIME_INS, &timex());
        assert_eq!(kept.status, Status::Synchronized);
        assert_eq!(
            (kept.max_error_ns, kept.estimated_error_ns),
            (1_234_000 + 5_000 + 1_000, Some(56_000))
        );
        assert_eq!(kept.told_ns, 1_234_000);
        assert_eq!((kept.drift_ppb, kept.leap), (500_000, Leap::InsertionAhead));
        assert_eq!(kept.tai_offset, Some(37));
        let mut alone = timex();
        alone.status = libc::STA_UNSYNC;
        alone.tai = 0;
        let alone = of(libc::TIME_OK, &alone);
        assert_eq!((alone.status, alone.tai_offset), (Status::Unknown, None));
        assert_eq!(of(libc::TIME_ERROR, &timex()).status, Status::Unknown);
        let mut set = timex();
        set.maxerror = 16_000_000;
        assert!(of(libc::TIME_ERROR, &set).is_reset && !kept.is_reset);
        let mut rate = timex();
        (rate.tick, rate.freq) = (10_001, -(3 << 15));
        assert_eq!(Kernel::of(libc::TIME_OK, &rate).rate_ppm, 98.5);
        let trusted = alone.trusted_to(5_000);
        assert_eq!((trusted.status, trusted.max_error_ns), (Status::Synchronized, 5_000));
    }

    #[test]
    fn the_kernel_answers() {
        match Kernel::query() {
            Ok(here) => assert!(here.drift_ppb > 0),
            Err(error) => eprintln!("skipped: the_kernel_answers: adjtimex: {error}"),
        }
        assert_eq!(Discipline::unknown().status, Status::Unknown);
    }
}
