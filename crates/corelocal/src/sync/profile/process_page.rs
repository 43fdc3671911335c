//! The profile page of this process: whether it exists, and how it is made.
//!
//! The first thread that waits for a lock reads the environment, once:
//!
//! ```text
//!   CORELOCAL_LOCKS=ready      makes a page in nameless memory, switched off
//!   CORELOCAL_LOCKS=on         makes a page in nameless memory, switched on
//!   CORELOCAL_LOCKS=/FOLDER    makes a page in the file /FOLDER/corelocal-locks.PROCESS, switched on; the file stays
//! ```
//! If that name is taken, the suffixes `.1` to `.9999` are tried. If the file cannot be made, a message goes to
//! standard error.
//! error.
//!
//! # Invariants
//! 1. `PAGE` is null (the environment was not read yet), a number that is not a page's address (`OFF`, `busy`), or
//!    the address of a complete page that is never unmapped.
//! 2. One thread makes the page: the one that set `PAGE` to `busy`. The others do not wait for it, and record nothing
//!    meanwhile. `busy` contains the fork generation: in a child that is forked just then it counts as null.
//! 3. A process records in its own page only. A page of an earlier generation is its parent's: the process makes a
//!    new one, as the environment says.

use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::page::{self, Page};
use crate::primitive::global::AtomicPtr;
use crate::sys::Errno;
use crate::sys::file::lines::Lines;
use crate::sys::file::shared_file::{self, SharedFile};
#[cfg(not(miri))]
use crate::sys::file::stderr::Line;
use crate::sys::file::{File, OWN_MAPS, PathBuf, decimal};
use crate::sys::forks;
use crate::sys::process::environment;
use crate::sys::process::words::Variable;

/// The pointer that stands for "no page".
const OFF: *mut Page = core::ptr::without_provenance_mut(1);
/// The value of `PAGE` while a thread of this process makes the page.
pub(super) fn busy<P>() -> *mut P {
    core::ptr::without_provenance_mut((forks::generation() as usize) << 2 | IS_BUSY)
}

/// Returns whether a thread of this process or of an ancestor is making the page.
pub(super) fn is_busy<P>(page: *mut P) -> bool {
    page.addr() & IS_BUSY != 0
}

/// A page's address does not have this bit.
const IS_BUSY: usize = 2;

static PAGE: AtomicPtr<Page> = AtomicPtr::new(core::ptr::null_mut());

/// The maximum number of files with one process id: a process may execute several programs one after the other.
const MOST_FILES: u32 = 10_000;

/// Returns true if recording is certainly off. The slow paths call this.
#[inline(always)]
pub(super) fn is_absent() -> bool {
    // Relaxed: a page's address is loaded again before it is used.
    PAGE.load(Relaxed) == OFF
}

/// Returns the page, if it is switched on.
#[cold]
pub(super) fn page_in_use() -> Option<&'static Page> {
    get().filter(|page| page.is_on())
}

/// Returns the page, if it exists or the environment asks for it.
pub(super) fn get() -> Option<&'static Page> {
    // Acquire: partner is the Release in `make`.
    let page = PAGE.load(Acquire);
    if page == OFF || page == busy() {
        return None;
    }
    if !is_busy(page) {
        // SAFETY: null, or the address of a page that is never unmapped (invariant 1).
        if let Some(page) = unsafe { page.as_ref() }.filter(|page| is_ours(page)) {
            return Some(page);
        }
    }
    by_environment(page).unwrap_or(None)
}

/// Returns the page. If there is none, one is made, switched off.
pub(super) fn get_or_make() -> Result<&'static Page, Errno> {
    match get() {
        Some(page) => Ok(page),
        None => make(OFF, Some(Wish::Ready)).and_then(|made| made.ok_or(Errno::EAGAIN)),
    }
}

/// Returns whether the page is that of this process and not of its parent (invariant 3).
pub(super) fn is_ours(page: &Page) -> bool {
    page.generation.load(Relaxed) == u64::from(forks::generation())
}

