//! KVM writes the page, our reader reads it: while the clock is set in a storm, after the guest was stopped,
//! and while two cpus' pages disagree.
//!
//! How a torn reading would show: publication number n sets the clock to n * 2^40 ns (and a little), and KVM
//! takes the counter for it between two readings of ours. So each reading names its publication by its upper
//! bits, and its lower bits must be the time since that publication. The times of two publications never
//! overlap: a reading with the clock of one and the counter of another is wrong, and is seen to be.
#![cfg(target_arch = "x86_64")]

use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{env, fmt, fs, hint, thread};

use corelocal::clock::page::ReadError;
use corelocal::clock::page::pvclock::{Content, GUEST_STOPPED, Page, Reading, STABLE};
use corelocal_vmm::{Machine, Unavailable, Vcpu};

/// The host's counter, which is the guest's too.
fn counter() -> u64 {
    // SAFETY: every x86-64 cpu has both instructions.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// Says that `test` could not run here; `ci/test` counts such lines.
fn skip(test: &str, reason: impl fmt::Display) {
    eprintln!("skipped: {test}: {reason}");
}

/// `count`, times `CORELOCAL_TEST_SCALE` where that is set.
fn scaled(count: u64) -> u64 {
    let scale = env::var("CORELOCAL_TEST_SCALE").ok().and_then(|scale| scale.parse().ok());
    (count as f64 * scale.unwrap_or(1.0_f64).clamp(0.0001, 1.0)) as u64
}

/// One machine at a time: each wants both cores of a small host.
static ONE: Mutex<()> = Mutex::new(());

/// The clock page of a cpu that the machine has.
fn page_of(machine: &Machine, cpu: usize) -> &Page {
    machine.page(cpu).expect("the machine has that cpu")
}

/// Runs `body` on a machine whose cpus have all taken a step and whose pages are stable. Skips where that
/// cannot be had.
fn on_a_machine<const CPUS: usize>(
    test: &str,
    body: impl FnOnce(Machine, [Vcpu; CPUS]) -> Result<(), Unavailable>,
) {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let _source = hold_clock_source();
    let (machine, vcpus) = match Machine::new(CPUS) {
        Ok(machine) => machine,
        Err(unavailable) => return skip(test, unavailable),
    };
    let Ok(mut vcpus) = <[Vcpu; CPUS]>::try_from(vcpus) else { unreachable!() };
    // A guest that KVM cannot run at all is the host's matter; what comes later is ours.
    for _ in 0..2 {
        for vcpu in &mut vcpus {
            if let Err(unavailable) = vcpu.step() {
                return skip(test, unavailable);
            }
        }
    }
    if !(0..CPUS).all(|cpu| at_rest(page_of(&machine, cpu)).is_stable()) {
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let source = fs::read_to_string(source).unwrap_or_default();
        let reason = "KVM promises no common clock; the host's clock source is";
        return skip(test, format_args!("{reason} {}", source.trim()));
    }
    body(machine, vcpus).unwrap();
}

/// Held while a machine runs: another test (`clock_truth`) switches the host's clock source for a moment,
/// under which KVM promises nothing any more, and holds the lock exclusively.
fn hold_clock_source() -> Option<fs::File> {
    let path = env::temp_dir().join("corelocal-clock-source.lock");
    let file = fs::OpenOptions::new().create(true).append(true).open(path).ok()?;
    // SAFETY: the descriptor is open.
    (unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH) } == 0).then_some(file)
}

/// What a page says while its cpu is not running.
fn at_rest(page: &Page) -> Content {
    let (version, content) = page.content().unwrap();
    assert!(version > 0 && version % 2 == 0, "{version}");
    content
}

/// The reader under test.
fn read(page: &Page) -> Result<Reading, ReadError> {
    page.read(counter)
}

/// Each publication's counter lies between two of ours.
#[derive(Default)]
struct Interval {
    before: AtomicU64,
    after: AtomicU64,
}

