//! Programs that are wrong, under `CORELOCAL_MALLOC=check`: a line on stderr that tells what is wrong of which object,
//! and the end by `SIGABRT`. (`alloc.rs` and `alloc_worlds.rs` have programs that are right under it.)
#![cfg(not(any(loom, miri)))]

mod faulty;
mod sandbox;

use std::alloc::{GlobalAlloc as _, Layout};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Output;
use std::thread;

use corelocal::alloc::{self, CoreLocal};
use sandbox::run_in_child;

/// Runs `wrong` in a process of its own that checks.
fn run(test: &str, wrong: unsafe fn()) -> Output {
    faulty::run(test, "check", wrong)
}

/// What `wrong` makes the malloc say before the process is aborted.
fn last_words(test: &str, wrong: unsafe fn()) -> String {
    faulty::last_words(test, "check", libc::SIGABRT, wrong).0
}

/// Gives back as many other objects as it takes to get one that was freed out of the quarantine.
unsafe fn churn(size: usize) {
    for _ in 0..4000 {
        // SAFETY: just allocated.
        unsafe { alloc::deallocate(alloc::allocate(size)) };
    }
}

#[test]
fn one_byte_behind_the_end() {
    // SAFETY: within the object's place; it is noticed.
    let said = last_words("one_byte_behind_the_end", || unsafe {
        let object = alloc::allocate(100);
        object.add(100).write(0);
        alloc::deallocate(object);
    });
    assert!(said.ends_with("behind its end: byte 100 of an object of 100 bytes"), "{said}");
}

#[test]
fn over_the_trailer() {
    // SAFETY: within the object's place of 112 bytes.
    let said = last_words("over_the_trailer", || unsafe {
        let object = alloc::allocate(100);
        object.add(100).write_bytes(0, 12);
        alloc::deallocate(object);
    });
    assert!(said.contains("written to behind its end, over its size"), "{said}");
}

#[test]
fn no_slack_but_the_trailer() {
    // SAFETY: within the object's place of 112 bytes, of which the last 8 are the trailer.
    let said = last_words("no_slack_but_the_trailer", || unsafe {
        let object = alloc::allocate(104);
        // Whatever is there, it is another one then.
        object.add(104).write(!object.add(104).read());
        alloc::deallocate(object);
    });
    assert!(said.contains("written to behind its end"), "{said}");
}

#[test]
fn behind_the_end_of_a_large_one() {
    // SAFETY: within the object's last page.
    let said = last_words("behind_the_end_of_a_large_one", || unsafe {
        let object = alloc::allocate((3 << 20) + 5);
        object.add((3 << 20) + 8).write(0);
        alloc::deallocate(object);
    });
    assert!(said.ends_with("byte 3145736 of an object of 3145733 bytes"), "{said}");
}

#[test]
fn twice_at_once() {
    // SAFETY: noticed at once, whatever came in between.
    let said = last_words("twice_at_once", || unsafe {
        let object = alloc::allocate(100);
        alloc::deallocate(object);
        churn(200);
        alloc::deallocate(object);
    });
    assert!(said.ends_with("freed, but it is free already"), "{said}");
}

#[test]
fn twice_by_two_threads() {
    // SAFETY: unsound, as intended: the child is ended when the object is freed again.
    let said = last_words("twice_by_two_threads", || unsafe {
        let object = alloc::allocate(100) as usize;
        thread::spawn(move || alloc::deallocate(object as *mut u8)).join().unwrap();
        alloc::deallocate(object as *mut u8);
    });
    assert!(said.ends_with("freed, but it is free already"), "{said}");
}

#[test]
fn twice_a_large_one() {
    // SAFETY: unsound, as intended: the child is ended when the object is freed again.
    let said = last_words("twice_a_large_one", || unsafe {
        let object = alloc::allocate(3 << 20);
        alloc::deallocate(object);
        alloc::deallocate(object);
    });
    assert!(said.ends_with("freed, but it is free already"), "{said}");
}

#[test]
fn size_of_a_freed_one() {
    // SAFETY: unsound, as intended: the child is ended when it asks for the size.
    let said = last_words("size_of_a_freed_one", || unsafe {
        let object = alloc::allocate(100);
        alloc::deallocate(object);
        alloc::usable_size(object);
    });
    assert!(said.ends_with("free already"), "{said}");
}

#[test]
fn the_inside_of_a_small_one() {
    // SAFETY: unsound, as intended: the child is ended by the free of an inner pointer.
    let said = last_words("the_inside_of_a_small_one", || unsafe {
        alloc::deallocate(alloc::allocate(1000).add(16));
    });
    assert!(said.ends_with("not the beginning of an object"), "{said}");
}

#[test]
fn another_size() {
    // SAFETY: unsound, as intended: the child is ended by the free with another size.
    let said = last_words("another_size", || unsafe {
        let object = CoreLocal.alloc(Layout::from_size_align(100, 8).unwrap());
        CoreLocal.dealloc(object, Layout::from_size_align(104, 8).unwrap());
    });
    assert!(
        said.ends_with("freed as 104 bytes, but allocated with another size: 100 bytes"),
        "{said}"
    );
}

