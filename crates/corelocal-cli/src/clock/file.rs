//! `corelocal clock --file`: what a published page says, whichever its encoding, with bounds.
//!
//! Exit codes: 0 it tells a time; 1 it is no page, or tells none that is to be believed.
//!
//! Invariants:
//! - Everything is of one content of the page, and of one look at the clocks.
//! - The page is copied, not mapped: no owner of a file can end this program by cutting it short.

use std::ffi::CString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::anyhow;
use corelocal::clock::page::{
    Bounds, Encoding, Leap, Period, ReadError, Refusal, Scale, Subscriber, clockbound, pvclock,
    vmclock,
};
use serde::Serialize;

use corelocal_support::clock::counter;
use corelocal_support::clock::offset::{Offset, kernel};
use corelocal_support::console;
use corelocal_support::figures::wrap;
use corelocal_support::output::{self, complain, path_line};
use corelocal_support::units::{nanos, signed_time};

const DIM: Style = Style::new().dimmed();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// The content of a published page, for `--json`.
#[derive(Debug, Default, Serialize)]
struct Page {
    file: String,
    encoding: &'static str,
    /// The scale of its time.
    scale: &'static str,
    /// The page's time: nanoseconds since 1970, or of `CLOCK_MONOTONIC`.
    time_ns: Option<u64>,
    earliest_ns: Option<u64>,
    latest_ns: Option<u64>,
    /// The page's time minus this machine's clock of the same scale.
    ahead: Option<Offset>,
    status: Option<String>,
    /// The seconds since the page was published.
    age_s: Option<f64>,
    /// The greatest error when it was published.
    max_error_ns: Option<u64>,
    disruptions: Option<u64>,
    leap: Option<&'static str>,
    tai_offset_s: Option<i16>,
    /// The user id of its publisher.
    user: u32,
    /// Whether that is root, this process's user, or a device's driver.
    is_trusted: bool,
    /// The number of times that a writer died in a publication.
    recoveries: Option<u64>,
    /// The reason why the page's time cannot be trusted.
    doubt: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// When standard output fails.
pub fn show(path: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let page = match look(path) {
        Ok(page) => page,
        Err(why) => {
            complain(format_args!("cannot read a clock from {}: {why:#}", path_line(path)));
            return Ok(ExitCode::FAILURE);
        }
    };
    let code = if page.doubt.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if as_json {
        return output::finish(serde_json::to_string_pretty(&page)? + "\n", code);
    }
    output::finish(text(&page, console::width()), code)
}

fn look(path: &Path) -> anyhow::Result<Page> {
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| anyhow!("a file name cannot contain a NUL byte"))?;
    // A file just made is empty for a moment; a foreign one may be of the next encoding.
    let mut refused = Refusal::Foreign;
    for attempt in [vmclock, clockbound, pvclock] {
        match attempt(&name) {
            Ok(page) => return Ok(Page { file: path_line(path), ..page.judged() }),
            Err(Refusal::Foreign) => {}
            Err(refusal) => refused = refusal,
        }
    }
    Err(match refused {
        Refusal::Foreign => {
            anyhow!("unknown clock-page encoding (known: vmclock, clockbound, pvclock)")
        }
        refusal => anyhow!("{refusal}"),
    })
}

fn vmclock(name: &CString) -> Result<Page, Refusal> {
    let mut subscriber = Subscriber::<vmclock::Page>::open_untrusted(name)?;
    let mut page = Page::of(&subscriber);
    let content = match subscriber.content() {
        Ok(content) => *content,
        Err(doubt) => return Ok(page.doubted(doubt)),
    };
    let clock = page.count_from(content.scale);
    page.status = Some(content.status.to_string());
    page.disruptions = Some(content.disruptions);
    page.leap = leap(content.leap);
    let has = |flag| content.flags & flag != 0;
    page.max_error_ns = has(vmclock::flags::MAX_ERROR_VALID).then_some(content.max_error_ns);
    page.tai_offset_s = has(vmclock::flags::TAI_OFFSET_VALID).then_some(content.tai_offset);
    if content.counter_kind != counter::KIND || !counter::IS_READ {
        return Ok(page.doubted(ReadError::Blank));
    }
    let now = counter::read();
    let period = Period { fraction: content.period, shift: content.period_shift };
    page.age_s = age(period, now, content.counter);
    let seen = subscriber.now(|| now).map(|time| page.tell(time));
    page.ahead = clock
        .filter(|_| seen.is_ok())
        .map(|clock| Offset::of(clock, || subscriber.now(counter::read).map_or(0, nanos)));
    let bounds = subscriber.bounds(|| now);
    Ok(match seen.and(bounds) {
        Ok(bounds) => page.bounded(&bounds),
        Err(doubt) => page.doubted(doubt),
    })
}

