//! Publishing a clock to other processes, and reading it there: our pages beside those of the
//! ClockBound library.
//!
//! Invariants:
//! - Both read the same page, one that ours has published; each writes a page of its own.
//! - The files are in memory where that has room, in a folder of this user alone, and removed.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clock_bound_shm::{ClockErrorBound, ShmReader, ShmWrite as _, ShmWriter};
use corelocal::clock::page::{
    Encoding, Period, Publisher, State, Status, Subscriber, clockbound, pvclock, vmclock,
};
use corelocal_support::clock::counter;
use corelocal_support::clock::offset::kernel;
use corelocal_support::measure::loops::{Loop, loop_of};
use corelocal_support::process::folder;
use corelocal_support::schema::{self, Row};

use super::FEWER;
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct ClockPage;

impl Table for ClockPage {
    fn id(&self) -> &'static str {
        "clock_page"
    }

    fn title(&self) -> &'static str {
        "Published clock pages"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        cx.plan.rounds /= FEWER;
        let folder = Folder::new()?;
        let about = "A page in shared memory that one process writes and others read. Publishing is one write \
             of the whole content; a cached read finds the page unchanged; bounds are the earliest and the \
             latest time that it may be now, by CLOCK_REALTIME and the page of ClockBound, or by the cpu's \
             counter and a page like a hypervisor's (vmclock).";
        let contest = Contest::new(self, about);
        let contest = publishing(contest, &folder)?;
        let contest = reading(contest, &folder)?;
        Ok(contest.measure(cx))
    }
}

/// Returns a state like that of a well kept clock.
fn state() -> State {
    State {
        counter_kind: counter::KIND,
        counter: unordered(),
        time: Duration::from_nanos(kernel(libc::CLOCK_REALTIME)),
        period: Period::from_hertz(2_500_000_000).unwrap_or_default(),
        max_error_ns: 40_000,
        drift_ppb: 1000,
        status: Status::Synchronized,
        published: Duration::from_nanos(kernel(libc::CLOCK_MONOTONIC_COARSE)),
        valid_for: Duration::from_secs(1000),
        ..State::default()
    }
}

fn publishing(
    contest: Contest<Loop<'static>>,
    folder: &Folder,
) -> anyhow::Result<Contest<Loop<'static>>> {
    let mut theirs = ShmWriter::new(&folder.path("theirs")).context("ClockBound's writer")?;
    let bound = ClockErrorBound::default();
    let contest = contest.row(
        Row::new("clockbound-publish", "clock-bound-shm: publish"),
        loop_of(move || theirs.write(&bound)),
    );
    let contest = contest.row(
        Row::ours("publish-clockbound", "corelocal, ClockBound's page: publish"),
        publish::<clockbound::Page>(folder)?,
    );
    let contest = contest.row(
        Row::ours("publish-vmclock", "corelocal, vmclock: publish"),
        publish::<vmclock::Page>(folder)?,
    );
    Ok(contest.row(
        Row::ours("publish-pvclock", "corelocal, pvclock: publish"),
        publish::<pvclock::Page>(folder)?,
    ))
}

fn publish<P: Encoding>(folder: &Folder) -> anyhow::Result<Loop<'static>> {
    let mut publisher = publisher::<P>(&folder.path(P::NAME))?;
    let content = P::Content::from(&state());
    Ok(loop_of(move || publisher.publish(&content)))
}

fn publisher<P: Encoding>(path: &Path) -> anyhow::Result<Publisher<P>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    Publisher::<P>::create(&path).map_err(|refusal| anyhow!("{refusal}"))
}

fn reading(
    contest: Contest<Loop<'static>>,
    folder: &Folder,
) -> anyhow::Result<Contest<Loop<'static>>> {
    let (bounds, vmclock) = (folder.path("read-clockbound"), folder.path("read-vmclock"));
    // Without a writer the pages stay as they are.
    publisher::<clockbound::Page>(&bounds)?.publish(&clockbound::Content::from(&state()))?;
    publisher::<vmclock::Page>(&vmclock)?.publish(&vmclock::Content::from(&state()))?;
    let c_path = CString::new(bounds.as_os_str().as_bytes())?;
    let theirs = || ShmReader::new(&c_path).map_err(|error| anyhow!("ClockBound: {error:?}"));
    let (mut cached, mut fresh) = (theirs()?, theirs()?);
    let contest = contest
        .row(
            Row::new("clockbound-cached", "clock-bound-shm: cached read"),
            loop_of(move || cached.snapshot().map(|bound| bound.disruption_marker)),
        )
        .row(
            Row::new("clockbound-now", "clock-bound-shm: bounds"),
            loop_of(move || fresh.snapshot().and_then(ClockErrorBound::now)),
        );
    let (mut cached, mut ours) =
        (subscriber::<clockbound::Page>(&bounds)?, subscriber::<clockbound::Page>(&bounds)?);
    let mut by_counter = subscriber::<vmclock::Page>(&vmclock)?;
    let contest = contest
        .row(
            Row::ours("cached", "corelocal: cached read"),
            loop_of(move || cached.content().map(|content| content.disruptions)),
        )
        .row(
            Row::ours("bounds-clockbound", "corelocal, ClockBound's page: bounds"),
            loop_of(move || ours.bounds()),
        );
    let row = Row::ours("bounds-vmclock", "corelocal, vmclock: bounds");
    if !counter::IS_READ {
        return Ok(contest.unavailable(row, "the counter of this processor is not read"));
    }
    Ok(contest.row(row, loop_of(move || by_counter.bounds(unordered))))
}

fn subscriber<P: Encoding>(path: &Path) -> anyhow::Result<Subscriber<P>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    Subscriber::<P>::open(&path).map_err(|refusal| anyhow!("{refusal}"))
}

#[cfg(target_arch = "x86_64")]
fn unordered() -> u64 {
    // SAFETY: every x86-64 has the counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn unordered() -> u64 {
    counter::read()
}

/// A folder in memory, if there is room, for this process's user alone. It is removed when this goes away.
struct Folder(folder::Folder);

impl Folder {
    fn new() -> anyhow::Result<Folder> {
        folder::Folder::new("bench").map(Folder)
    }

    fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.0.path().join(name.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    #[test]
    fn every_row_is_measured() {
        let plan = Plan { round: Duration::from_micros(50), rounds: 5, ..Plan::QUICK };
        let table = ClockPage.run(&mut Context::new(plan, &Machine::default())).unwrap();
        assert_eq!(table.rows.len(), 9);
        for row in &table.rows {
            assert_eq!(row.points.is_empty(), row.unavailable.is_some(), "{}", row.id);
        }
    }

    #[test]
    fn what_is_timed_succeeds() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = Folder::new().unwrap();
        let path = folder.path("page");
        let mode = path.parent().unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let mut publisher = publisher::<clockbound::Page>(&path).unwrap();
        publisher.publish(&clockbound::Content::from(&state())).unwrap();
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut theirs = ShmReader::new(&path).unwrap();
        let (earliest, latest, status) = theirs.snapshot().unwrap().now().unwrap();
        assert_eq!(status, clock_bound_shm::ClockStatus::Synchronized);
        let mut ours = Subscriber::<clockbound::Page>::open(&path).unwrap();
        let bounds = ours.bounds().unwrap();
        let theirs = [earliest, latest].map(Duration::from);
        assert!(theirs[0].abs_diff(bounds.earliest) < Duration::from_secs(1), "{theirs:?}");
        assert!(theirs[1].abs_diff(bounds.latest) < Duration::from_secs(1), "{bounds:?}");
    }
}
