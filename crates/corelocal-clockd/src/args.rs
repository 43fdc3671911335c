//! The arguments of `clockd`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// Arguments of `clockd`.
#[derive(Debug, Args)]
pub struct ClockdArgs {
    /// The file to publish to, in a directory that no other user may write to. Default: /run/corelocal/ENCODING for
    /// root, $XDG_RUNTIME_DIR/corelocal/ENCODING for other users
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The format of the page, which determines its content
    #[arg(long, value_enum, default_value_t = Encoding::Vmclock)]
    pub encoding: Encoding,
    /// Time between publications, at most 4s
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    #[arg(value_parser = every)]
    pub every: Duration,
    /// The source for the clock's error
    #[arg(long, value_enum, default_value_t = super::source::Source::Auto)]
    pub source: super::source::Source,
    /// Where chronyd answers: its socket, or an address with a port. Default: /run/chrony/chronyd.sock and, while
    /// only root may listen there, port 323 of this machine
    #[arg(long, value_name = "WHERE", value_parser = super::chrony::Place::parse)]
    pub chrony: Option<super::chrony::Place>,
    /// The hypervisor's page, whose disruptions are copied if it exists
    #[arg(long, value_name = "FILE", default_value = super::device::DEVICE)]
    pub vmclock: PathBuf,
    /// The clock's maximum error (40us, 5ms), overriding the source: for a machine that follows its host's clock, for
    /// example
    #[arg(long, value_name = "ERROR", value_parser = error)]
    pub max_error: Option<Duration>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = corelocal_support::parse::time)]
    pub time: Option<Duration>,
}

/// How a page is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    /// True time by the cpu's counter, its bounds, leap seconds: read without a system call
    Vmclock,
    /// The error of CLOCK_REALTIME, for ClockBound's readers
    Clockbound,
    /// CLOCK_MONOTONIC by the cpu's counter, as KVM tells it to a guest
    Pvclock,
}

impl Encoding {
    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Vmclock => "vmclock",
            Encoding::Clockbound => "clockbound",
            Encoding::Pvclock => "pvclock",
        }
    }
}

/// Parses the greatest error on the command line: `500ns`, `40us`, `5ms`, `1s`.
///
/// # Errors
/// A sentence.
fn error(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ns" => Some(1),
        "us" => Some(1000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        _ => None,
    };
    let nanos = digits.parse::<u64>().ok().zip(unit).and_then(|(n, unit)| n.checked_mul(unit));
    match nanos {
        Some(nanos @ 1..=60_000_000_000) => Ok(Duration::from_nanos(nanos)),
        _ => Err("give an error of at most a minute, such as 500ns, 40us, 5ms or 1s".to_owned()),
    }
}

/// Parses the time between publications on the command line.
///
/// # Errors
/// A sentence.
fn every(text: &str) -> Result<Duration, String> {
    match corelocal_support::parse::time(text) {
        // After 5 s readers take the clock for abandoned; a publication may be late.
        Ok(every) if every <= Duration::from_secs(4) => Ok(every),
        _ => Err("give a time from 1ms to 4s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_rhythms() {
        assert_eq!(error("40us"), Ok(Duration::from_micros(40)));
        assert_eq!(error("1s"), Ok(Duration::from_secs(1)));
        for text in ["", "us", "40", "0ms", "2m", "-1ms", "61s", "18446744073709551615s", "1µs"] {
            assert!(error(text).is_err(), "{text}");
        }
        assert_eq!(every("100ms"), Ok(Duration::from_millis(100)));
        assert!(every("5s").is_err() && every("0").is_err());
    }
}
