//! Faulty programs under `CORELOCAL_MALLOC=guard:1`: the report names the stacks of the allocation and the free.
#![cfg(not(any(loom, miri)))]

mod faulty;
mod sandbox;

use std::alloc::{GlobalAlloc as _, Layout};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use corelocal::alloc::{self, CoreLocal};
use sandbox::run_in_child;

/// A few of the objects are guarded: this one is.
fn guarded(size: usize) -> *mut u8 {
    for _ in 0..10_000 {
        let before = alloc::stats().guarded_ever;
        let object = alloc::allocate(size);
        if alloc::stats().guarded_ever > before {
            return object;
        }
    }
    panic!("no object is guarded");
}

/// A guarded one whose end, or whose beginning, is that of a page.
fn guarded_at(size: usize, at_end: bool) -> *mut u8 {
    const PAGE: usize = 4096;
    for _ in 0..100 {
        let object = guarded(size);
        let edge = if at_end { object as usize + size } else { object as usize };
        if edge % PAGE == 0 {
            return object;
        }
        // SAFETY: ours.
        unsafe { alloc::deallocate(object) };
    }
    panic!("none at this edge");
}

/// Whether the library knows a thread's registers and stack here.
const HAS_STACKS: bool =
    cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(corelocal_model)));

/// Runs `wrong` in a process of its own that guards: see [`faulty::last_words`].
fn last_words(test: &str, signal: i32, wrong: unsafe fn()) -> (String, String) {
    faulty::last_words(test, "guard:2", signal, wrong)
}

/// The stacks that a report has: this program's file is in each of them, where they are copied at all. That of the access
/// itself comes from the registers that a signal interrupted.
fn has_stacks(said: &str, headlines: &[&str]) {
    let lines: Vec<&str> = said.lines().collect();
    let is_known = |headline: &&&str| HAS_STACKS || **headline != "used by";
    let headlines: Vec<_> = headlines.iter().filter(is_known).collect();
    for headline in &headlines {
        let at = lines.iter().position(|line| line.starts_with(&format!("  {headline} thread ")));
        let at = at.unwrap_or_else(|| panic!("{headline}: {said}"));
        let frames = lines[at + 1..].iter().take_while(|line| line.starts_with("    #"));
        let of_this_program = frames.filter(|line| line.contains("/alloc_guard")).count();
        if HAS_STACKS {
            assert!(of_this_program > 0, "{headline}: {said}");
        }
    }
    assert_eq!(lines.iter().filter(|line| line.contains(" thread ")).count(), headlines.len());
}

#[test]
fn read_after_it_was_freed() {
    // SAFETY: a signal tells.
    let (line, said) = last_words("read_after_it_was_freed", libc::SIGSEGV, || unsafe {
        let object = guarded(100);
        alloc::deallocate(object);
        object.add(20).read_volatile();
    });
    assert!(line.contains(" used after it was freed: a"), "{line}");
    assert!(line.contains(" of byte 20 of an object of 100 bytes at 0x"), "{line}");
    has_stacks(&said, &["used by", "allocated by", "freed by"]);
}

#[test]
fn written_by_another_thread() {
    // SAFETY: unsound, as intended: the access raises a signal that ends the child.
    let (line, said) = last_words("written_by_another_thread", libc::SIGSEGV, || unsafe {
        let object = guarded(5000) as usize;
        let freeing = thread::Builder::new().name("who frees".into());
        freeing.spawn(move || alloc::deallocate(object as *mut u8)).unwrap().join().unwrap();
        (object as *mut u8).write_volatile(1);
    });
    if HAS_STACKS {
        assert!(line.contains(" freed: a write of byte 0 of an object of 5000 bytes"), "{line}");
    }
    assert!(said.contains("(who frees)"), "{said}");
    has_stacks(&said, &["used by", "allocated by", "freed by"]);
}

