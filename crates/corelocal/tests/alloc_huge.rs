//! Huge pages: what is dense gets them, what is sparse does not, and what is given back is gone.
#![cfg(not(any(loom, miri)))]

mod forked;
mod sandbox;
mod storm;

use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs, thread};

use corelocal::alloc;
use forked::{End, fork};
use sandbox::{When, run_in_child, run_refusing, skip};
use storm::{Tell, scaled};

const HUGE_PAGE: usize = 2 << 20;

/// Why no memory of this machine can be made huge; `None` if it can.
fn why_not() -> Option<String> {
    let said = |name: &str| {
        fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}"))
            .unwrap_or_default()
    };
    let (enabled, size) = (said("enabled"), said("hpage_pmd_size"));
    if enabled.is_empty() || enabled.contains("[never]") {
        return Some(format!("the machine wants no huge pages: {:?}", enabled.trim()));
    }
    if size.trim().parse() != Ok(HUGE_PAGE) {
        return Some(format!("huge pages of {} bytes", size.trim()));
    }
    // By hand, as the malloc does it: Linux 6.1, and memory in one piece.
    let len = 2 * HUGE_PAGE;
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping of our own, which is written to where a huge page of it begins, and goes.
    let made = unsafe {
        let at = libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let page = (at as usize).next_multiple_of(HUGE_PAGE) as *mut libc::c_void;
        page.cast::<u8>().write(1);
        let made = libc::madvise(page, HUGE_PAGE, 25);
        let why = std::io::Error::last_os_error();
        libc::munmap(at, len);
        if made == 0 { Ok(()) } else { Err(why) }
    };
    made.err().map(|error| format!("the kernel makes no huge page: {error}"))
}

/// Bytes of huge pages, and of memory, in the mappings that these addresses lie in.
fn in_memory(addresses: &Range<usize>) -> (usize, usize) {
    let (mut huge, mut resident, mut is_ours) = (0, 0, false);
    for line in fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let first = line.split_whitespace().next().unwrap();
        if let Some((from, to)) = first.split_once('-') {
            let [from, to] = [from, to].map(|end| usize::from_str_radix(end, 16).unwrap());
            is_ours = from < addresses.end && to > addresses.start;
        } else if is_ours {
            let bytes = || line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024;
            match first {
                "AnonHugePages:" => huge += bytes(),
                "Rss:" => resident += bytes(),
                _ => {}
            }
        }
    }
    (huge, resident)
}

/// Pages of an object that are in memory.
fn pages_in_memory(object: *mut u8, size: usize) -> usize {
    // SAFETY: no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let mut pages = vec![0u8; size.div_ceil(page)];
    // SAFETY: mapped, and begins with a page; a byte is written for each page.
    assert_eq!(unsafe { libc::mincore(object.cast(), size, pages.as_mut_ptr()) }, 0);
    pages.iter().filter(|state| *state & 1 == 1).count()
}

/// Objects of a size, all written to.
fn fill(count: usize, size: usize) -> Vec<*mut u8> {
    let objects: Vec<_> = (0..count).map(|_| alloc::allocate(size)).collect();
    for (nth, object) in objects.iter().enumerate() {
        // SAFETY: so many bytes, ours.
        unsafe { object.write_bytes(nth as u8, size) };
    }
    objects
}

/// Whether they hold what [`fill`] wrote.
fn is_whole(nth: usize, object: *mut u8, size: usize) -> bool {
    // SAFETY: made by `fill`, and not freed yet.
    unsafe { std::slice::from_raw_parts(object, size).iter().all(|byte| *byte == nth as u8) }
}

fn empty(objects: impl IntoIterator<Item = *mut u8>) {
    // SAFETY: what `fill` made, once.
    objects.into_iter().for_each(|object| unsafe { alloc::deallocate(object) });
}

fn addresses(objects: &[*mut u8], size: usize) -> Range<usize> {
    let addresses = || objects.iter().map(|object| *object as usize);
    addresses().min().unwrap()..addresses().max().unwrap() + size
}

/// As a thread that gives back memory does, for some periods.
fn periods(count: usize) {
    for _ in 0..count {
        alloc::release_idle();
        alloc::use_huge_pages();
    }
}

