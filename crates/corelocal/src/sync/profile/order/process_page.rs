//! The page of this process: whether the environment asks for one, and how it is made.
//!
//! Invariants: as in `profile/process_page.rs`, except that other threads wait for the thread that makes the page,
//! for up to a fifth of a second. A page that exists is on, until the process ends.

use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use super::page::{self, Page};
use crate::primitive::global::AtomicPtr;
use crate::sync::machinery::futex::Futex;
use crate::sync::machinery::scope::Private;
use crate::sync::profile::{now, process_page};
use crate::sys::Errno;
use crate::sys::forks;
use crate::sys::futex::Deadline;
use crate::sys::process::words::Variable;

/// The pointer that stands for "no page".
const OFF: *mut Page = core::ptr::without_provenance_mut(1);
static PAGE: AtomicPtr<Page> = AtomicPtr::new(core::ptr::null_mut());

/// Returns `true` if recording is certainly off.
#[inline(always)]
pub(super) fn is_absent() -> bool {
    // Relaxed: a page's address is loaded again before it is used.
    PAGE.load(Relaxed) == OFF
}

/// Returns the page, if the environment asks for one.
pub(super) fn get() -> Option<&'static Page> {
    // Acquire: partner is the Release in `make`.
    let page = PAGE.load(Acquire);
    if page == OFF { None } else { known(page).or_else(|| get_slowly(page)) }
}

/// Returns the page at this address, if it belongs to this process.
fn known(page: *mut Page) -> Option<&'static Page> {
    if page == OFF || process_page::is_busy(page) {
        return None;
    }
    // SAFETY: null, or the address of a page that is never unmapped.
    let page = unsafe { page.as_ref() };
    page.filter(|page| page.generation.load(Relaxed) == u64::from(forks::generation()))
}

#[cold]
fn get_slowly(before: *mut Page) -> Option<&'static Page> {
    // Another thread may be faster.
    if before == process_page::busy() || !make(before) {
        known(wait_for_maker())
    } else {
        known(PAGE.load(Relaxed))
    }
}

/// Returns the page once the thread that makes it is done, which takes milliseconds. So locks of other threads in that
/// time are recorded, too. Bounded: this may be a signal handler in that thread.
#[cold]
#[inline(never)]
fn wait_for_maker() -> *mut Page {
    const TURN: Duration = Duration::from_micros(200);
    const MOST_TURNS: u32 = 1000;
    for _ in 0..MOST_TURNS {
        // Acquire: as in `get`.
        let page = PAGE.load(Acquire);
        if page != process_page::busy() {
            return page;
        }
        Futex::<Private>::new(0).wait_briefly(0, Some(Deadline::after(TURN)));
    }
    // Acquire: as in `get`. A maker that still exists stores its page later.
    PAGE.compare_exchange(process_page::busy(), OFF, Relaxed, Acquire).unwrap_or_else(|page| page)
}

/// Makes the page that the environment asks for in place of `before`; false if another thread does.
fn make(before: *mut Page) -> bool {
    if PAGE.compare_exchange(before, process_page::busy(), Relaxed, Relaxed).is_err() {
        return false;
    }
    // SAFETY: the value is used at once.
    let value = unsafe { process_page::variable(c"CORELOCAL_LOCK_ORDER") };
    static VARIABLE: Variable = Variable::new(c"CORELOCAL_LOCK_ORDER", &["on", "/FOLDER"]);
    process_page::report(&VARIABLE, value);
    let made = match value.to_bytes() {
        b"on" => new(None).ok(),
        [b'/', ..] => {
            let made = new(Some(value));
            made.inspect_err(|why| process_page::complain(c"CORELOCAL_LOCK_ORDER", value, *why))
                .ok()
        }
        _ => None,
    };
    let page = made.map_or(OFF, |page| core::ptr::from_ref(page).cast_mut());
    // Release: partner is the Acquire in `get`.
    PAGE.store(page, Release);
    true
}

fn new(folder: Option<&CStr>) -> Result<&'static Page, Errno> {
    let at = process_page::map_for_good(folder, b"/corelocal-order.", page::LEN)?;
    // SAFETY: mapped, long enough, zeroed, page-aligned, and never unmapped.
    let page = unsafe { &*at.cast::<Page>() };
    page.process.store(process_page::this_process(), Relaxed);
    page.generation.store(forks::generation().into(), Relaxed);
    page.began.store(now(), Relaxed);
    process_page::list_files(|line| page.add_file(line));
    page.complete();
    Ok(page)
}
