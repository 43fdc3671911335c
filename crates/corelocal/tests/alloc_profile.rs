//! The heap profile of a process: what it says is in use is, within chance; what is given back is gone.
#![cfg(not(any(loom, miri)))]

mod forked;
mod sandbox;
mod storm;

use std::alloc::{GlobalAlloc as _, Layout};
use std::ffi::CString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use corelocal::alloc::profile::{self, Sample};
use corelocal::alloc::{self, CoreLocal};
use corelocal::sys::Errno;
use forked::{End, fork};
use sandbox::run_in_child;

/// A process that has a profile, and no other allocations than those that `body` asks for: this binary's heap is libc's.
fn with_profile(test: &str, words: &str, body: fn()) {
    let words = words.to_owned();
    run_in_child(test, move |command| _ = command.env("CORELOCAL_MALLOC", words), body);
}

/// Sizes of samples, and the bytes that they stand for.
type Sizes = Vec<(u64, u64)>;

/// Of those that are in use, and of those that were at the peak.
fn samples() -> (Sizes, Sizes) {
    let mut sample = Box::new(Sample::EMPTY);
    let (mut now, mut then) = (Vec::new(), Vec::new());
    profile::for_each(&mut sample, &mut |sample| {
        let it = (sample.size(), sample.bytes());
        if sample.is_in_use() {
            now.push(it);
        }
        if sample.was_at_peak() {
            then.push(it);
        }
    });
    (now, then)
}

/// Bytes of objects of that size.
fn bytes(samples: &[(u64, u64)], size: usize) -> f64 {
    let of_size = samples.iter().filter(|it| it.0 == size as u64);
    of_size.map(|it| it.1).sum::<u64>() as f64
}

/// So many bytes in objects of that size.
fn make(bytes: usize, size: usize) -> Vec<usize> {
    (0..bytes / size).map(|_| alloc::allocate(size) as usize).collect()
}

fn give_back(objects: Vec<usize>) {
    // SAFETY: made above, once.
    objects.into_iter().for_each(|object| unsafe { alloc::deallocate(object as *mut u8) });
}

#[test]
fn what_is_in_use_is_told() {
    with_profile("what_is_in_use_is_told", "profile,profile-rate:4K", || {
        give_back(make(10_000_000, 700));
        // The most that was in use is noted to within 2 %, which the last ones may lack: they are many.
        let amounts = [(2_000_000, 24), (6_000_000, 1040), (12_000_000, 104)];
        let made = amounts.map(|(bytes, size)| make(bytes, size));
        let (now, then) = samples();
        for (expected, size) in amounts {
            for samples in [&now, &then] {
                let ratio = bytes(samples, size) / expected as f64;
                assert!((0.8..1.2).contains(&ratio), "{size}: {ratio}");
            }
        }
        assert_eq!(bytes(&now, 700), 0.0);
        let summary = profile::summary();
        let sum: u64 = now.iter().map(|it| it.1).sum();
        assert_eq!((summary.in_use, summary.rate, summary.missed), (sum, 4096, 0));
        assert!(summary.peak >= sum / 100 * 98 && summary.bytes > 25_000_000, "{summary:?}");
        made.into_iter().for_each(give_back);
        let (now, then) = samples();
        assert!(now.is_empty() && profile::summary().in_use == 0);
        assert!(then.iter().map(|it| it.1).sum::<u64>() > 15_000_000);
    });
}

#[test]
fn threads_that_free_for_each_other() {
    with_profile("threads_that_free_for_each_other", "profile,profile-rate:1K", || {
        static MADE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for nth in 0..4 {
                let thread = thread::Builder::new().name(format!("maker-{nth}"));
                let body = move || {
                    for round in 0..200 {
                        let mine = make(4000, 40 + nth);
                        let others = std::mem::replace(&mut *MADE.lock().unwrap(), mine);
                        give_back(others);
                        if round % 50 == 0 {
                            samples();
                        }
                    }
                };
                thread.spawn_scoped(scope, body).unwrap();
            }
        });
        let (mut sample, mut count) = (Box::new(Sample::EMPTY), 0);
        profile::for_each(&mut sample, &mut |sample| {
            count += 1;
            assert!(sample.thread_name().starts_with(b"maker-") && sample.thread() != 0);
            assert!((40..44).contains(&sample.size()) && sample.taken() > 0);
            if cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(corelocal_model)))
            {
                assert!(sample.registers()[0] != 0 && !sample.words().is_empty());
            }
        });
        assert!(count > 0);
        give_back(std::mem::take(&mut *MADE.lock().unwrap()));
        assert_eq!((samples().0.len(), profile::summary().in_use), (0, 0));
    });
}