/// Runs `body` in a child, unless nothing can be made huge here.
fn where_they_can_be_made(test: &str, body: impl FnOnce()) {
    match why_not() {
        Some(why) => skip(test, &why),
        None => run_in_child(test, |_| (), body),
    }
}

/// Small objects and large ones: huge after two periods and no sooner, whole, and gone when they are freed.
#[test]
fn what_is_dense_is_made_huge() {
    where_they_can_be_made("what_is_dense_is_made_huge", || {
        for (count, size) in [(1 << 20, 64), (96, 320 << 10), (1, 40 << 20)] {
            let bytes = count * size;
            let objects = fill(count, size);
            let at = addresses(&objects, size);
            let before = in_memory(&at).0;
            assert!(alloc::use_huge_pages(), "there may be more");
            assert_eq!((in_memory(&at).0, alloc::stats().huge), (before, before), "not yet");
            // Some at a time.
            periods(bytes / HUGE_PAGE / 16 + 4);
            let (huge, resident) = in_memory(&at);
            let least = bytes - bytes / 8 - 2 * HUGE_PAGE;
            assert!(huge >= least, "{size}: {huge} of {bytes}");
            assert_eq!(huge, alloc::stats().huge);
            assert!(resident < bytes + bytes / 4 + (16 << 20), "{size}: {resident}");
            assert!(!alloc::use_huge_pages(), "nothing is left to be made");
            assert!(objects.iter().enumerate().all(|(nth, object)| is_whole(nth, *object, size)));
            empty(objects);
            periods(4);
            let (huge, resident) = in_memory(&at);
            assert!(huge == 0 && alloc::stats().huge == 0, "{size}: {huge}");
            assert!(resident < 16 << 20, "{size}: {resident} are left");
        }
    });
}

/// Pages between objects go back from a huge page as from others, and do not come again by themselves.
#[test]
fn what_has_become_sparse_is_huge_no_more() {
    where_they_can_be_made("what_has_become_sparse_is_huge_no_more", || {
        let (count, size) = (20_000, 3000);
        let objects = fill(count, size);
        let at = addresses(&objects, size);
        periods(8);
        assert!(in_memory(&at).0 > count * size / 2);
        let is_kept = |nth: usize| nth % 50 == 0;
        let all = || objects.iter().copied().enumerate();
        empty(all().filter(|(nth, _)| !is_kept(*nth)).map(|(_, object)| object));
        periods(8);
        let (huge, resident) = in_memory(&at);
        assert!(huge < 8 << 20 && huge == alloc::stats().huge, "{huge} are huge");
        assert!(resident < 20 << 20, "{resident} are left");
        let mut kept = all().filter(|(nth, _)| is_kept(*nth));
        assert!(kept.all(|(nth, object)| is_whole(nth, object, size)));
        empty(all().filter(|(nth, _)| is_kept(*nth)).map(|(_, object)| object));
        // What comes next is dense again.
        let objects = fill(count, size);
        periods(8);
        assert!(in_memory(&addresses(&objects, size)).0 > count * size / 2);
        assert!(objects.iter().enumerate().all(|(nth, object)| is_whole(nth, *object, size)));
        empty(objects);
    });
}

/// A long table that is hardly used is no memory, whatever was in its place before.
#[test]
fn a_table_in_the_place_of_another_is_no_memory() {
    run_in_child(
        "a_table_in_the_place_of_another_is_no_memory",
        |_| (),
        || {
            let dense = 40 << 20;
            let before = fill(1, dense);
            periods(8);
            empty(before);
            for size in [dense, (256 << 20) + 100, 256 << 20] {
                let table = alloc::allocate_zeroed(size);
                let used = [0, dense - 2, size / 2, size - 1];
                for place in used {
                    // SAFETY: a byte of the table.
                    unsafe {
                        assert_eq!(table.add(place).read(), 0, "{place} of {size}");
                        table.add(place).write(1);
                    }
                }
                let resident = pages_in_memory(table, size);
                assert!(resident < 4 * HUGE_PAGE / 4096 + 4, "{size}: {resident} pages");
                empty([table]);
            }
        },
    );
}