struct Publications {
    intervals: Vec<Interval>,
    /// How the machine's pages turn ticks into nanoseconds; the same in all publications.
    rate: Content,
}

impl Publications {
    /// How far the clock is set by each publication, as a power of two: 18 minutes.
    const STEP: u32 = 40;
    /// The little by which it is set beyond that, in nanoseconds: no rounding makes it the publication
    /// before.
    const BEYOND: u64 = 1000;

    /// What the clock is set to by a publication.
    fn clock(number: u64) -> u64 {
        (number << Publications::STEP) + Publications::BEYOND
    }

    fn new(count: u64, rate: Content) -> Publications {
        let intervals = (0..=count).map(|_| Interval::default()).collect();
        Publications { intervals, rate: Content { counter: 0, nanoseconds: 0, ..rate } }
    }

    /// Sets the clock for the `number`th time. The first number is 1.
    fn publish(&self, number: u64, machine: &Machine) -> Result<(), Unavailable> {
        let interval = &self.intervals[number as usize];
        interval.before.store(counter(), Ordering::Relaxed);
        let result = machine.set_clock(Publications::clock(number));
        // Release: a thread that sees it sees `before`. Partner: the load in `interval`.
        interval.after.store(counter(), Ordering::Release);
        result
    }

    /// When a publication was made. It may be published before its maker has noted the time.
    fn interval(&self, number: u64) -> (u64, u64) {
        let interval = &self.intervals[number as usize];
        loop {
            // Acquire: partner is the store in `publish`.
            match interval.after.load(Ordering::Acquire) {
                0 => hint::spin_loop(),
                after => return (interval.before.load(Ordering::Relaxed), after),
            }
        }
    }

    /// Whether a time, read at this counter, is that of one publication; `None` for a time from before the
    /// first.
    fn agrees(&self, at: u64, nanoseconds: u64) -> Option<bool> {
        // What KVM's own rounding may add, in nanoseconds.
        const ROUNDING: u64 = 4;
        let number = nanoseconds >> Publications::STEP;
        if number == 0 {
            return None;
        }
        if number as usize >= self.intervals.len() {
            return Some(false);
        }
        let since = nanoseconds - (number << Publications::STEP);
        let (before, after) = self.interval(number);
        let elapsed = |from: u64| {
            Publications::BEYOND + self.rate.nanoseconds_at(at.saturating_sub(from)).unwrap()
        };
        let (least, most) = (elapsed(after) - ROUNDING, elapsed(before) + ROUNDING);
        Some((least..=most).contains(&since))
    }
}

/// The checker sees what it must see: half of one publication with half of the next.
#[test]
fn a_mixture_is_recognised() {
    // Half a nanosecond a tick; publications at 1000..1100 and 1200..1300.
    let rate = Content { multiplier: 1 << 31, flags: STABLE, ..Content::default() };
    let publications = Publications::new(2, rate);
    for (number, before) in [(1, 1000), (2, 1200)] {
        let interval: &Interval = &publications.intervals[number];
        interval.before.store(before, Ordering::Relaxed);
        interval.after.store(before + 100, Ordering::Release);
    }
    let time = |clock: u64, counter: u64, at: u64| {
        let content = Content { counter, nanoseconds: Publications::clock(clock), ..rate };
        publications.agrees(at, content.nanoseconds_at(at).unwrap())
    };
    assert_eq!(time(1, 1050, 5000), Some(true));
    assert_eq!(time(2, 1250, 5000), Some(true));
    assert_eq!(time(1, 1250, 5000), Some(false));
    assert_eq!(time(2, 1050, 5000), Some(false));
    assert_eq!(time(3, 1250, 5000), Some(false));
    assert_eq!(time(0, 1250, 5000), None);
}

/// What a reader met.
#[derive(Debug, Default)]
struct Tally {
    readings: u64,
    torn: u64,
    doubts: u64,
    /// How often the version was another than at the reading before.
    versions: u64,
    /// Readings of a reader that does not look at the version, and how many of them were wrong.
    careless: u64,
    careless_torn: u64,
}

