//! Areas under attack: cells that are taken, used and dropped by threads and signal handlers under
//! migrations, drains, freezes and trims; fork; refused memory.

mod cpus;
mod forked;
mod sandbox;
mod storm;

use std::cell::RefCell;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use corelocal::cid::{self, Busy, CpuId};
use corelocal::percpu::Area;
use corelocal::percpu::area::{Cell, Error};
use sandbox::{When, run_in_child, run_refusing};
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
    let threads = scaled(100);
    for _ in 0..threads {
        let thread = thread::spawn(|| {
            OWN.with_borrow_mut(|own| {
                own.get_or_insert(Own(AREA.take().unwrap())).0.at::<0>().add(4);
            });
        });
        thread.join().unwrap();
    }
    assert_eq!(ALL.get().unwrap().at::<0>().added(), 5 * threads);
    assert_eq!((AREA.memory().cells, AREA.memory().peak), (1, 2));
}

#[test]
fn fork_copies_an_area() {
    let area: Area<2, CpuId> = Area::with_image([100, 0]).poison(true);
    let (cell, mut other) = (area.take().unwrap(), area.take().ok());
    cell.at::<0>().add(10);
    let child = forked::judge(|| {
        cell.at::<0>().add(5);
        drop(other.take());
        let third = area.take();
        let is_fresh = third.as_ref().is_ok_and(|cell| cell.iter().all(|seen| seen.1 == [100, 0]));
        let is_right = cell.at::<0>().added() == 15 && area.memory().cells == 2;
        is_fresh && is_right
    });
    let other = other.unwrap();
    other.at::<1>().add(1);
    child.succeeds();
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
            let child = forked::judge(|| {
                let mut is_right = true;
                for _ in 0..100 {
                    is_right &= AREA.take().is_ok_and(|cell| {
                        let is_fresh = cell.at::<0>().added() == 0;
                        cell.at::<0>().add(2);
                        is_fresh && cell.at::<0>().added() == 2
                    });
                }
                is_right
            });
            child.succeeds();
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