/// An object of which each second page was written, and one that was only read.
#[test]
fn what_is_sparse_is_not() {
    run_in_child(
        "what_is_sparse_is_not",
        |_| (),
        || {
            let size = 32 << 20;
            let (written, read) = (alloc::allocate(size), alloc::allocate_zeroed(size));
            for page in 0..size / 4096 {
                // SAFETY: within the objects.
                unsafe {
                    if page % 2 == 0 {
                        written.add(page * 4096).write(1);
                    }
                    assert_eq!(read.add(page * 4096).read_volatile(), 0);
                }
            }
            let at = addresses(&[written, read], size);
            let before = in_memory(&at);
            periods(8);
            let after = in_memory(&at);
            assert!(after.0 == 0 && alloc::stats().huge == 0, "{after:?}");
            assert!(after.1 < before.1 + (1 << 20), "{before:?} {after:?}");
            empty([written, read]);
        },
    );
}

/// A malloc that is not told the machine's setting leaves it alone.
#[test]
fn nothing_is_made_where_nobody_says_so() {
    let test = "nothing_is_made_where_nobody_says_so";
    run_refusing(test, libc::SYS_openat, When::Always, libc::ENOENT, || {
        let objects = fill(1000, 10_000);
        assert!((0..8).all(|_| !alloc::use_huge_pages()));
        assert_eq!(alloc::stats().huge, 0);
        empty(objects);
    });
}

/// A process that wants none has none, and its malloc works.
#[test]
fn nothing_is_made_in_a_process_that_wants_none() {
    run_in_child(
        "nothing_is_made_in_a_process_that_wants_none",
        |_| (),
        || {
            // SAFETY: numbers.
            assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) }, 0);
            let objects = fill(2000, 10_000);
            periods(10);
            let at = addresses(&objects, 10_000);
            assert_eq!((in_memory(&at).0, alloc::stats().huge), (0, 0));
            let whole = |(nth, object): (usize, &*mut u8)| is_whole(nth, *object, 10_000);
            assert!(objects.iter().enumerate().all(whole));
            empty(objects);
            periods(4);
            assert!(in_memory(&at).1 < 8 << 20);
        },
    );
}

/// All of it on machines of several nodes, of which each has its pages.
#[test]
fn under_nodes() {
    if env::var_os("CORELOCAL_MALLOC").is_some() {
        return skip("under_nodes", "the malloc is told what to do already");
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.env("CORELOCAL_MALLOC", "nodes:3").args(["--skip", "under_nodes"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// While huge pages are made, broken up and made again: what threads and forked children have stays whole.
#[test]
fn pages_are_made_huge_under_way() {
    run_in_child(
        "pages_are_made_huge_under_way",
        |_| (),
        || {
            const SIZE: usize = 5000;
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                let _at_end = Tell(&done);
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        periods(1);
                        alloc::trim(8 << 20);
                    }
                });
                let rounds = scaled(30).max(3) as usize;
                let mut threads = Vec::new();
                for _ in 0..2 {
                    threads.push(scope.spawn(move || {
                        for round in 0..rounds {
                            let objects = fill(4000, SIZE);
                            let (kept, freed): (Vec<_>, Vec<_>) = objects
                                .into_iter()
                                .enumerate()
                                .partition(|(nth, _)| nth % 7 == round % 7);
                            empty(freed.into_iter().map(|(_, object)| object));
                            thread::yield_now();
                            assert!(kept.iter().all(|(nth, object)| is_whole(*nth, *object, SIZE)));
                            empty(kept.into_iter().map(|(_, object)| object));
                        }
                    }));
                }
                let held = fill(3000, SIZE);
                for _ in 0..rounds {
                    let child = fork(|| {
                        let is_held =
                            |(nth, object): (usize, &*mut u8)| is_whole(nth, *object, SIZE);
                        let before = held.iter().enumerate().all(is_held);
                        periods(3);
                        i32::from(!before || !held.iter().enumerate().all(is_held))
                    });
                    assert_eq!(child.wait(), End::Code(0));
                }
                empty(held);
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            });
        },
    );
}
