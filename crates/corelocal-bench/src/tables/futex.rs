//! The cost of futex calls that neither sleep nor wake: the calls that a lock makes in vain, and what a private futex
//! saves on them.
//!
//! Invariants:
//! - Every call is tried once before it is timed. A row whose call gives another result than the operation should (a
//!   seccomp filter, an older kernel) says so and is not timed.
//! - The words are never woken or changed, so no call sleeps.

use std::sync::atomic::AtomicU32;
use std::{fs, io};

use corelocal::sys::Errno;
use corelocal::sys::futex::{Scope, Wake, wait, wake};
use corelocal_support::measure::loops::{Loop, loop_of};
use corelocal_support::schema::{self, Row};

use crate::contest::{Contest, Context, Table};

/// The table.
pub struct Futex;

/// The value of the words, and below it the one that a WAIT expects.
const HELD: u32 = 0;
const OTHER: u32 = 1;

const WAIT: libc::c_int = libc::FUTEX_WAIT;
const WAIT_PRIVATE: libc::c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
const WAKE: libc::c_int = libc::FUTEX_WAKE;
const WAKE_PRIVATE: libc::c_int = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;

// The same numbers on every architecture (Linux 6.7).
const SYS_FUTEX_WAKE: libc::c_long = 454;
const SYS_FUTEX_WAIT: libc::c_long = 455;

/// Flags of these calls: a word of 32 bits, private or shared.
const SHARED2: libc::c_uint = 2;
const PRIVATE2: libc::c_uint = 2 | 128;

/// A number beyond every system call table.
const UNKNOWN: libc::c_long = 0xfff0;

const ON: &str = "Pentium M";
const BASELINE: &str = "wait-shared";

impl Table for Futex {
    fn id(&self) -> &'static str {
        "futex"
    }

    fn title(&self) -> &'static str {
        "Futex calls without effect"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let words = [AtomicU32::new(HELD), AtomicU32::new(HELD)];
        let file = FileWord::map();
        let contest = Contest::new(
            self,
            "WAIT when the word has already changed, and WAKE without waiters. The kernel finds a private futex \
             by its address alone; for a shared one it first looks up the page. The last three rows are the \
             cost of any system call.",
        )
        .source(
            "Eric Dumazet, FUTEX: new PRIVATE futexes, 2007",
            "https://git.kernel.org/torvalds/c/34f01cc1f512fa783302982776895c73714ebbc2",
            "a Pentium M at 1.6 GHz, SMP kernel on one processor",
        )
        .baseline(BASELINE)
        .tile("A futex wait that does not sleep", "ours-wait", &["wait-private"])
        .cycles();
        let contest = with_waits(contest, &words);
        let contest = with_file_waits(contest, &file);
        let contest = with_wakes(contest, &words[0]);
        let contest = with_futex2(contest, &words[0]);
        Ok(with_references(contest).measure(cx))
    }
}

/// Adds a row if `call` does what `check` wants of it.
fn add<'a, T>(
    contest: Contest<Loop<'a>>,
    row: Row,
    mut call: impl FnMut() -> T + 'a,
    check: impl FnOnce(T) -> Result<(), String>,
) -> Contest<Loop<'a>> {
    match check(call()) {
        Ok(()) => contest.row(row, loop_of(call)),
        Err(why) => contest.unavailable(row, why),
    }
}

fn with_waits<'a>(contest: Contest<Loop<'a>>, words: &'a [AtomicU32; 2]) -> Contest<Loop<'a>> {
    let one = |operation| move || futex(&words[0], operation, OTHER);
    let in_turn = |operation| {
        let mut turn = 0;
        move || {
            turn ^= 1;
            futex(&words[turn], operation, OTHER)
        }
    };
    let row = |id, label, cycles| Row::new(id, label).published(cycles, "cycles", ON);
    let contest = add(
        contest,
        row("wait-shared-two", "WAIT, shared, two futexes in turn", 433.0),
        in_turn(WAIT),
        refused_with(Errno::EAGAIN),
    );
    let contest =
        add(contest, row(BASELINE, "WAIT, shared", 424.0), one(WAIT), refused_with(Errno::EAGAIN));
    let contest = add(
        contest,
        row("wait-private-two", "WAIT, private, two futexes in turn", 334.0),
        in_turn(WAIT_PRIVATE),
        refused_with(Errno::EAGAIN),
    );
    let contest = add(
        contest,
        row("wait-private", "WAIT, private", 334.0),
        one(WAIT_PRIVATE),
        refused_with(Errno::EAGAIN),
    );
    let contest = add(
        contest,
        Row::ours("ours-wait", "corelocal wait, private"),
        || wait(&words[0], OTHER, None, Scope::Private),
        differed,
    );
    // Not marked as ours, as those of WAKE below: a page's headline compares such rows with the baseline.
    add(
        contest,
        Row::new("ours-wait-shared", "corelocal wait, shared"),
        || wait(&words[0], OTHER, None, Scope::Shared),
        differed,
    )
}

