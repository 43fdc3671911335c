//! `CORELOCAL_TRACE`: starts a recording before `main`, in a program that records events and may not start one itself.
//!
//! ```text
//!   CORELOCAL_TRACE=on                                  a flight recorder in memory
//!   CORELOCAL_TRACE=file=/dev/shm/%p.trace,max-bytes=64M,min-age=10s
//!   CORELOCAL_TRACE=disk=/var/tmp/%p.trace,off=*,on=http::*,on=@warn,sample=100:cache::*
//!   CORELOCAL_TRACE=dump=/var/tmp/%p.%n.trace,signal=USR2,panic,exit
//! ```
//! # Invariants
//! 1. A program whose environment another user may have made (`AT_SECURE`) takes nothing from it.
//! 2. A value that is wrong is reported on standard error, and nothing is recorded.

use core::ffi::CStr;
use core::time::Duration;
use std::ffi::CString;
use std::format;
use std::string::String;
use std::vec::Vec;

use super::memory::By;
use super::options::Options;
use crate::sys::file::stderr::Line;
use crate::sys::process::environment;
use crate::sys::process::words::signal;

const NAME: &CStr = c"CORELOCAL_TRACE";
const KNOWN: &str = "on, file=PATH, disk=PATH, max-file-bytes=N, files=N, max-bytes=N, min-age=TIME, coarse-times, children, on=PATTERN, off=PATTERN, sample=N:PATTERN, \
                     dump=PATH, signal=NAME, pause=TIME, flush=TIME, panic, exit, no-thread";

/// Runs before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        if environment::is_there() && !environment::is_foreign() {
            // SAFETY: before `main`, and copied at once.
            let value = unsafe { environment::variable(NAME) }.map(CString::from);
            if let Some(value) = value {
                start(&value);
            }
        }
    }
    at_load
};

/// Makes the linker keep `AT_LOAD` in each program that has a site: an object file of an archive is linked only if code
/// needs it.
pub(super) fn link() {
    core::hint::black_box(&AT_LOAD);
}

fn start(value: &CStr) {
    let complain = |why: &dyn core::fmt::Display| {
        Line::print(format_args!("corelocal: CORELOCAL_TRACE: {why}\n"));
    };
    let Ok(value) = value.to_str() else { return complain(&"it is not UTF-8") };
    if matches!(value, "" | "off") {
        return;
    }
    if let Err(why) = start_as(value, By::Environment) {
        complain(&why);
    }
}

/// Does what the variable with this value does.
pub(super) fn start_as(value: &str, by: By) -> Result<(), String> {
    let wish = Wish::parse(value)?;
    super::start_by(wish.options, by).map_err(|why| format!("{why}"))?;
    for (pattern, every) in wish.switches {
        super::sample(&pattern, every).map_err(|why| format!("{why}"))?;
    }
    Ok(())
}

/// The wishes that the variable names.
struct Wish<'a> {
    options: Options<'a>,
    /// Patterns, and how many events there are for each that is recorded.
    switches: Vec<(String, u32)>,
}

impl<'a> Wish<'a> {
    fn parse(value: &'a str) -> Result<Wish<'a>, String> {
        let mut options = Options::flight_recorder();
        let mut switches = Vec::new();
        for part in value.split(',').map(str::trim) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let path = || match value.is_empty() {
                true => Err(format!("`{part}`: a path is missing")),
                false => Ok(value),
            };
            let wrong = || format!("`{part}` is wrong (known: {KNOWN})");
            let time = || time(value).ok_or_else(wrong);
            options = match name {
                "on" if value.is_empty() => options,
                "on" | "off" if !value.is_empty() => {
                    switches.push((value.into(), (name == "on").into()));
                    options
                }
                "sample" => {
                    let (every, pattern) = value.split_once(':').ok_or_else(wrong)?;
                    switches.push((pattern.into(), every.parse().map_err(|_| wrong())?));
                    options
                }
                "file" => options.file(path()?),
                "disk" => options.disk(path()?),
                "dump" => options.dump_to(path()?),
                "max-bytes" => options.max_bytes(bytes(value).ok_or_else(wrong)?),
                "max-file-bytes" => options.max_file_bytes(bytes(value).ok_or_else(wrong)? as u64),
                "files" => options.files(value.parse().map_err(|_| wrong())?),
                "min-age" => options.min_age(time()?),
                "pause" => options.dump_pause(time()?),
                "flush" => options.flush_interval(time()?),
                "signal" => options.dump_on_signal(signal(value.as_bytes()).ok_or_else(wrong)?),
                "coarse-times" if value.is_empty() => options.coarse_times(),
                "children" if value.is_empty() => options.children(),
                "panic" if value.is_empty() => options.dump_on_panic(),
                "exit" if value.is_empty() => options.dump_at_exit(),
                "no-thread" if value.is_empty() => options.no_thread(),
                "drained" if value.is_empty() => options.drained(),
                _ => return Err(wrong()),
            };
        }
        Ok(Wish { options, switches })
    }
}

/// Returns a number of bytes: `64M`.
fn bytes(value: &str) -> Option<usize> {
    let unit = match value.as_bytes().last()? {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        _ => 0,
    };
    let digits = value.trim_end_matches(['K', 'M', 'G']);
    digits.parse::<usize>().ok()?.checked_shl(unit).filter(|bytes| bytes >> unit > 0)
}

/// Returns a time: `10s`, `500ms`, `2m`.
fn time(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at(value.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = digits.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let value =
            "file=/x/%p,max-bytes=1M,min-age=2m,off=*,on=a::*,sample=9:b,children,coarse-times";
        let Wish { options, switches } = Wish::parse(value).unwrap();
        assert_eq!((options.buffers, options.min_age), (16, 120_000_000_000));
        assert_eq!(options.file, Some("/x/%p"));
        assert!(options.is_for_children && options.is_coarse && !options.is_drained);
        assert_eq!(switches, [("*".into(), 0), ("a::*".into(), 1), ("b".into(), 9)]);
        let value = "disk=x,dump=y,signal=SIGUSR2,exit,pause=10ms";
        let Wish { options, .. } = Wish::parse(value).unwrap();
        assert!(options.is_drained && options.background.is_dumped_at_exit);
        assert_eq!(options.background.signal, libc::SIGUSR2);
        for wrong in [
            "yes",
            "max-bytes=",
            "max-bytes=0",
            "max-bytes=x",
            "min-age=1h",
            "file=",
            "signal=99",
            "sample=x:a",
            "sample=9",
            "exit=1",
            "coarse-times=1",
        ] {
            assert!(Wish::parse(wrong).is_err(), "{wrong}");
        }
    }
}