#[test]
fn another_size_of_an_aligned_one() {
    // SAFETY: unsound, as intended: the child is ended by the free with another size.
    let said = last_words("another_size_of_an_aligned_one", || unsafe {
        alloc::deallocate_aligned_sized(alloc::allocate_aligned(256, 300), 256, 200);
    });
    assert!(said.contains("freed as 200 bytes, but"), "{said}");
}

#[test]
fn another_size_of_a_large_one() {
    // SAFETY: unsound, as intended: the child is ended by the free with another size.
    let said = last_words("another_size_of_a_large_one", || unsafe {
        alloc::deallocate_sized(alloc::allocate(2 << 20), 3 << 20);
    });
    assert!(said.ends_with("with another size: 2097152 bytes"), "{said}");
}

#[test]
fn written_to_after_it_was_freed() {
    // SAFETY: unsound, as intended: it is in quarantine. Detected when it leaves quarantine.
    let said = last_words("written_to_after_it_was_freed", || unsafe {
        let object = alloc::allocate(100);
        alloc::deallocate(object);
        object.add(37).write(1);
        churn(500);
    });
    assert!(said.ends_with("after it was freed: byte 37 of an object of 100 bytes"), "{said}");
}

#[test]
fn written_to_while_nobody_looks() {
    // SAFETY: unsound, as intended. Detected by an explicit check.
    let said = last_words("written_to_while_nobody_looks", || unsafe {
        let object = alloc::allocate(100);
        alloc::deallocate(object);
        object.write(1);
        alloc::verify();
    });
    assert!(said.contains("after it was freed: byte 0 of"), "{said}");
}

#[test]
fn written_to_after_quarantine() {
    // SAFETY: unsound, as intended. Detected at the latest when it is allocated again.
    let said = last_words("written_to_after_quarantine", || unsafe {
        // It waits on the core that it leaves the quarantine on, where the thread is most of the time.
        for _ in 0..100 {
            let object = alloc::allocate(100);
            alloc::deallocate(object);
            churn(500);
            object.add(50).write(1);
            churn(100);
        }
    });
    assert!(said.ends_with("after it was freed: byte 50 of an object of 100 bytes"), "{said}");
}

#[test]
fn reallocated_ones_are_freed() {
    // SAFETY: unsound, as intended: the object has moved though there was room, so the old pointer is detected as
    // freed.
    let said = last_words("reallocated_ones_are_freed", || unsafe {
        let object = alloc::allocate(100);
        let moved = alloc::reallocate(object, 101);
        assert!(moved != object);
        object.write(1);
        alloc::verify();
    });
    assert!(said.contains("after it was freed: byte 0 of"), "{said}");
}

#[test]
fn large_ones_that_were_freed_cannot_be_touched() {
    // SAFETY: a signal tells.
    let output = run("large_ones_that_were_freed_cannot_be_touched", || unsafe {
        let object = alloc::allocate(3 << 20);
        object.write(1);
        alloc::deallocate(object);
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        object.read_volatile();
    });
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV));
}

/// Exact sizes, moves, fresh bytes that are not 0, and neighbours that are not given out in a row.
#[test]
fn what_is_promised() {
    run_in_child(
        "what_is_promised",
        |command| _ = command.env("CORELOCAL_MALLOC", "check"),
        // SAFETY: objects of so many bytes.
        || unsafe {
            for size in [0, 1, 15, 100, 104, 105, 5000, 1 << 20, (1 << 20) - 8, 5_000_001] {
                let object = alloc::allocate(size);
                assert_eq!(alloc::usable_size(object), size);
                let bytes = std::slice::from_raw_parts(object, size.min(60_000));
                assert!(bytes.iter().all(|byte| *byte == bytes[0] && *byte != 0));
                let moved = alloc::reallocate(object, size + 1);
                assert!(moved != object && alloc::usable_size(moved) == size + 1);
                alloc::deallocate_sized(moved, size + 1);
                let zeroed = alloc::allocate_zeroed(size);
                assert!(std::slice::from_raw_parts(zeroed, size).iter().all(|byte| *byte == 0));
                alloc::deallocate(zeroed);
                let layout = Layout::from_size_align(size, 64).unwrap();
                let aligned = CoreLocal.alloc(layout);
                assert!(aligned as usize % 64 == 0);
                let grown = CoreLocal.realloc(aligned, layout, size + 3);
                assert!(grown as usize % 64 == 0 && alloc::usable_size(grown) == size + 3);
                CoreLocal.dealloc(grown, Layout::from_size_align(size + 3, 64).unwrap());
            }
            let objects: Vec<usize> = (0..60).map(|_| alloc::allocate(72) as usize).collect();
            assert!(!objects.is_sorted());
            assert!(objects.iter().any(|object| objects.contains(&(object + 80))));
            objects.into_iter().for_each(|object| alloc::deallocate(object as *mut u8));
            alloc::verify();
            alloc::trim(0);
        },
    );
}