fn with_file_waits<'a>(
    contest: Contest<Loop<'a>>,
    file: &'a io::Result<FileWord>,
) -> Contest<Loop<'a>> {
    let rows = [
        ("wait-file-shared", "WAIT, shared, word in a mapped file", WAIT),
        ("wait-file-private", "WAIT, private, word in a mapped file", WAIT_PRIVATE),
    ];
    rows.into_iter().fold(contest, |contest, (id, label, operation)| {
        let row = Row::new(id, label);
        match file {
            Ok(file) => {
                let call = move || futex(file.word(), operation, OTHER);
                add(contest, row, call, refused_with(Errno::EAGAIN))
            }
            Err(error) => contest.unavailable(
                row,
                format!("a file in memory could not be made and mapped: {error}"),
            ),
        }
    })
}

fn with_wakes<'a>(contest: Contest<Loop<'a>>, word: &'a AtomicU32) -> Contest<Loop<'a>> {
    let contest =
        add(contest, Row::new("wake-shared", "WAKE, shared"), || futex(word, WAKE, 1), woke_nobody);
    let contest = add(
        contest,
        Row::new("wake-private", "WAKE, private"),
        || futex(word, WAKE_PRIVATE, 1),
        woke_nobody,
    );
    let rows = [
        ("ours-wake", "corelocal wake, private", Scope::Private),
        ("ours-wake-shared", "corelocal wake, shared", Scope::Shared),
    ];
    rows.into_iter().fold(contest, |contest, (id, label, scope)| {
        let check = |result: Result<usize, Errno>| match result {
            Ok(woken) => woke_nobody(woken as libc::c_long),
            Err(errno) => Err(failed(errno)),
        };
        add(contest, Row::new(id, label), move || wake(word, 1, scope), check)
    })
}

fn with_futex2<'a>(contest: Contest<Loop<'a>>, word: &'a AtomicU32) -> Contest<Loop<'a>> {
    let scopes = [("shared", SHARED2), ("private", PRIVATE2)];
    let contest = scopes.into_iter().fold(contest, |contest, (scope, flags)| {
        add(
            contest,
            Row::new(&format!("futex2-wait-{scope}"), format!("futex_wait, {scope}")),
            move || futex_wait(word, OTHER, flags),
            refused_with(Errno::EAGAIN),
        )
    });
    scopes.into_iter().fold(contest, |contest, (scope, flags)| {
        add(
            contest,
            Row::new(&format!("futex2-wake-{scope}"), format!("futex_wake, {scope}")),
            move || futex_wake(word, 1, flags),
            woke_nobody,
        )
    })
}

fn with_references(contest: Contest<Loop<'_>>) -> Contest<Loop<'_>> {
    let row = |id, label, cycles| Row::new(id, label).published(cycles, "cycles", ON);
    let contest = add(
        contest,
        row("getppid", "getppid", 187.0),
        // SAFETY: no arguments, and it cannot fail.
        || unsafe { libc::syscall(libc::SYS_getppid) },
        succeeded,
    );
    let umask = row("umask", "umask", 188.0);
    let contest = match file_mode_mask() {
        Some(mask) => {
            // SAFETY: takes plain bits, here those in force.
            add(contest, umask, move || unsafe { libc::syscall(libc::SYS_umask, mask) }, succeeded)
        }
        None => contest.unavailable(
            umask,
            "the mask in force, to be set again, is not in /proc/self/status (Linux 4.7)",
        ),
    };
    add(
        contest,
        row("unknown", "unknown system call", 181.0),
        // SAFETY: no kernel has a call of this number, and no address is given to it.
        || unsafe { libc::syscall(UNKNOWN) },
        refused_with(Errno::ENOSYS),
    )
}

/// Returns the process's file mode creation mask, which the call itself only tells by changing it.
fn file_mode_mask() -> Option<libc::mode_t> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    libc::mode_t::from_str_radix(mask.trim(), 8).ok()
}

fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) -> libc::c_long {
    // SAFETY: WAIT reads the word, which is borrowed, and takes no time limit from a null pointer;
    // WAKE reads nothing.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    }
}

fn futex_wait(word: &AtomicU32, expected: u32, flags: libc::c_uint) -> libc::c_long {
    let (expected, any) = (expected as libc::c_ulong, u32::MAX as libc::c_ulong);
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: the kernel reads the word, which is borrowed; there is no time limit to read.
    unsafe {
        libc::syscall(
            SYS_FUTEX_WAIT,
            word.as_ptr(),
            expected,
            any,
            flags,
            forever,
            libc::CLOCK_MONOTONIC,
        )
    }
}

fn futex_wake(word: &AtomicU32, waiters: libc::c_int, flags: libc::c_uint) -> libc::c_long {
    // SAFETY: the address is a key only; the kernel accesses no memory of ours.
    unsafe {
        libc::syscall(SYS_FUTEX_WAKE, word.as_ptr(), u32::MAX as libc::c_ulong, waiters, flags)
    }
}

/// Returns the error of the libc call that has just returned -1.
fn last_errno() -> Errno {
    Errno(io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn failed(errno: Errno) -> String {
    format!("the call fails here: {errno}")
}

fn succeeded(returned: libc::c_long) -> Result<(), String> {
    if returned == -1 { Err(failed(last_errno())) } else { Ok(()) }
}

/// The wrapper's own way of saying that the value differs.
fn differed(result: Result<Wake, Errno>) -> Result<(), String> {
    match result {
        Ok(Wake::Differed) => Ok(()),
        Ok(other) => Err(format!("the call ended otherwise than it should: {other:?}")),
        Err(errno) => Err(failed(errno)),
    }
}

fn woke_nobody(returned: libc::c_long) -> Result<(), String> {
    match returned {
        0 => Ok(()),
        -1 => Err(failed(last_errno())),
        some => Err(format!("the call woke {some} waiters of a word without waiters")),
    }
}

fn refused_with(expected: Errno) -> impl FnOnce(libc::c_long) -> Result<(), String> {
    move |returned| match returned {
        -1 => match last_errno() {
            errno if errno == expected => Ok(()),
            errno => Err(failed(errno)),
        },
        _ => Err(format!("the call succeeds where it should fail: {expected}")),
    }
}

/// A futex word in a file that is mapped shared: the kernel then keys it by inode and page.
///
/// Invariant: `page` is a page that only [`FileWord::word`] refers to, mapped until the drop.
struct FileWord {
    page: *mut libc::c_void,
}

impl FileWord {
    const LEN: libc::size_t = 4096;

    fn map() -> io::Result<Self> {
        // SAFETY: the name ends in a zero byte.
        let fd = unsafe { libc::memfd_create(c"corelocal-futex".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new mapping where the kernel likes it, of a descriptor just opened.
        let page = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let page = match libc::ftruncate(fd, Self::LEN as libc::off_t) {
                0 => {
                    libc::mmap(std::ptr::null_mut(), Self::LEN, protection, libc::MAP_SHARED, fd, 0)
                }
                _ => libc::MAP_FAILED,
            };
            let error = io::Error::last_os_error();
            // The mapping keeps the file.
            libc::close(fd);
            if page == libc::MAP_FAILED {
                return Err(error);
            }
            page
        };
        Ok(Self { page })
    }

    /// Holds [`HELD`], as a file's new pages are zero.
    fn word(&self) -> &AtomicU32 {
        // SAFETY: aligned, mapped for as long as `self` lives, and accessed in no other way.
        unsafe { AtomicU32::from_ptr(self.page.cast()) }
    }
}

impl Drop for FileWord {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and references to it have ended with this borrow.
        unsafe { libc::munmap(self.page, Self::LEN) };
    }
}

#[cfg(test)]
mod tests;
