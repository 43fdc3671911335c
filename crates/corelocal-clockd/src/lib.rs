//! `corelocal clockd`: publishes this machine's clock and its error bound in a file in memory that any number of
//! processes read. A part of [the command](https://docs.rs/corelocal-cli), and no library for other programs: its interface
//! changes with the command, without notice.
//!
//! ```text
//!   discipline.rs   what the kernel says of its clock (adjtimex)
//!   chrony.rs       what chronyd says of it (its tracking report)
//!   source.rs       which of them is believed
//!   device.rs       what the hypervisor says of disruptions (/dev/vmclock0)
//!   bound.rs        the published rate and bound, and why truth lies within it
//!   state_tracker.rs       point, jumps, status: what is published
//!   place.rs        where it is published unless --file says so
//!   reply_socket.rs the socket that chronyd replies to
//!   lib.rs          the file, the rhythm, the end
//! ```
//!
//! Exit codes: 0 its time was over, or a signal ended it; 1 it could not publish; 2 the command line is wrong.
//!
//! Invariants:
//! 1. One process publishes to a file at a time. A second one says which process publishes, and ends.
//! 2. It ends with a last publication which says that the clock is no longer maintained. If it is killed, the last
//!    publication stays, and its bounds grow.

mod args;
mod bound;
mod chrony;
mod device;
mod discipline;
mod place;
mod reply_socket;
mod source;
mod state_tracker;

use std::ffi::CString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::anyhow;
use corelocal::clock::page::{self, Publisher, Status, clockbound, pvclock, vmclock};
use corelocal_support::clock::counter;
use corelocal_support::machine;
use corelocal_support::output::{self, path_line};
use corelocal_support::process::signals::Kept;
use corelocal_support::units::signed_time;

use self::chrony::Place;
use self::device::Device;
use self::discipline::{Discipline, Whose};
use self::source::Asker;
use self::state_tracker::StateTracker;
use args::Encoding;

pub use args::ClockdArgs;

/// Runs the command.
pub fn run(args: &ClockdArgs) -> anyhow::Result<ExitCode> {
    match args.encoding {
        Encoding::Vmclock => publish::<vmclock::Page>(args, |content| content.disruptions),
        Encoding::Clockbound => publish::<clockbound::Page>(args, |content| content.disruptions),
        Encoding::Pvclock => publish::<pvclock::Page>(args, |_| 0),
    }
}

fn publish<P: page::Encoding>(
    args: &ClockdArgs,
    jumps: impl Fn(&P::Content) -> u64,
) -> anyhow::Result<ExitCode> {
    let by_counter = args.encoding != Encoding::Clockbound;
    if let Some(why) = counter::obstacle(&machine::clocksource()).filter(|_| by_counter) {
        anyhow::bail!("cannot publish with the encoding {}: {why}", args.encoding.name());
    }
    let (clock, clock_name) = match args.encoding {
        Encoding::Pvclock => (libc::CLOCK_MONOTONIC, "CLOCK_MONOTONIC"),
        _ => (libc::CLOCK_REALTIME, "CLOCK_REALTIME"),
    };
    let path = match &args.file {
        Some(path) => path.clone(),
        None => place::usual(args.encoding.name())?,
    };
    let device =
        Device::open(&args.vmclock).map_err(|why| anyhow!("no hypervisor's page: {why}"))?;
    // ClockBound's readers compare it with the device's.
    let is_marker = args.encoding == Encoding::Clockbound;
    let kept = Kept::back();
    let mut file = File::<P>::create(&path)?;
    let recoveries = file.publisher.recoveries();
    let counted = file.publisher.last().map(|last| jumps(last).saturating_sub(recoveries));
    let mut state_tracker = StateTracker::new(clock, by_counter, counted, device);
    state_tracker.calibrate();
    let places = args.chrony.clone().map_or_else(Place::usual, |place| (vec![place], None));
    let mut asker = Asker::new(args.source, places, clock, args.max_error);

    // Readers of the line below find a content in the file.
    let mut discipline = asker.query()?;
    let (recovered, last) = (file.publisher.has_recovered(), file.publisher.last().is_some());
    file.publish(&state_tracker.state(&discipline, is_marker), &state_tracker)?;
    let took_over = match (recovered, last) {
        (true, _) => "; its last writer died during a publication; continuing its page",
        (false, true) => "; continuing the page of an earlier writer",
        (false, false) => "",
    };
    // Publishing goes on if standard output has no reader.
    let _ = output::print(format_args!(
        "process {} publishes {clock_name} to {} as {}, every {:?}: {}{took_over}\n",
        std::process::id(),
        path_line(&path),
        args.encoding.name(),
        args.every,
        says(&discipline, &asker, &state_tracker),
    ));

    let end = args.time.map(|time| Instant::now() + time);
    let mut publications = 1_u64;
    let ended = loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if let Some(signal) = kept.wait(left.map_or(args.every, |left| left.min(args.every))) {
            break format!("by {signal}");
        }
        if left.is_some_and(|left| left.is_zero()) {
            break "in time".to_owned();
        }
        // A source that fell silent may come back.
        let now = asker
            .query()
            .unwrap_or(Discipline { whose: discipline.whose, ..Discipline::unknown() });
        let last = std::mem::replace(&mut discipline, now);
        if last.whose != discipline.whose {
            let _ = output::print(format_args!("{}\n", says(&discipline, &asker, &state_tracker)));
        }
        let state = state_tracker.state(&discipline, is_marker);
        if !file.is_there() {
            // Removed, replaced or cut short: readers that come now look there.
            drop(file);
            file = File::create(&path)?;
        }
        file.publish(&state, &state_tracker)?;
        publications += 1;
    };
    // (2)
    let mut state = state_tracker.state(&asker.query().unwrap_or(discipline), is_marker);
    if state.status == Status::Synchronized {
        state.status = Status::FreeRunning;
    }
    file.publish(&state, &state_tracker)?;
    output::finish(
        format_args!("ended {ended} after {publications} publications\n"),
        ExitCode::SUCCESS,
    )
}