/// Reads until told to stop.
fn watch(page: &Page, publications: &Publications, done: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    let mut version = 0;
    while !done.load(Ordering::Relaxed) {
        match read(page) {
            Ok(reading) => {
                tally.readings += 1;
                tally.versions += u64::from(reading.version != version);
                version = reading.version;
                let right = publications.agrees(reading.counter, reading.nanoseconds);
                tally.torn += u64::from(right == Some(false));
            }
            Err(_) => tally.doubts += 1,
        }
        let (at, nanoseconds) = careless(page);
        tally.careless += 1;
        tally.careless_torn += u64::from(publications.agrees(at, nanoseconds) == Some(false));
    }
    tally
}

/// A reader that believes whatever it sees: what the version is for.
fn careless(page: &Page) -> (u64, u64) {
    let words = std::ptr::from_ref(page).cast::<AtomicU64>();
    // SAFETY: the words of a page, in memory that is mapped as long as the page is borrowed.
    let load = |index: usize| unsafe { &*words.add(index) }.load(Ordering::Relaxed);
    let nanoseconds = load(2);
    let at = counter();
    let [a, b, c, d, shift, flags, _, _] = load(3).to_le_bytes();
    let multiplier = u32::from_le_bytes([a, b, c, d]);
    let content = Content { counter: load(1), nanoseconds, multiplier, shift: shift as i8, flags };
    (at, content.nanoseconds_at(at).unwrap_or(u64::MAX))
}

/// A thread sets the clock and enters the guest, as fast as it can, and another reads: each reading is one
/// publication's.
#[test]
fn nothing_is_torn_in_a_storm_of_set_clock() {
    const TEST: &str = "nothing_is_torn_in_a_storm_of_set_clock";
    on_a_machine(TEST, |machine, [mut vcpu]| {
        let count = scaled(100_000);
        let (page, done) = (page_of(&machine, 0), AtomicBool::new(false));
        let publications = Publications::new(count, at_rest(page));
        let tally = thread::scope(|scope| {
            let reader = scope.spawn(|| watch(page, &publications, &done));
            let published = (1..=count).try_for_each(|number| {
                publications.publish(number, &machine)?;
                vcpu.step().map(drop)
            });
            done.store(true, Ordering::Relaxed);
            let tally = reader.join().unwrap();
            published.map(|()| tally)
        })?;
        println!("{count} publications: {tally:?}");
        assert_eq!(tally.torn, 0, "{tally:?}");
        assert!(tally.readings > 0, "{tally:?}");
        // The last one is what is left.
        assert_eq!(at_rest(page).nanoseconds >> Publications::STEP, count);
        Ok(())
    });
}

/// The flag comes with the next entry, on that cpu alone, stays through publications, and goes when the guest
/// takes it away.
#[test]
fn a_stopped_guest_is_told() {
    on_a_machine("a_stopped_guest_is_told", |machine, [mut first, mut second]| {
        let flags = |cpu: usize| read(page_of(&machine, cpu)).unwrap().flags & GUEST_STOPPED;
        assert_eq!((flags(0), flags(1)), (0, 0));
        first.mark_stopped()?;
        assert_eq!(flags(0), 0, "published without an entry");
        first.step()?;
        second.step()?;
        assert_eq!((flags(0), flags(1)), (GUEST_STOPPED, 0));
        for _ in 0..10 {
            machine.set_clock(machine.clock()?)?;
            first.step()?;
            second.step()?;
            assert_eq!((flags(0), flags(1)), (GUEST_STOPPED, 0));
        }
        first.acknowledge_stop()?;
        assert_eq!((flags(0), flags(1)), (0, 0));
        // And KVM does not bring it back.
        machine.set_clock(machine.clock()?)?;
        first.step()?;
        assert_eq!(flags(0), 0);
        Ok(())
    });
}

const SECOND: u64 = 1_000_000_000;

