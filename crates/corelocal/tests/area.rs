//! Areas under attack: cells that are taken, used and dropped by threads and signal handlers under
//! migrations, drains, freezes and trims; fork, refused memory, memory that follows the cores used and goes
//! with the area; and random scripts beside a naive model.

mod cpus;
mod sandbox;
mod storm;

use std::cell::RefCell;
use std::fs;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use corelocal::cid::{self, Busy, CpuId, Policy};
use corelocal::percpu::area::{Cell, Error};
use corelocal::percpu::{Area, Part};
use proptest::prelude::*;
use sandbox::{When, run_in_child, run_refusing, skip};
use storm::scaled;

/// What the cells of the storm start out as.
const IMAGE: [u64; 3] = [1 << 40, 0, u64::MAX];

static AREA: Area<3> = Area::with_image(IMAGE).poison(true);
/// A cell that all use.
static HELD: OnceLock<Cell<'static, 3>> = OnceLock::new();

fn held() -> &'static Cell<'static, 3> {
    HELD.get().expect("taken before the storm")
}

/// What a thread or a signal handler does: it uses the cell that all use, and one of its own.
fn act() {
    let cell = held();
    cell.at::<0>().add(1);
    // What is stored is 2 more than what was there, and odd for no moment.
    let even = cell.at::<1>().fetch_update(|word| (word % 2 == 0).then_some(word + 2));
    assert!(even.is_ok());
    let own = AREA.take().expect("memory");
    assert!(own.iter().all(|(_, words)| words == IMAGE));
    own.at::<0>().add(3);
    own.at::<2>().add_fetch(5);
    assert_eq!((own.at::<0>().added(), own.at::<2>().added()), (3, 5));
}

fn nothing_is_lost(threads: usize, each: u64) {
    HELD.get_or_init(|| AREA.take().expect("memory"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let drained = scope.spawn(|| {
            let (mut sums, mut n) = ([0, 0], 0);
            while !done.load(Ordering::Relaxed) {
                n += 1;
                let take = |words: [u64; 3]| {
                    assert_eq!((words[1] % 2, words[2]), (0, IMAGE[2]));
                    [words[0] - IMAGE[0], words[1]]
                };
                let mut give = |taken: [u64; 2]| {
                    sums = [sums[0] + taken[0], sums[1] + taken[1]];
                };
                held().drain(|_, words| give(take(words))).expect("membarrier");
                let frozen = held().with_frozen(n % cid::capacity(), |words| {
                    take(std::mem::replace(words, IMAGE))
                });
                match frozen {
                    Ok(taken) => give(taken),
                    Err(busy) => assert_eq!(busy, Busy::NoSlot),
                }
                let _ = cid::compact();
                let _ = AREA.trim();
                thread::yield_now();
            }
            sums
        });
        let times = storm::rage_doing(threads, each, act);
        done.store(true, Ordering::Relaxed);
        let taken = drained.join().unwrap();
        assert_eq!(taken[0] + held().at::<0>().added(), times);
        assert_eq!(taken[1] + held().at::<1>().added(), 2 * times);
    });
    let memory = AREA.memory();
    assert_eq!((memory.cells, memory.corrupted), (1, 0), "{memory:?}");
    // A thread and its handlers, one upon the other, have few at a time.
    assert!(memory.regions == 1 && memory.peak > 1, "{memory:?}");
}

#[test]
fn a_storm() {
    nothing_is_lost(16, scaled(20_000));
}

#[test]
fn a_storm_without_sections() {
    let off = |command: &mut Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("a_storm_without_sections", off, || nothing_is_lost(8, scaled(5_000)));
}