/// The request of the environment or of the caller.
enum Wish<'a> {
    Ready,
    On,
    Folder(&'a CStr),
}

#[cold]
fn by_environment(before: *mut Page) -> Result<Option<&'static Page>, Errno> {
    // SAFETY: the value is used at once, before the environment can change.
    let value = unsafe { variable(c"CORELOCAL_LOCKS") };
    static VARIABLE: Variable = Variable::new(c"CORELOCAL_LOCKS", &["ready", "on", "/FOLDER"]);
    report(&VARIABLE, value);
    let wish = match value.to_bytes() {
        b"ready" => Some(Wish::Ready),
        b"on" => Some(Wish::On),
        [b'/', ..] => Some(Wish::Folder(value)),
        _ => None,
    };
    make(before, wish)
}

/// Returns the value of this environment variable. Empty where another user may have set it (set-user-id programs).
///
/// # Safety
/// - The value is used at once: as with libc's `getenv`, a change of the environment invalidates it.
pub(super) unsafe fn variable<'a>(name: &CStr) -> &'a CStr {
    // SAFETY: the caller guarantees that the value is used before the environment changes.
    let value = unsafe { environment::variable(name) };
    value.filter(|_| !environment::is_foreign()).unwrap_or_default()
}

/// Reports a value that means nothing. One that begins as a path is a folder, commas and all.
pub(super) fn report(variable: &Variable, value: &CStr) {
    if !value.to_bytes().starts_with(b"/") {
        variable.report(value.to_bytes(), |_| false);
    }
}