/// Both pages are even and stable, yet five seconds apart, for as long as one of the cpus does not run. A
/// reader that takes the page of the cpu it happens to be on goes back and forth; ours keeps to one page, and
/// its time makes one step.
#[test]
fn two_pages_are_not_one_clock() {
    on_a_machine("two_pages_are_not_one_clock", |machine, [mut first, mut second]| {
        let pages = [page_of(&machine, 0), page_of(&machine, 1)];
        let times = || {
            // One counter for both, so that nothing but the pages can differ.
            let at = counter();
            pages.map(|page| page.read(|| at).unwrap().nanoseconds)
        };
        for round in 0..10 {
            first.step()?;
            second.step()?;
            let [one, other] = times();
            assert!(one.abs_diff(other) <= 1, "round {round}: {one} {other}");

            // The first cpu sleeps, as idle cpus do, while the clock is set and the second runs on.
            first.halt()?;
            machine.set_clock(machine.clock()? + 5 * SECOND)?;
            second.step()?;
            assert!(pages.iter().all(|page| at_rest(page).is_stable()));
            let [stale, fresh] = times();
            let apart = fresh - stale;
            assert!((4 * SECOND..6 * SECOND).contains(&apart), "round {round}: {apart}");
            if round == 0 {
                println!("both pages even and stable, {} ms apart", apart / 1_000_000);
            }

            // A program that migrates, and asks the page of the cpu it is on.
            let hops: Vec<u64> =
                (0..100).map(|hop| read(pages[hop % 2]).unwrap().nanoseconds).collect();
            assert!(!hops.is_sorted(), "the hazard is gone: {hops:?}");
            // The same program with ours: the kernel maps one page for all cpus.
            let mut ours: Vec<u64> =
                (0..100).map(|_| read(pages[0]).unwrap().nanoseconds).collect();
            first.step()?;
            ours.extend((0..100).map(|_| read(pages[0]).unwrap().nanoseconds));
            assert!(ours.is_sorted(), "{ours:?}");
            let steps = ours.windows(2).filter(|pair| pair[1] - pair[0] > SECOND).count();
            assert_eq!(steps, 1, "round {round}");

            let [one, other] = times();
            assert!(one.abs_diff(other) <= 1, "round {round}: {one} {other}");
        }
        Ok(())
    });
}

/// Cpus whose counters differ have no common clock. KVM says so in both pages, and the reader refuses.
#[test]
fn counters_that_differ_are_refused() {
    on_a_machine("counters_that_differ_are_refused", |machine, [mut first, mut second]| {
        let both = |first: &mut Vcpu, second: &mut Vcpu| {
            machine.set_clock(machine.clock()?)?;
            first.step()?;
            second.step()?;
            Ok([0, 1].map(|cpu| read(page_of(&machine, cpu)).map(|_| ())))
        };
        assert_eq!(both(&mut first, &mut second)?, [Ok(()); 2]);
        second.set_counter_offset(-1_000_000_000)?;
        assert_eq!(both(&mut first, &mut second)?, [Err(ReadError::Unstable); 2]);
        // Equal again, they are believed again.
        first.set_counter_offset(0)?;
        second.set_counter_offset(0)?;
        assert_eq!(both(&mut first, &mut second)?, [Ok(()); 2]);
        Ok(())
    });
}

/// The guest's counter is what this process reads, and the page's clock is KVM's.
#[test]
fn the_page_tells_kvms_time() {
    on_a_machine("the_page_tells_kvms_time", |machine, [mut vcpu]| {
        for _ in 0..1000 {
            let before = counter();
            let guest = vcpu.step()?;
            let after = counter();
            assert!((before..=after).contains(&guest), "{before} {guest} {after}");
            let earlier = read(page_of(&machine, 0)).unwrap().nanoseconds;
            let kvm = machine.clock()?;
            let later = read(page_of(&machine, 0)).unwrap().nanoseconds;
            assert!((earlier.saturating_sub(1)..=later + 1).contains(&kvm));
        }
        Ok(())
    });
}