/// The same beside trims that do give memory back, which those of an area with poison do not.
#[test]
fn trims_take_nothing_that_is_used() {
    static AREA: Area<512> = Area::with_image([9; 512]);
    let cells: Vec<_> = (0..20).map(|_| AREA.take().unwrap()).collect();
    let (each, done) = (scaled(10_000), AtomicBool::new(false));
    let taken: u64 = thread::scope(|scope| {
        let adders: Vec<_> = (0..4)
            .map(|thread| {
                let cells = &cells;
                scope.spawn(move || {
                    for n in 0..each {
                        if n % 16 == thread as u64 {
                            cpus::hop(n as u32);
                        }
                        cells[n as usize % 20].word(thread * 100).unwrap().add(1);
                        let brief = AREA.take().unwrap();
                        brief.at::<7>().add(n);
                        assert_eq!(brief.at::<7>().added(), n);
                    }
                })
            })
            .collect();
        let drainer = scope.spawn(|| {
            let mut taken = 0;
            while !done.load(Ordering::Relaxed) {
                for cell in &cells {
                    let sum = |words: [u64; 512]| words.iter().map(|word| word - 9).sum::<u64>();
                    // Refused without membarrier.
                    let _ = cell.drain(|_, words| taken += sum(words));
                }
                let _ = AREA.trim();
                let _ = cid::freeze(0);
            }
            taken
        });
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        done.store(true, Ordering::Relaxed);
        drainer.join().unwrap()
    });
    let left = |word: usize| cells.iter().map(|cell| cell.word(word).unwrap().added()).sum::<u64>();
    assert_eq!(taken + (0..4).map(|thread| left(thread * 100)).sum::<u64>(), 4 * each);
}

#[test]
fn cells_are_used_and_dropped_at_thread_exit() {
    static AREA: Area<1> = Area::new();
    static ALL: OnceLock<Cell<'static, 1>> = OnceLock::new();
    struct Own(Cell<'static, 1>);
    impl Drop for Own {
        fn drop(&mut self) {
            self.0.at::<0>().add(1);
            ALL.get().unwrap().at::<0>().add(self.0.at::<0>().added());
        }
    }
    thread_local!(static OWN: RefCell<Option<Own>> = const { RefCell::new(None) });
    ALL.get_or_init(|| AREA.take().unwrap());
    for _ in 0..100 {
        let thread = thread::spawn(|| {
            OWN.with_borrow_mut(|own| {
                own.get_or_insert(Own(AREA.take().unwrap())).0.at::<0>().add(4);
            });
        });
        thread.join().unwrap();
    }
    assert_eq!(ALL.get().unwrap().at::<0>().added(), 500);
    assert_eq!((AREA.memory().cells, AREA.memory().peak), (1, 2));
}

#[test]
fn fork_copies_an_area() {
    let area: Area<2, CpuId> = Area::with_image([100, 0]).poison(true);
    let (cell, other) = (area.take().unwrap(), area.take().unwrap());
    cell.at::<0>().add(10);
    // SAFETY: the child adds, takes, reads and leaves: no lock, no heap.
    let child = unsafe { libc::fork() };
    if child == 0 {
        cell.at::<0>().add(5);
        drop(other);
        let third = area.take();
        let is_fresh = third.as_ref().is_ok_and(|cell| cell.iter().all(|seen| seen.1 == [100, 0]));
        let is_right = cell.at::<0>().added() == 15 && area.memory().cells == 2;
        // SAFETY: ends the child.
        unsafe { libc::_exit(if is_fresh && is_right { 0 } else { 1 }) };
    }
    assert!(child > 0);
    other.at::<1>().add(1);
    let mut status = -1;
    // SAFETY: the child is ours and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child counted wrong");
    assert_eq!((cell.at::<0>().added(), other.at::<1>().added()), (10, 1));
    assert_eq!(area.memory().corrupted, 0);
}

/// Forks while other threads take and drop: the child can do so too, whatever they were about to do.
#[test]
fn forks_amid_changes() {
    static AREA: Area<1> = Area::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    AREA.take().unwrap().at::<0>().add(1);
                }
            });
        }
        for _ in 0..scaled(100).max(5) {
            // SAFETY: the child takes, adds, reads and leaves: no lock, no heap.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let mut is_right = true;
                for _ in 0..100 {
                    is_right &= AREA.take().is_ok_and(|cell| {
                        let is_fresh = cell.at::<0>().added() == 0;
                        cell.at::<0>().add(2);
                        is_fresh && cell.at::<0>().added() == 2
                    });
                }
                // SAFETY: ends the child.
                unsafe { libc::_exit(if is_right { 0 } else { 1 }) };
            }
            let mut status = -1;
            // SAFETY: the child is ours and `status` is writable.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child counted wrong");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(AREA.memory().cells, 0);
}

#[test]
fn without_memory() {
    run_refusing("without_memory", libc::SYS_mmap, When::Always, libc::ENOMEM, || {
        let area: Area<2> = Area::new();
        let error = area.take().err();
        assert!(matches!(error, Some(Error::NoMemory { bytes }) if bytes > 1 << 20), "{error:?}");
        assert!(error.is_some_and(|error| error.to_string().contains("RLIMIT_AS")));
        assert_eq!(area.memory().cells, 0);
    });
}

