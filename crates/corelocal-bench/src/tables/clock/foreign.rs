//! Clocks in shared objects, loaded when a table wants them: those with constructors, which must not
//! run in every process of this command (`corelocal-rivals`), and Abseil's, which is C++.
//!
//! Invariants:
//! 1. An object is loaded once and stays.
//! 2. The symbols of our own object have the types that `corelocal-rivals` gives them; Abseil's
//!    `GetCurrentTimeNanos` takes nothing and returns an `int64_t`.

use std::ffi::c_void;

use super::super::object::{self, Object};

/// A clock of `corelocal-rivals`.
#[derive(Clone, Copy)]
pub struct Rival {
    /// Reads it so many times.
    pub reads: extern "C" fn(u64),
    /// Returns the nanoseconds since the first call.
    pub nanos: extern "C" fn() -> u64,
    /// Whether it reads the cpu's counter here, and not the system's clock.
    pub is_fast: bool,
}

/// Returns the clock of the crate of this name.
///
/// # Errors
/// When the shared object is not where a build leaves it, or cannot be loaded.
pub fn load_clock(name: &str) -> anyhow::Result<Rival> {
    let object = object::rivals()?;
    let symbol = |what| object.symbol(&format!("corelocal_{name}_{what}"));
    let (reads, nanos, fast) = (symbol("reads")?, symbol("nanos")?, symbol("fast")?);
    // SAFETY: functions of these types (2).
    unsafe {
        let fast: extern "C" fn() -> bool = std::mem::transmute(fast);
        Ok(Rival {
            reads: std::mem::transmute::<*mut c_void, extern "C" fn(u64)>(reads),
            nanos: std::mem::transmute::<*mut c_void, extern "C" fn() -> u64>(nanos),
            is_fast: fast(),
        })
    }
}

/// A function that reads a clock, in nanoseconds.
pub type Read = Box<dyn FnMut() -> u64>;

/// Returns clocks that do not follow the kernel's, and their names.
pub fn others() -> Vec<(&'static str, Read)> {
    let first = quanta::Instant::now();
    let mut clocks: Vec<(&str, Read)> =
        vec![("quanta", Box::new(move || first.elapsed().as_nanos() as u64))];
    for name in ["minstant", "fastant"] {
        if let Ok(rival) = load_clock(name) {
            clocks.push((name, Box::new(move || (rival.nanos)())));
        }
    }
    clocks
}

/// Loads the object of `corelocal-rivals`, whose constructors run in the first call.
///
/// # Errors
/// As for [`load_clock`].
pub fn load_rivals() -> anyhow::Result<()> {
    object::rivals().map(|_| ())
}

/// Finds Abseil's `absl::GetCurrentTimeNanos`.
///
/// # Errors
/// When there is no Abseil of a version whose name is known.
pub fn absl() -> anyhow::Result<extern "C" fn() -> i64> {
    // As distributions name the library.
    const VERSIONS: [&str; 9] = [
        "20250814", "2508.0.0", "20250512", "2505.0.0", "20240722", "2407.0.0", "20240116",
        "20230802", "20220623",
    ];
    // The name space of a release, and Debian's in its place.
    let spaces = || {
        let releases = ["20250814", "20250512", "20240722", "20240116", "20230802", "20220623"];
        let releases = releases.into_iter().map(|release| format!("lts_{release}"));
        releases.chain((1..=9).map(|number| format!("debian{number}")))
    };
    for version in VERSIONS {
        let Ok(object) = Object::load(&format!("libabsl_time.so.{version}")) else { continue };
        for space in spaces() {
            let name = format!("_ZN4absl{}{space}19GetCurrentTimeNanosEv", space.len());
            let Ok(symbol) = object.symbol(&name) else { continue };
            // SAFETY: a function of this type (2).
            return Ok(unsafe {
                std::mem::transmute::<*mut c_void, extern "C" fn() -> i64>(symbol)
            });
        }
    }
    anyhow::bail!(
        "no libabsl_time here; on Debian it is in the package libabsl20240722 or its like"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_tell_the_time() {
        for name in ["minstant", "fastant"] {
            let rival = match load_clock(name) {
                Ok(rival) => rival,
                Err(why) => {
                    eprintln!("skipped: rivals_tell_the_time: {why:#}");
                    return;
                }
            };
            let first = (rival.nanos)();
            (rival.reads)(1000);
            assert!((rival.nanos)() > first, "{name}");
        }
    }

    #[test]
    fn an_unknown_object_is_a_sentence() {
        assert!(Object::load("libnone-such.so").is_err());
        assert!(load_clock("none").is_err());
    }
}