/// Returns what is known of the clock, and by whom.
fn says(discipline: &Discipline, asker: &Asker, state_tracker: &StateTracker) -> String {
    let whose = asker.whose(discipline);
    let known = match discipline.status {
        Status::Synchronized | Status::FreeRunning => {
            let most = signed_time(discipline.max_error_ns as f64);
            let free = if discipline.status == Status::FreeRunning { ", uncorrected" } else { "" };
            format!("accurate to within {}{free}, {whose}", most.trim_start_matches('+'))
        }
        _ if discipline.whose == Whose::Chrony => {
            format!(
                "not synchronised, {whose}, which has no source; readers will not trust it"
            )
        }
        _ => "the kernel's clock is not synchronised, so readers will not trust it; start chrony or another NTP \
             client, or give --max-error"
            .to_owned(),
    };
    let known = match asker.unasked(discipline) {
        Some(unasked) => format!("{known}; {unasked}"),
        None => known,
    };
    match state_tracker.device() {
        Some(device) => {
            format!("{known}; disruptions are copied from {}", path_line(device.path()))
        }
        None => known,
    }
}

/// The page and its file.
struct File<P: page::Encoding> {
    publisher: Publisher<P>,
    path: PathBuf,
}

impl<P: page::Encoding> File<P> {
    fn create(path: &Path) -> anyhow::Result<File<P>> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| anyhow!("a file name cannot contain a NUL byte"))?;
        let publisher = Publisher::<P>::create(&name)
            .map_err(|refusal| anyhow!("cannot publish to {}: {refusal}", path_line(path)))?;
        Ok(File { publisher, path: path.to_owned() })
    }

    /// Publishes what the tracker just said, under the hypervisor's marker that it had seen before.
    fn publish(
        &mut self,
        state: &page::State,
        state_tracker: &StateTracker,
    ) -> Result<(), page::PublishError> {
        let marker = state_tracker.device().map(Device::marker);
        self.publisher.publish_under(marker, &P::Content::from(state))
    }

    /// Returns `true` if the path still leads to it, and all of it is there.
    fn is_there(&self) -> bool {
        identity(&self.path).is_none_or(|found| found == self.publisher.file())
    }
}

/// Returns device, inode and length of what a path leads to; `None` if the kernel does not tell.
fn identity(path: &Path) -> Option<(u64, u64, u64)> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) => Some((meta.dev(), meta.ino(), meta.len())),
        // No number is 0.
        Err(error) if error.kind() == ErrorKind::NotFound => Some((0, 0, 0)),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_replaced_is_not_there() {
        let folder = tempfile::TempDir::new().unwrap();
        let (path, other) = (folder.path().join("page"), folder.path().join("other"));
        // As a user leaves it that empties the file: the publisher fills it.
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .unwrap();
        let file = File::<pvclock::Page>::create(&path).unwrap();
        assert!(file.is_there());
        std::fs::copy(&path, &other).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(!file.is_there(), "another file of the same length");
        std::fs::remove_file(&path).unwrap();
        assert!(!file.is_there());
        drop(file);
        let file = File::<pvclock::Page>::create(&path).unwrap();
        assert!(file.is_there());
        std::fs::File::options().write(true).open(&path).unwrap().set_len(7).unwrap();
        assert!(!file.is_there(), "cut short");
    }
}