/// Pages of address space and of memory that this process has.
fn pages() -> [usize; 2] {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc");
    // The sums in there are not exact; those of the page tables are.
    let smaps = fs::read_to_string("/proc/self/smaps_rollup").expect("/proc, Linux 4.14");
    let anonymous = smaps.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a line");
    let first = |text: &str| text.split_whitespace().next().and_then(|n| n.parse::<usize>().ok());
    [first(&statm).expect("a number"), first(anonymous).expect("a number") / 4]
}

/// Lets the process have this many bytes of address space more than it has.
fn confine(more: u64) {
    let len = pages()[0] as u64 * 4096 + more;
    let limit = libc::rlimit { rlim_cur: len, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// 8 cells of a region each, until there is no address space left.
#[test]
fn address_space_runs_out() {
    run_in_child(
        "address_space_runs_out",
        |_| (),
        || {
            const LAST: usize = (1 << 14) - 1;
            let area: Area<{ LAST + 1 }> = Area::new();
            let mut cells = vec![area.take().unwrap()];
            cells.reserve(100);
            let region = area.memory().reserved as u64;
            confine(2 * region + (1 << 20));
            let error = loop {
                match area.take() {
                    Ok(cell) => cells.push(cell),
                    Err(error) => break error,
                }
                assert!(cells.len() < 100);
            };
            assert_eq!(error, Error::NoMemory { bytes: region as usize });
            assert_eq!((cells.len(), area.memory().cells), (24, 24));
            cells.iter().for_each(|cell| cell.at::<LAST>().add(2));
            assert_eq!(area.take().err(), Some(error));
            cells.truncate(23);
            cells.push(area.take().unwrap());
            assert!(cells[..23].iter().all(|cell| cell.at::<LAST>().added() == 2));
            assert_eq!(cells[23].at::<LAST>().added(), 0);
            confine(1 << 40);
            cells.push(area.take().unwrap());
            assert_eq!(
                (area.memory().cells, area.memory().peak, area.memory().regions),
                (25, 25, 4)
            );
        },
    );
}

#[test]
fn memory_follows_the_cores_and_goes_with_the_area() {
    run_in_child(
        "memory_follows_the_cores_and_goes_with_the_area",
        |_| (),
        || {
            const MIB: usize = 256;
            cpus::stay();
            cid::current::<CpuId>();
            let before = pages();
            {
                // A page of each cell on each core that uses it.
                let area: Area<512, CpuId> = Area::with_image([7; 512]);
                let cells: Vec<_> = (0..1024).map(|_| area.take().unwrap()).collect();
                assert_eq!(area.memory().regions, 4);
                let idle = pages();
                assert!(idle[1] - before[1] < MIB, "{idle:?} after {before:?}");
                assert!((idle[0] - before[0]).abs_diff(area.memory().reserved / 4096) < MIB);

                assert!(cells.iter().all(|cell| cell.at::<300>().load() == 7));
                cells.iter().for_each(|cell| cell.at::<300>().add(1));
                let used = pages();
                // One core has used them, so 4 MiB of the 4 MiB times slots are there.
                let more = used[1] - before[1];
                assert!((1024..1024 + MIB).contains(&more), "{used:?} after {before:?}");
                assert!(area.memory().resident >= 1024 * 4096);

                // Of long cells pages go back at once, and come back as the image.
                drop(cells);
                let dropped = pages();
                assert!(dropped[1] - before[1] < MIB, "{dropped:?} after {before:?}");
                assert_eq!(area.take().unwrap().at::<300>().load(), 7);
                std::mem::forget(area.take());
            }
            let after = pages();
            assert!(after[0].abs_diff(before[0]) < MIB, "{after:?} after {before:?}");
        },
    );
}

/// An unused core's pages go while its cells live on.
#[test]
fn a_trim_gives_back_what_was_drained() {
    run_in_child(
        "a_trim_gives_back_what_was_drained",
        |_| (),
        || {
            if cid::policy() == Policy::Lease || cid::capacity() < 2 {
                return skip("a_trim_gives_back_what_was_drained", "there is one slot at most");
            }
            let area: Area<512> = Area::new();
            let cells: Vec<_> = (0..100).map(|_| area.take().unwrap()).collect();
            // The other slot's, then.
            let frozen = cid::freeze(0).expect("membarrier");
            cells.iter().for_each(|cell| cell.at::<0>().add(1));
            assert!(cells[0].at::<0>().iter().any(|seen| seen == (Part::Slot(1), 1)));
            drop(frozen);
            cpus::stay();
            let (mut taken, before) = (0, pages()[1]);
            cells.iter().for_each(|cell| {
                cell.drain(|_, words| taken += words[0]).expect("membarrier");
            });
            assert_eq!(taken, 100);
            assert!(area.trim().expect("membarrier") >= 100 * 4096);
            assert!(before - pages()[1] > 80);
            cells.iter().for_each(|cell| cell.at::<0>().add(1));
            assert!(cells.iter().all(|cell| cell.at::<0>().added() == 1));
        },
    );
}

#[derive(Clone, Debug)]
enum Op {
    Take,
    Drop(usize),
    Forget(usize),
    Add(usize, usize, u64),
    AddFetch(usize, usize, u64),
    Exchange(usize, usize, u64),
    Store(usize, usize, u64, u64),
    Update(usize, usize, u64),
    FrozenWord(usize, usize, u32, u64),
    FrozenCell(usize, u32, [u64; 3]),
    DrainWord(usize, usize),
    DrainCell(usize),
    Freeze(u32),
    Trim,
}

fn op() -> impl Strategy<Value = Op> {
    let (cell, word, n, slot) = (0..8usize, 0..3usize, 0..50u64, 0..4u32);
    let at = (cell.clone(), word);
    prop_oneof![
        6 => Just(Op::Take),
        2 => cell.clone().prop_map(Op::Drop),
        1 => cell.clone().prop_map(Op::Forget),
        4 => (at.clone(), n.clone()).prop_map(|((c, w), n)| Op::Add(c, w, n)),
        4 => (at.clone(), n.clone()).prop_map(|((c, w), n)| Op::AddFetch(c, w, n)),
        4 => (at.clone(), n.clone()).prop_map(|((c, w), n)| Op::Exchange(c, w, n)),
        4 => (at.clone(), n.clone(), n.clone()).prop_map(|((c, w), e, n)| Op::Store(c, w, e, n)),
        4 => (at.clone(), n.clone()).prop_map(|((c, w), n)| Op::Update(c, w, n)),
        2 => (at.clone(), slot.clone(), n.clone())
            .prop_map(|((c, w), s, n)| Op::FrozenWord(c, w, s, n)),
        2 => (cell.clone(), slot.clone(), [n.clone(), n.clone(), n])
            .prop_map(|(c, s, n)| Op::FrozenCell(c, s, n)),
        1 => at.prop_map(|(c, w)| Op::DrainWord(c, w)),
        1 => cell.prop_map(Op::DrainCell),
        2 => slot.prop_map(Op::Freeze),
        1 => Just(Op::Trim),
    ]
}

/// What the cores have of one word of a cell, but for those that have what they had from the beginning.
#[derive(Clone, Debug, PartialEq)]
struct Bag {
    initial: u64,
    words: Vec<u64>,
}

impl Bag {
    /// Takes one word for another; the initial one is there as often as you like.
    fn replace(&mut self, old: u64, new: u64) -> bool {
        if old != self.initial {
            let Some(at) = self.words.iter().position(|word| *word == old) else { return false };
            self.words.remove(at);
        }
        if new != self.initial {
            self.words.push(new);
        }
        self.words.sort_unstable();
        true
    }
}

fn bags(cell: &Cell<'_, 3>, image: [u64; 3]) -> [Bag; 3] {
    [0, 1, 2].map(|word| {
        let initial = image[word];
        let mut words: Vec<u64> =
            cell.iter().map(|(_, words)| words[word]).filter(|word| *word != initial).collect();
        words.sort_unstable();
        Bag { initial, words }
    })
}

fn may_be_refused<T>(result: Result<T, Busy>) -> Result<Option<T>, TestCaseError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Busy::NoSlot | Busy::Fence(_)) => Ok(None),
        Err(busy) => Err(TestCaseError::fail(busy.to_string())),
    }
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Each operation changes one word of one cell, and in the way it says; a cell that was just taken holds
    /// the image; and what is counted is right.
    #[test]
    fn behaves_like_bags_of_integers(
        script in proptest::collection::vec(op(), 1..80),
        image in proptest::array::uniform3(0..3u64),
        is_poisoned in any::<bool>(),
        limit in 1..10u64,
    ) {
        let area: Area<3> = Area::with_image(image).poison(is_poisoned).limit(limit);
        let mut cells: Vec<(Cell<'_, 3>, [Bag; 3])> = Vec::new();
        let (mut forgotten, mut peak) = (0, 0);
        for op in script {
            let len = cells.len().max(1);
            let at = |cell: usize| cell % len;
            match op {
                Op::Take => {
                    let given = cells.len() as u64 + forgotten;
                    match area.take() {
                        Ok(cell) => {
                            prop_assert!(given < limit);
                            cells.push((cell, image.map(|initial| Bag { initial, words: Vec::new() })));
                            peak = peak.max(given + 1);
                        }
                        Err(error) => {
                            prop_assert_eq!(error, Error::Full { limit });
                            prop_assert_eq!(given, limit);
                        }
                    }
                }
                _ if cells.is_empty() => {}
                Op::Drop(cell) => drop(cells.swap_remove(at(cell))),
                Op::Forget(cell) => {
                    std::mem::forget(cells.swap_remove(at(cell)).0);
                    forgotten += 1;
                }
                Op::Add(cell, word, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let before = bags(cell, image);
                    cell.word(word).unwrap().add(n);
                    // Which one it was is not told.
                    let olds = before[word].words.iter().copied().chain([image[word]]);
                    let after = bags(cell, image);
                    let is_one = |old: u64| {
                        let mut bag = model[word].clone();
                        bag.replace(old, old + n) && bag == after[word]
                    };
                    let mut olds = olds.filter(|old| is_one(*old));
                    let old = olds.next();
                    prop_assert!(old.is_some());
                    prop_assert!(model[word].replace(old.unwrap(), old.unwrap() + n));
                }
                Op::AddFetch(cell, word, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let (part, new) = cell.word(word).unwrap().add_fetch_at(n);
                    prop_assert!(model[word].replace(new - n, new));
                    prop_assert!(cell.iter().any(|(of, words)| of == part && words[word] == new));
                }
                Op::Exchange(cell, word, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let old = cell.word(word).unwrap().exchange(n);
                    prop_assert!(model[word].replace(old, n));
                }
                Op::Store(cell, word, expected, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    if cell.word(word).unwrap().store_if_equal(expected, n).is_ok() {
                        prop_assert!(model[word].replace(expected, n));
                    }
                }
                Op::Update(cell, word, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let update = |word: u64| (word < 1000).then_some(word + n);
                    if let Ok(old) = cell.word(word).unwrap().fetch_update(update) {
                        prop_assert!(model[word].replace(old, old + n));
                    }
                }
                Op::FrozenWord(cell, word, slot, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let replace = |word: &mut u64| std::mem::replace(word, n);
                    let old = cell.word(word).unwrap().with_frozen(slot, replace);
                    if let Some(old) = may_be_refused(old)? {
                        prop_assert!(model[word].replace(old, n));
                    }
                }
                Op::FrozenCell(cell, slot, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let replace = |words: &mut [u64; 3]| std::mem::replace(words, n);
                    if let Some(old) = may_be_refused(cell.with_frozen(slot, replace))? {
                        for word in 0..3 {
                            prop_assert!(model[word].replace(old[word], n[word]));
                        }
                    }
                }
                Op::DrainWord(cell, word) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let mut taken = Vec::new();
                    let drained = cell.word(word).unwrap().drain(|_, word| taken.push(word));
                    prop_assert!(drained.is_ok());
                    taken.sort_unstable();
                    prop_assert_eq!(taken, std::mem::take(&mut model[word].words));
                }
                Op::DrainCell(cell) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let mut taken = Vec::new();
                    prop_assert!(cell.drain(|_, words| taken.push(words)).is_ok());
                    for word in 0..3 {
                        let changed = |words: &[u64; 3]| words[word];
                        let mut taken: Vec<u64> = taken.iter().map(changed).collect();
                        taken.retain(|taken| *taken != image[word]);
                        taken.sort_unstable();
                        prop_assert_eq!(taken, std::mem::take(&mut model[word].words));
                    }
                }
                Op::Freeze(slot) => drop(cid::freeze(slot)),
                Op::Trim => prop_assert!(area.trim().is_ok()),
            }
            for (cell, model) in &cells {
                prop_assert!(bags(cell, image) == *model, "{:?}, not {:?}", cell, model);
            }
            let memory = area.memory();
            let given = cells.len() as u64 + forgotten;
            prop_assert_eq!((memory.cells, memory.peak, memory.corrupted), (given, peak, 0));
        }
    }
}