#[test]
fn behind_the_end() {
    // SAFETY: unsound, as intended: the access raises a signal that ends the child.
    let (line, said) = last_words("behind_the_end", libc::SIGSEGV, || unsafe {
        guarded_at(160, true).add(160).write_volatile(1);
    });
    assert!(line.contains(" used behind its end: a"), "{line}");
    assert!(line.contains(" of byte 160 of an object of 160 bytes at 0x"), "{line}");
    has_stacks(&said, &["used by", "allocated by"]);
}

#[test]
fn before_the_beginning() {
    // SAFETY: unsound, as intended: the access raises a signal that ends the child.
    let (line, said) = last_words("before_the_beginning", libc::SIGSEGV, || unsafe {
        guarded_at(100, false).sub(3).read_volatile();
    });
    assert!(line.contains(" used before its beginning: a"), "{line}");
    assert!(line.contains(" of byte -3 of an object of 100 bytes at 0x"), "{line}");
    has_stacks(&said, &["used by", "allocated by"]);
}

/// A guarded object of 434 bytes that was moved there as it grew.
fn guarded_as_it_grew() -> *mut u8 {
    for _ in 0..10_000 {
        // SAFETY: ours.
        unsafe {
            let object = alloc::reallocate(alloc::allocate(400), 434);
            if alloc::usable_size(object) == 434 {
                return object;
            }
            alloc::deallocate_sized(object, 434);
        }
    }
    panic!("none of 10,000 is guarded");
}

/// It has no room beyond the size that was asked for, which its caller knows.
#[test]
fn the_size_of_an_object_that_grew() {
    run_in_child(
        "the_size_of_an_object_that_grew",
        |command| _ = command.env("CORELOCAL_MALLOC", "guard:50"),
        // SAFETY: an object of so many bytes.
        || unsafe { alloc::deallocate_sized(guarded_as_it_grew(), 434) },
    );
}

#[test]
fn behind_the_end_of_an_object_that_grew() {
    let test = "behind_the_end_of_an_object_that_grew";
    // SAFETY: within the page, or a signal tells.
    let (line, _) = faulty::last_words(test, "guard:50", libc::SIGABRT, || unsafe {
        for _ in 0..100 {
            let object = guarded_as_it_grew();
            if (object as usize + 434) % 4096 != 0 {
                object.add(434).write(1);
                alloc::deallocate(object);
            }
        }
    });
    assert!(line.ends_with("behind its end: byte 434 of an object of 434 bytes"), "{line}");
}

#[test]
fn slack_behind_the_end() {
    // SAFETY: within the page; noticed when it is freed.
    let (line, said) = last_words("slack_behind_the_end", libc::SIGABRT, || unsafe {
        let object = guarded_at(100, false);
        object.add(104).write(1);
        alloc::deallocate(object);
    });
    assert!(line.ends_with("to behind its end: byte 104 of an object of 100 bytes"), "{line}");
    has_stacks(&said, &["noticed by", "allocated by"]);
}

#[test]
fn slack_before_the_beginning() {
    // SAFETY: unsound, as intended: within the page; detected when the object is freed.
    let (line, _) = last_words("slack_before_the_beginning", libc::SIGABRT, || unsafe {
        let object = guarded_at(160, true);
        object.sub(9).write(1);
        alloc::deallocate(object);
    });
    assert!(line.contains("written to 9 bytes before its beginning"), "{line}");
}

#[test]
fn twice() {
    // SAFETY: noticed at once.
    let (line, said) = last_words("twice", libc::SIGABRT, || unsafe {
        let object = guarded(100);
        alloc::deallocate(object);
        alloc::deallocate(object);
    });
    assert!(line.ends_with("freed, but it is free already"), "{line}");
    has_stacks(&said, &["noticed by", "allocated by", "freed by"]);
}

#[test]
fn the_inside() {
    // SAFETY: noticed at once.
    let (line, _) = last_words("the_inside", libc::SIGABRT, || unsafe {
        alloc::deallocate(guarded(100).add(16));
    });
    assert!(line.ends_with("not the beginning of an object"), "{line}");
}