fn clockbound(name: &CString) -> Result<Page, Refusal> {
    let mut subscriber = Subscriber::<clockbound::Page>::open_untrusted(name)?;
    let mut page = Page::of(&subscriber);
    let content = match subscriber.content() {
        Ok(content) => *content,
        Err(doubt) => return Ok(page.doubted(doubt)),
    };
    page.scale = "UTC";
    page.status = Some(content.status.to_string());
    page.disruptions = Some(content.disruptions);
    page.max_error_ns = Some(content.bound_ns);
    // It holds no time: its reader asks the kernel, in this order.
    let realtime = Duration::from_nanos(kernel(libc::CLOCK_REALTIME));
    let monotonic = Duration::from_nanos(kernel(libc::CLOCK_MONOTONIC_COARSE));
    page.age_s = Some(monotonic.saturating_sub(content.as_of).as_secs_f64());
    page.tell(realtime);
    // The library's reader compares the hypervisor's marker, too.
    let seen = subscriber.bounds();
    Ok(match seen.and_then(|_| content.bounds_at(realtime, monotonic)) {
        Ok(bounds) => {
            page.status = Some(bounds.status.to_string());
            page.bounded(&bounds)
        }
        Err(doubt) => page.doubted(doubt),
    })
}

fn pvclock(name: &CString) -> Result<Page, Refusal> {
    let mut subscriber = Subscriber::<pvclock::Page>::open_untrusted(name)?;
    let mut page = Page::of(&subscriber);
    page.scale = "CLOCK_MONOTONIC";
    let content = match subscriber.content() {
        Ok(content) => *content,
        Err(doubt) => return Ok(page.doubted(doubt)),
    };
    if cfg!(not(target_arch = "x86_64")) {
        return Ok(page.doubted(ReadError::Blank));
    }
    let since = content.nanoseconds_at(counter::read());
    page.age_s = since.ok().map(|now| now.saturating_sub(content.nanoseconds) as f64 / 1e9);
    match subscriber.now(counter::read) {
        Ok(reading) => page.tell(Duration::from_nanos(reading.nanoseconds)),
        Err(doubt) => return Ok(page.doubted(doubt)),
    }
    let read = || subscriber.now(counter::read).map_or(0, |reading| reading.nanoseconds);
    page.ahead = Some(Offset::of(libc::CLOCK_MONOTONIC, read));
    Ok(page)
}

impl Page {
    fn of<P: Encoding>(subscriber: &Subscriber<P>) -> Page {
        Page {
            encoding: P::NAME,
            user: subscriber.owner(),
            is_trusted: subscriber.is_trusted(),
            recoveries: subscriber.recoveries(),
            ..Page::default()
        }
    }

    fn doubted(self, doubt: ReadError) -> Page {
        Page { doubt: Some(doubt.to_string()), ..self }
    }

    /// Adds a doubt if another user says it.
    fn judged(self) -> Page {
        let user = self.user;
        let doubt = (!self.is_trusted).then(|| {
            format!("it belongs to user {user}; programs accept pages of their own user and of root only")
        });
        Page { doubt: doubt.or(self.doubt), ..self }
    }

    fn tell(&mut self, time: Duration) {
        self.time_ns = Some(nanos(time));
    }

    fn bounded(self, bounds: &Bounds) -> Page {
        let (earliest_ns, latest_ns) = (Some(nanos(bounds.earliest)), Some(nanos(bounds.latest)));
        Page { earliest_ns, latest_ns, ..self }
    }

    /// Names the scale, and the clock of this machine that has it.
    fn count_from(&mut self, scale: Scale) -> Option<libc::clockid_t> {
        let (name, clock) = match scale {
            Scale::Utc => ("UTC", Some(libc::CLOCK_REALTIME)),
            Scale::Tai => ("TAI", None),
            Scale::Monotonic => ("a monotonic clock", None),
            _ => ("unknown", None),
        };
        self.scale = name;
        clock
    }
}

fn age(period: Period, now: u64, then: u64) -> Option<f64> {
    period.nanoseconds(now.saturating_sub(then)).map(|nanos| nanos as f64 / 1e9)
}

fn leap(leap: Leap) -> Option<&'static str> {
    match leap {
        Leap::None => None,
        Leap::InsertionAhead => Some("one is inserted at the end of this month"),
        Leap::DeletionAhead => Some("one is removed at the end of this month"),
        Leap::Inserting => Some("it is 23:59:60"),
        Leap::Inserted => Some("one was inserted at the end of last month"),
        Leap::Deleted => Some("one was removed at the end of last month"),
        Leap::Unknown => Some("unknown"),
    }
}