/// Every object is sampled here.
#[test]
fn objects_that_change_their_size() {
    with_profile("objects_that_change_their_size", "profile,profile-rate:1,stats", || {
        let large = || alloc::stats().large_objects;
        let in_use = || alloc::stats().classes.iter().map(|class| class.in_use).sum::<usize>();
        let only = |size: usize| assert_eq!(samples().0, [(size as u64, size as u64)]);
        let mut object = alloc::allocate(100);
        only(100);
        assert_eq!(in_use(), 1);
        // SAFETY: an object of ours, of the size last asked for.
        unsafe {
            assert_eq!((alloc::usable_size(object), object as usize % 16, large()), (112, 0, 0));
            object.write_bytes(7, 100);
            // Where it is there is room.
            assert_eq!(alloc::reallocate(object, 105), object);
            only(100);
            for (size, larges) in
                [(5000, 0), (700_000, 0), (3 << 20, 1), (30 << 20, 1), (10 << 20, 1), (90, 0)]
            {
                object = alloc::reallocate(object, size);
                only(size);
                assert_eq!(large(), larges, "{size}");
                assert!(alloc::usable_size(object) >= size);
                assert!((0..90).all(|at| object.add(at).read() == 7));
            }
            alloc::deallocate(object);
            // A small one that grows into a large one in its place, if it does.
            let object = alloc::reallocate(alloc::allocate(1_000_000), 1_100_000);
            only(1_100_000);
            assert_eq!(large(), 1);
            alloc::deallocate(object);
            assert_eq!(alloc::stats().large_bytes, 0);
            for align in [16, 64, 4096, 1 << 17] {
                let object = alloc::allocate_aligned(align, 50);
                assert_eq!(object as usize % align, 0);
                only(50);
                alloc::deallocate(object);
            }
            let object = alloc::allocate_zeroed(300);
            assert!((0..300).all(|at| object.add(at).read() == 0));
            alloc::deallocate(object);
            // Like Rust's collections, which know sizes.
            let layout = Layout::array::<u8>(200).unwrap();
            let object = CoreLocal.alloc(layout);
            let object = CoreLocal.realloc(object, layout, 1000);
            only(1000);
            CoreLocal.dealloc(object, Layout::array::<u8>(1000).unwrap());
        }
        assert!(samples().0.is_empty() && in_use() == 0);
        // What was asked for is counted where it is given back, sampled or not.
        for class in alloc::stats().classes {
            assert_eq!(class.allocated, class.freed, "{}", class.size);
        }
    });
}

#[test]
fn signal_handlers_that_allocate() {
    with_profile("signal_handlers_that_allocate", "profile,profile-rate:2K", || {
        storm::rage_doing(4, 30_000, || give_back_one(alloc::allocate(100)));
        assert!(profile::summary().samples > 100);
        assert_eq!((samples().0.len(), profile::summary().in_use), (0, 0));
    });
}

fn give_back_one(object: *mut u8) {
    // SAFETY: just allocated.
    unsafe { alloc::deallocate(object) };
}

#[test]
fn a_child_goes_on_with_a_copy() {
    with_profile("a_child_goes_on_with_a_copy", "profile,profile-rate:1", || {
        let object = alloc::allocate(1234);
        let child = fork(|| {
            let before = profile::summary().in_use;
            give_back_one(object);
            let without = profile::summary().in_use;
            let _kept = alloc::allocate(77);
            i32::from((before, without, profile::summary().in_use) != (1234, 0, 77))
        });
        assert_eq!(child.wait(), End::Code(0));
        assert_eq!(samples().0, [(1234, 1234)]);
        give_back_one(object);
    });
}

#[test]
fn files() {
    sandbox::run_with_folder(
        "files",
        |command, folder| {
            let words = format!("profile:{}/of,profile-rate:1", folder.display());
            command.env("CORELOCAL_MALLOC", &words).current_dir(folder);
        },
        || {
            let (first, second) = (alloc::allocate(10), alloc::allocate(5 << 20));
            let me = std::process::id();
            let name = |process: u32, nth: u32| format!("of.{process}.{nth}.heap");
            // What is there stays.
            std::fs::write(name(me, 0), "old").unwrap();
            profile::dump_next().unwrap();
            profile::dump_next().unwrap();
            assert_eq!(std::fs::read(name(me, 0)).unwrap(), b"old");
            for nth in [1, 2] {
                check(Path::new(&name(me, nth)), 2);
            }
            let child = fork(|| {
                give_back_one(first);
                profile::dump_next().map_or(1, |()| 0)
            });
            assert_eq!(child.wait(), End::Code(0));
            let files = std::fs::read_dir(".").unwrap().flatten();
            let of_child = files.map(|file| file.path()).find(|path| {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                !name.starts_with(&format!("of.{me}.")) && name.ends_with(".heap")
            });
            check(&of_child.expect("the child's"), 2);
            // Under a name of one's own, again and again.
            for _ in 0..2 {
                profile::dump(c"mine.heap").unwrap();
                check(Path::new("mine.heap"), 2);
            }
            let nowhere = CString::new("no/such/folder/x.heap").unwrap();
            assert_eq!(profile::dump(&nowhere), Err(Errno::ENOENT));
            give_back_one(first);
            give_back_one(second);
        },
    );
}

/// A whole profile with so many samples, in pieces of kind, length and content.
fn check(path: &Path, samples: usize) {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut rest = bytes.strip_prefix(b"CLHEAP1\n").expect("its beginning");
    let mut kinds = Vec::new();
    while !rest.is_empty() {
        let number = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        kinds.push(number(0));
        rest = &rest[8 + number(4) as usize..];
    }
    assert_eq!(kinds.iter().filter(|kind| **kind == 3).count(), samples, "{}", path.display());
    assert_eq!((kinds.first(), kinds.last()), (Some(&1), Some(&4)));
    assert!(kinds.contains(&2));
}

#[test]
fn nothing_is_recorded_when_it_is_off() {
    with_profile("nothing_is_recorded_when_it_is_off", "stats,profile-rate:1", || {
        let objects = make(5_000_000, 5000);
        assert!(!profile::is_on() && profile::summary() == profile::Summary::default());
        assert!(samples().0.is_empty() && samples().1.is_empty());
        assert_eq!(profile::dump(c"corelocal-none.heap"), Err(Errno::EINVAL));
        give_back(objects);
    });
}