#[test]
fn another_size() {
    // SAFETY: noticed at once.
    let (line, _) = last_words("another_size", libc::SIGABRT, || unsafe {
        alloc::deallocate_sized(guarded(100), 101);
    });
    assert!(
        line.ends_with("freed as 101 bytes, but allocated with another size: 100 bytes"),
        "{line}"
    );
}

/// A handler that was there before gets what is not ours, and what is, once it is told.
#[test]
fn handlers_from_before() {
    static HANDLED: AtomicI32 = AtomicI32::new(0);
    extern "C" fn handler(_: i32) {
        if HANDLED.fetch_add(1, Ordering::Relaxed) == 1 {
            // SAFETY: ends the process as the test expects.
            unsafe { libc::abort() };
        }
    }
    // SAFETY: a handler before the first object; a signal that is sent, and one that the last access makes.
    let (line, _) = last_words("handlers_from_before", libc::SIGABRT, || unsafe {
        libc::signal(libc::SIGSEGV, handler as extern "C" fn(i32) as libc::sighandler_t);
        let object = guarded(100);
        libc::raise(libc::SIGSEGV);
        assert_eq!(HANDLED.load(Ordering::Relaxed), 1);
        alloc::deallocate(object);
        object.read_volatile();
    });
    assert!(line.contains("used after it was freed"), "{line}");
}

/// A handler that was there before is called as the kernel would call it: with its mask, and once if it wants that.
#[test]
fn flags_of_handlers_from_before() {
    extern "C" fn handler(signal: i32) {
        // SAFETY: asks for the thread's mask; ends the process if that is wrong.
        unsafe {
            let mut mask = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
            let is_blocked = |signal| libc::sigismember(&mask, signal) == 1;
            if !is_blocked(libc::SIGUSR1) || is_blocked(libc::SIGUSR2) || is_blocked(signal) {
                libc::_exit(3);
            }
        }
    }
    run_in_child(
        "flags_of_handlers_from_before",
        |command| _ = command.env("CORELOCAL_MALLOC", "guard:2"),
        // SAFETY: a handler before the first object; the child touches what it must not, and ends by it.
        || unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as extern "C" fn(i32) as usize;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER;
            libc::sigaddset(&mut action.sa_mask, libc::SIGUSR1);
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
            let object = guarded(100);
            let child = libc::fork();
            if child == 0 {
                libc::alarm(10);
                libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
                std::ptr::without_provenance::<u8>(8).read_volatile();
                libc::_exit(4);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert!(libc::WIFSIGNALED(status), "exit code {}", libc::WEXITSTATUS(status));
            assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
            alloc::deallocate(object);
        },
    );
}

/// Exact sizes, whatever becomes of an object; about as many as were asked for; none left in the end.
#[test]
fn what_is_promised() {
    run_in_child(
        "what_is_promised",
        |command| _ = command.env("CORELOCAL_MALLOC", "guard:20"),
        // SAFETY: objects of so many bytes.
        || unsafe {
            // A chunk of 64 KiB has a closed page at each end.
            let most = (64 << 10) - 2 * libc::sysconf(libc::_SC_PAGESIZE) as usize;
            for size in [0, 1, 100, 4000, 50_000.min(most - 1)] {
                let object = guarded(size);
                assert_eq!(alloc::usable_size(object), size);
                object.write_bytes(7, size);
                let moved = alloc::reallocate(object, size + 1);
                assert!(moved != object && (size == 0 || moved.read() == 7));
                alloc::deallocate(moved);
            }
            let layout = Layout::from_size_align(100, 8).unwrap();
            let grown = CoreLocal.realloc(guarded(100), layout, 104);
            grown.add(103).write(1);
            CoreLocal.dealloc(grown, Layout::from_size_align(104, 8).unwrap());
            let before = alloc::stats().guarded_ever;
            for _ in 0..20_000 {
                alloc::deallocate(alloc::allocate(100));
            }
            let sampled = alloc::stats().guarded_ever - before;
            assert!((500..2000).contains(&sampled), "{sampled}");
            // Those of `guarded` that were not.
            assert!(alloc::stats().guarded <= 64);
        },
    );
}
