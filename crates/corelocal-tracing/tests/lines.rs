//! Log lines carry the time they were written at.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use corelocal::clock::{MockClocks, Timestamp};
use corelocal_tracing::{Uptime, Utc};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::time::FormatTime;

/// Keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Kept {
    type Writer = Kept;

    fn make_writer(&'a self) -> Kept {
        self.clone()
    }
}

/// What is logged by `work` with this timer.
fn logged(timer: impl FormatTime + Send + Sync + 'static, work: impl FnOnce()) -> String {
    let kept = Kept::default();
    let subscriber = tracing_subscriber::fmt()
        .with_timer(timer)
        .with_ansi(false)
        .with_writer(kept.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    let bytes = kept.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap()
}

#[test]
fn a_line_carries_the_time() {
    for (timer, digits, slack) in [
        (Utc::nanos(), 9, Duration::ZERO),
        (Utc::new(), 6, Duration::from_micros(1)),
        (Utc::millis(), 3, Duration::from_millis(1)),
        (Utc::seconds(), 0, Duration::from_secs(1)),
    ] {
        let before = SystemTime::now();
        let text = logged(timer, || tracing::info!("ready"));
        let after = SystemTime::now();
        assert!(text.contains("INFO") && text.trim_end().ends_with("ready"), "{text}");
        let word = first_word(&text);
        let length = if digits == 0 { 20 } else { 21 + digits };
        assert_eq!(word.len(), length, "{word}");
        let stamp: jiff::Timestamp = word.parse().unwrap();
        let stamp = SystemTime::from(stamp);
        assert!(stamp + slack >= before && stamp <= after, "{before:?} {stamp:?} {after:?}");
    }
}

#[test]
fn lines_of_one_thread_rise() {
    let text = logged(Utc::nanos(), || {
        for number in 0..1000 {
            tracing::info!(number);
        }
    });
    let stamps: Vec<&str> = text.lines().map(first_word).collect();
    assert_eq!(stamps.len(), 1000);
    assert!(stamps.is_sorted(), "time went back");
}

#[test]
fn uptime_counts_from_its_making() {
    let timer = Uptime::new();
    thread::sleep(Duration::from_millis(20));
    let text = logged(timer, || tracing::info!("late"));
    let seconds: f64 = first_word(&text).trim_end_matches('s').parse().unwrap();
    assert!(seconds >= 0.02, "{text}");
    let digits = first_word(&text).split_once('.').unwrap().1;
    assert_eq!(digits.len(), 7, "{text}");
    let text = logged(Uptime::seconds(), || tracing::info!("at once"));
    assert!(first_word(&text).trim_end_matches('s').parse::<u64>().is_ok(), "{text}");
    assert!(format!("{:?}", Uptime::default()).contains("Micros"));
}

/// With a mock the text is known beforehand.
#[test]
fn a_line_carries_the_time_of_a_mock() {
    let clocks = Arc::new(MockClocks::new());
    clocks.set_realtime(Timestamp::from_nanos(1_700_000_000_000_000_000));
    let log = || tracing::info!("ready");
    let utc = || Utc::millis().with_clocks(Arc::clone(&clocks));
    assert!(logged(utc(), log).starts_with("2023-11-14T22:13:20.000Z "));
    let uptime = Uptime::default().with_clocks(Arc::clone(&clocks));
    clocks.advance(Duration::from_millis(61_001));
    assert!(logged(utc(), log).starts_with("2023-11-14T22:14:21.001Z "));
    assert!(logged(uptime, log).starts_with("   61.001000s "));
    clocks.set_realtime(Timestamp::from_nanos(-1));
    assert!(logged(utc(), log).starts_with("1969-12-31T23:59:59.999Z "));
}
