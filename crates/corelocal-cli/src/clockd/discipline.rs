//! What the kernel knows of its own clock: whether anybody keeps it right, how far it may be off, which
//! leap second is near. Who keeps it (chrony, ntpd, systemd-timesyncd) tells the kernel.
//!
//! Invariant: bounds are rounded outwards.

use std::io;

use corelocal::clock::page::{Leap, Status};

/// The answer of `adjtimex(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discipline {
    /// Whether the clock is kept right.
    pub status: Status,
    /// How far it may be off, in nanoseconds.
    pub max_error_ns: u64,
    /// How far it is off by estimation.
    pub estimated_error_ns: Option<u64>,
    /// How fast the greatest error grows while nobody corrects the clock, in parts per billion.
    pub drift_ppb: u32,
    /// A leap second nearby.
    pub leap: Leap,
    /// TAI - UTC, if anybody told the kernel.
    pub tai_offset: Option<i16>,
    /// Whether the user says so, whatever happens.
    pub is_vouched: bool,
}

/// What the kernel takes for the worst oscillator (`MAXFREQ`).
const WORST_PPB: u32 = 500_000;

impl Discipline {
    /// Asks the kernel.
    ///
    /// # Errors
    /// What the kernel answered: `EPERM` under some seccomp filters.
    pub fn ask() -> io::Result<Discipline> {
        // SAFETY: integers, of which zero is a value; no mode: nothing is set.
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: valid for reads and writes.
        let state = unsafe { libc::adjtimex(&mut timex) };
        if state < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Discipline::of(state, &timex))
    }

    fn of(state: libc::c_int, timex: &libc::timex) -> Discipline {
        let unsynchronized = state == libc::TIME_ERROR || timex.status & libc::STA_UNSYNC != 0;
        // `c_long`, whose width differs.
        let nanos = |micros: libc::c_long| u64::try_from(micros).unwrap_or(0).saturating_mul(1000);
        // Parts per million, times 2^16.
        let tolerance = u64::try_from(timex.tolerance).unwrap_or(0);
        let drift = (tolerance.saturating_mul(1000)).div_ceil(1 << 16);
        Discipline {
            status: if unsynchronized { Status::Unknown } else { Status::Synchronized },
            max_error_ns: nanos(timex.maxerror),
            estimated_error_ns: Some(nanos(timex.esterror)),
            drift_ppb: if drift == 0 {
                WORST_PPB
            } else {
                u32::try_from(drift).unwrap_or(WORST_PPB)
            },
            leap: match state {
                libc::TIME_INS => Leap::InsertionAhead,
                libc::TIME_DEL => Leap::DeletionAhead,
                libc::TIME_OOP => Leap::Inserting,
                _ => Leap::None,
            },
            tai_offset: i16::try_from(timex.tai).ok().filter(|tai| *tai != 0),
            is_vouched: false,
        }
    }

    /// Right to within this, whatever the kernel was told.
    pub fn trusted_to(self, max_error_ns: u64) -> Discipline {
        Discipline {
            status: Status::Synchronized,
            max_error_ns,
            estimated_error_ns: None,
            is_vouched: true,
            ..self
        }
    }

    /// When the kernel does not answer.
    pub fn unknown() -> Discipline {
        Discipline {
            status: Status::Unknown,
            max_error_ns: 0,
            estimated_error_ns: None,
            drift_ppb: WORST_PPB,
            leap: Leap::None,
            tai_offset: None,
            is_vouched: false,
        }
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

    #[test]
    fn units_and_states() {
        let kept = Discipline::of(libc::TIME_INS, &timex());
        assert_eq!(kept.status, Status::Synchronized);
        assert_eq!((kept.max_error_ns, kept.estimated_error_ns), (1_234_000, Some(56_000)));
        assert_eq!((kept.drift_ppb, kept.leap), (500_000, Leap::InsertionAhead));
        assert_eq!(kept.tai_offset, Some(37));
        let mut alone = timex();
        alone.status = libc::STA_UNSYNC;
        alone.tai = 0;
        let alone = Discipline::of(libc::TIME_OK, &alone);
        assert_eq!((alone.status, alone.tai_offset), (Status::Unknown, None));
        assert_eq!(Discipline::of(libc::TIME_ERROR, &timex()).status, Status::Unknown);
        let trusted = alone.trusted_to(5_000);
        assert_eq!((trusted.status, trusted.max_error_ns), (Status::Synchronized, 5_000));
    }

    #[test]
    fn the_kernel_answers() {
        match Discipline::ask() {
            Ok(here) => assert!(here.drift_ppb > 0),
            Err(error) => eprintln!("skipped: the_kernel_answers: adjtimex: {error}"),
        }
        assert_eq!(Discipline::unknown().status, Status::Unknown);
    }
}