/// Writes name and value, one to a line.
fn text(page: &Page, width: usize) -> String {
    let moment = |nanos: u64| match page.scale {
        "UTC" | "TAI" => date(nanos),
        _ => format!("{:.9} s", nanos as f64 / 1e9),
    };
    let mut lines: Vec<(&str, String)> = vec![(
        "page",
        format!("{}, {}, published by user {}", page.file, page.encoding, page.user),
    )];
    let scale = page.scale;
    lines.extend(page.time_ns.map(|nanos| ("time", format!("{} ({scale})", moment(nanos)))));
    if let (Some(earliest), Some(latest)) = (page.earliest_ns, page.latest_ns) {
        let width = signed_time(latest.saturating_sub(earliest) as f64 / 2.0);
        lines.push(("earliest", moment(earliest)));
        lines
            .push(("latest", format!("{}, so ±{}", moment(latest), width.trim_start_matches('+'))));
    }
    lines.extend(page.ahead.map(|offset| {
        let text = match offset.outside() {
            0 => "between two readings of it".to_owned(),
            by if by > 0 => format!("{} ahead", signed_time(by as f64).trim_start_matches('+')),
            by => format!("{} behind", signed_time(by as f64).trim_start_matches('-')),
        };
        ("against our clock", text)
    }));
    lines.extend(page.status.clone().map(|status| ("status", status)));
    lines.extend(page.age_s.map(|age| ("published", format!("{age:.3} s ago"))));
    lines.extend(page.max_error_ns.map(|ns| {
        ("maximum error then", signed_time(ns as f64).trim_start_matches('+').to_owned())
    }));
    lines.extend(page.leap.map(|leap| ("leap second", leap.to_owned())));
    lines.extend(page.tai_offset_s.map(|tai| ("TAI - UTC", format!("{tai} s"))));
    lines.extend(page.disruptions.map(|n| ("disruptions", n.to_string())));
    lines.extend(page.recoveries.map(|n| ("writers died", n.to_string())));
    let label = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    let mut out = String::new();
    for (name, value) in lines {
        let text = wrap(&value, width.saturating_sub(label).max(30), 0);
        let text = text.replace('\n', &format!("\n{}", " ".repeat(label)));
        let _ = writeln!(out, "{DIM}{name:label$}{DIM:#}{text}");
    }
    if let Some(doubt) = &page.doubt {
        let text = format!("Its time is invalid: {doubt}.{}", remedy(page));
        let _ = writeln!(out, "\n{WARNING}{}{WARNING:#}", wrap(&text, width, 0));
    }
    out
}

fn remedy(page: &Page) -> &'static str {
    match page.status.as_deref() {
        Some("unknown") => {
            " The publishing machine's clock is not synchronised: start chrony or another NTP client there, or \
             give clockd --max-error."
        }
        _ => "",
    }
}

/// Returns a date with nanoseconds, which are not rounded.
fn date(nanos: u64) -> String {
    let stamp =
        i64::try_from(nanos).ok().map(|nanos| jiff::Timestamp::from_nanosecond(nanos.into()));
    match stamp {
        Some(Ok(stamp)) => format!("{stamp:.9}"),
        _ => format!("{nanos} ns since 1970"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_there_is_to_tell() {
        let page = Page {
            file: "/dev/shm/page".to_owned(),
            encoding: "vmclock",
            scale: "UTC",
            time_ns: Some(1_763_705_000_123_456_789),
            earliest_ns: Some(1_763_705_000_123_416_789),
            latest_ns: Some(1_763_705_000_123_496_789),
            ahead: Some(Offset { low: 990, high: 1010 }),
            status: Some("synchronized".to_owned()),
            age_s: Some(0.0521),
            max_error_ns: Some(39_500),
            disruptions: Some(2),
            leap: leap(Leap::InsertionAhead),
            tai_offset_s: Some(37),
            user: 0,
            is_trusted: true,
            recoveries: Some(1),
            doubt: None,
        };
        let plain = |page: &Page| anstream::adapter::strip_str(&text(page, 80)).to_string();
        insta::assert_snapshot!(plain(&page));
        let bad = Page { doubt: Some("x".to_owned()), status: Some("unknown".to_owned()), ..page };
        assert!(plain(&bad).contains("--max-error"));
    }

    #[test]
    fn what_is_no_page() {
        for path in ["/dev/null", "/etc/passwd", "/", "/no/such/file"] {
            assert!(look(Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01T00:00:00.000000000Z");
        assert!(date(u64::MAX).contains("since 1970"));
    }
}
