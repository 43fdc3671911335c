//! Tests of `source.rs`.

use super::*;

/// A report that was made at one moment.
pub(in super::super) fn said_at(tracking: Tracking, at: Point) -> Said {
    Said { tracking, at: Instant::now(), asked: at, answered: at }
}

fn said() -> Said {
    let tracking = Tracking {
        reference: 1,
        stratum: 2,
        leap: 1,
        measured: kernel(libc::CLOCK_REALTIME),
        correction: 10e-6,
        last_offset: 0.0,
        rms_offset: 1e-6,
        frequency_ppm: 5.0,
        residual_ppm: 0.0,
        skew_ppm: 1.0,
        root_delay: 0.0,
        root_dispersion: 10e-6,
        interval: 16.0,
    };
    Said { tracking, at: Instant::now(), asked: Point::default(), answered: Point::default() }
}

#[test]
fn chrony_is_more_exact_than_the_kernel() {
    let kernel_says = Kernel { rate_ppm: -5.0, ..Kernel::default() };
    let now = discipline(&said(), Some(&kernel_says), true);
    assert_eq!((now.status, now.whose), (Status::Synchronized, Whose::Chrony));
    assert_eq!((now.drift_ppb, now.slew_ppb, now.leap), (2_000, 0, Leap::InsertionAhead));
    assert!((20_000..20_002).contains(&now.max_error_ns), "{now:?}");
    // The kernel's flag is not asked, its leap second is.
    let kernel_says = Kernel { leap: Leap::Inserting, is_kept: false, ..kernel_says };
    let now = discipline(&said(), Some(&kernel_says), true);
    assert_eq!((now.status, now.leap), (Status::Synchronized, Leap::Inserting));
}

#[test]
fn words_of_a_silent_one_are_worth_less_and_less() {
    let now = discipline(&said(), None, false);
    assert_eq!((now.status, now.drift_ppb), (Status::FreeRunning, WORST_PPB));
    assert_eq!(now.slew_ppb, FASTEST_PPB, "nothing is known of the kernel's rate");
    let mut nobody = said();
    nobody.tracking.stratum = 0;
    assert_eq!(discipline(&nobody, None, false).status, Status::Unknown);
}

#[test]
fn who_is_asked() {
    let nowhere = || (vec![Place::Socket("/no/such/chronyd.sock".into())], None);
    let mut auto = Asker::new(Source::Auto, nowhere(), libc::CLOCK_REALTIME, None);
    let mut alone = Asker::new(Source::Chrony, nowhere(), libc::CLOCK_REALTIME, None);
    assert!(alone.query().unwrap_err().to_string().contains("--chrony"));
    match auto.query() {
        Ok(now) => assert_eq!(auto.whose(&now), "by the kernel"),
        Err(error) => eprintln!("skipped: who_is_asked: {error:#}"),
    }
    let unasked = || (nowhere().0, Some("port 323 was not asked".to_owned()));
    let mut partly = Asker::new(Source::Auto, unasked(), libc::CLOCK_REALTIME, None);
    if let Ok(now) = partly.query() {
        assert_eq!(partly.unasked(&now), Some("port 323 was not asked"));
        assert_eq!(auto.unasked(&now), None);
    }
    let mut partly = Asker::new(Source::Chrony, unasked(), libc::CLOCK_REALTIME, None);
    assert!(partly.query().unwrap_err().to_string().contains("; port 323 was not asked"));
    // It falls silent after it had spoken.
    (auto.said, alone.said) = (Some(said()), Some(said()));
    assert!(auto.query().is_ok_and(|now| now.whose == Whose::Kernel) || auto.said.is_none());
    let now = alone.query().unwrap();
    assert_eq!((now.status, now.whose), (Status::FreeRunning, Whose::Chrony));
    assert!(alone.whose(&now).contains("no longer answers"));
    if let Some(at) = Instant::now().checked_sub(SILENT * 2) {
        alone.said = Some(Said { at, ..said() });
        assert!(alone.query().is_err());
    }
    let vouched = Some(Duration::from_micros(5));
    let mut vouched = Asker::new(Source::Chrony, nowhere(), libc::CLOCK_REALTIME, vouched);
    let now = vouched.query().unwrap();
    assert_eq!((now.max_error_ns, now.whose), (5_000, Whose::User));
}