/// Makes the requested page in place of `before`. `None` if none is requested or another thread is making one.
fn make(before: *mut Page, wish: Option<Wish<'_>>) -> Result<Option<&'static Page>, Errno> {
    // Acquire: partner is the Release below, of another thread that has made the page.
    if PAGE.compare_exchange(before, busy(), Acquire, Relaxed).is_err() {
        return Ok(None);
    }
    let made = wish.as_ref().map(new).transpose();
    if let (Some(Wish::Folder(folder)), Err(why)) = (&wish, &made) {
        complain(c"CORELOCAL_LOCKS", folder, *why);
    }
    let page = made.ok().flatten();
    let value = page.map_or(OFF, |page| core::ptr::from_ref(page).cast_mut());
    // Release: partner is the Acquire in `get`.
    PAGE.store(value, Release);
    made
}

/// Reports on standard error that no file could be made in the folder that the environment names.
#[cold]
#[inline(never)]
pub(super) fn complain(variable: &CStr, folder: &CStr, why: Errno) {
    let [variable, folder] = [variable, folder].map(|text| text.to_bytes().escape_ascii());
    // Miri has no such descriptors.
    #[cfg(not(miri))]
    Line::print(format_args!("corelocal: cannot make a file for {variable}: {why} ({folder})\n"));
    #[cfg(miri)]
    let _ = (variable, folder, why);
}

fn new(wish: &Wish<'_>) -> Result<&'static Page, Errno> {
    let folder = match wish {
        Wish::Folder(folder) => Some(*folder),
        Wish::Ready | Wish::On => None,
    };
    let at = map_for_good(folder, b"/corelocal-locks.", page::LEN)?;
    // SAFETY: a mapping of that length, zeroed and page-aligned, which is never unmapped.
    let page = unsafe { &*at.cast::<Page>() };
    page.process.store(this_process(), Relaxed);
    page.generation.store(forks::generation().into(), Relaxed);
    list_files(|line| page.add_file(line));
    if !matches!(wish, Wish::Ready) {
        page.want(super::now());
    }
    page.complete();
    Ok(page)
}

/// Maps `len` zeros that other processes can open: in a new file of the folder, or in nameless memory. The mapping is
/// permanent, and the descriptor stays open, since observers find the page by /proc.
pub(super) fn map_for_good(
    folder: Option<&CStr>,
    name: &[u8],
    len: usize,
) -> Result<*mut u8, Errno> {
    let map = |file: &SharedFile| {
        // Without reserved memory a write could end the process when memory runs out.
        file.reserve(len)?;
        file.map(len, true)
    };
    let (file, mapping) = match folder {
        Some(folder) => {
            let (file, path) = create_in(folder, name)?;
            let mapping = map(&file).inspect_err(|_| {
                // The incomplete file is useless.
                let _ = shared_file::unlink(path.as_c_str());
            })?;
            (file, mapping)
        }
        None => {
            let file = SharedFile::create_nameless()?;
            let mapping = map(&file)?;
            // Sealed files of other users can be read by root.
            let _ = file.seal_len();
            (file, mapping)
        }
    };
    let at = mapping.at();
    core::mem::forget((mapping, file));
    Ok(at)
}

/// Creates a file in the folder. Its name is this prefix and the process id.
fn create_in(folder: &CStr, name: &[u8]) -> Result<(SharedFile, PathBuf), Errno> {
    let mut digits = [0; 20];
    let process = decimal(this_process(), &mut digits);
    let mut path = PathBuf::join(&[folder.to_bytes(), name, process])?;
    let len = path.as_bytes().len();
    let mut attempt = 0;
    loop {
        match SharedFile::create_for(path.as_c_str(), 0o600) {
            // Left by an earlier program of this process, or by an earlier process with the same id.
            Err(Errno::EEXIST) if attempt < MOST_FILES - 1 => attempt += 1,
            created => return Ok((created?, path)),
        }
        path.truncate(len);
        path.push(b".")?;
        path.push(decimal(attempt.into(), &mut digits))?;
    }
}

/// Lists the mappings of code in /proc/self/maps: the program and its libraries. Stops when `add` has no room.
pub(super) fn list_files(add: impl Fn(&[u8]) -> bool) {
    let Ok(maps) = File::open_of_kernel(OWN_MAPS) else { return };
    let mut lines = Lines::new(maps);
    while let Some(line) = lines.next() {
        if is_code_of_a_file(line) && !add(line) {
            return;
        }
    }
}

/// Returns whether a line of /proc/PROCESS/maps is of a file's code: "START-END r-xp OFFSET DEVICE INODE /PATH".
fn is_code_of_a_file(line: &[u8]) -> bool {
    let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let is_code = fields.nth(1).is_some_and(|access| access.get(2) == Some(&b'x'));
    is_code && fields.nth(3).is_some_and(|path| path.starts_with(b"/"))
}

pub(super) fn this_process() -> u64 {
    crate::sys::process_id().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parent was forked while another thread made the page.
    #[test]
    #[cfg(not(any(loom, miri)))]
    fn a_child_makes_what_a_gone_thread_began() {
        forks::generation();
        // SAFETY: the child makes system calls only, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let gone = busy::<Page>().map_addr(|it| it ^ 4);
            PAGE.store(gone, Relaxed);
            let is_made = is_busy(gone) && get_or_make().is_ok_and(is_ours);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_made)) };
        }
        let mut status = -1;
        // SAFETY: the child is this process's own, and `status` is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn numbers_and_lines() {
        let mut digits = [0; 20];
        assert_eq!(decimal(0, &mut digits), b"0");
        assert_eq!(decimal(u64::MAX, &mut digits), b"18446744073709551615");
        let maps: [(&[u8], bool); 5] = [
            (b"5-6 r-xp 00001000 fe:00 12    /usr/bin/a b", true),
            (b"5-6 r--p 00001000 fe:00 12    /usr/bin/a", false),
            (b"5-6 r-xp 00000000 00:00 0     [vdso]", false),
            (b"5-6 rwxp 00000000 00:00 0 ", false),
            (b"", false),
        ];
        for (line, is_code) in maps {
            assert_eq!(is_code_of_a_file(line), is_code, "{}", line.escape_ascii());
        }
    }
}
