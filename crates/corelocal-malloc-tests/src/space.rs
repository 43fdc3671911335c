//! Address space and locked memory: what a process has of them follows what it uses.
//!
//! Invariant: figures are the kernel's, of `/proc/self`, read into memory that is there already.

use std::fs::File;
use std::io::Read as _;
use std::{ptr, thread};

use crate::Outcome;

/// Returns the bytes of this line of `/proc/self/status`, which says KiB.
fn status(name: &str) -> Result<u64, String> {
    line_of("/proc/self/status", name)
}

/// Likewise of `/proc/meminfo`.
pub(crate) fn meminfo(name: &str) -> Result<u64, String> {
    line_of("/proc/meminfo", name)
}

fn line_of(path: &str, name: &str) -> Result<u64, String> {
    let text = text_of(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| format!("no {name}"))? << 10)
}

fn text_of(path: &str) -> Result<String, String> {
    let mut text = String::with_capacity(1 << 20);
    let read = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    read.map_err(|why| format!("{path}: {why}"))?;
    Ok(text)
}

/// Uses a little memory of many sizes.
pub(crate) fn used_a_little() -> Vec<Vec<u8>> {
    (0..200).map(|nth| vec![1; nth * 50 + 1]).collect()
}

/// A program of no size has less data than this, and leaves less for a core dump that it has not written to.
pub fn small(most: u64) -> Outcome {
    let used = used_a_little();
    let data = status("VmData")?;
    if data > most {
        return Err(format!("{data} bytes of data (VmData)"));
    }
    let (mut dumped, mut size, mut is_anonymous) = (0, 0, false);
    for line in text_of("/proc/self/smaps")?.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some(first) if first.contains('-') => is_anonymous = words.count() == 4,
            Some("Size:") => size = words.next().and_then(|size| size.parse().ok()).unwrap_or(0),
            Some("VmFlags:") if is_anonymous && !words.any(|flag| flag == "dd") => dumped += size,
            _ => {}
        }
    }
    match dumped << 10 {
        dumped if dumped > most => Err(format!("{dumped} bytes are dumped")),
        dumped => Ok(format!("{} objects, {data} of data, {dumped} are dumped", used.len())),
    }
}

/// Checks that a limit that the process sets itself stops this malloc, and nothing else before.
pub fn later(limit: u64) -> Outcome {
    let used = used_a_little();
    let limits = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: reads the one struct.
    if unsafe { libc::setrlimit(libc::RLIMIT_AS, &limits) } != 0 {
        return Err("no limit can be set".to_owned());
    }
    let thread = thread::Builder::new().spawn(used_a_little);
    thread.map_err(|why| format!("no thread: {why}"))?.join().map_err(|_| "a panic")?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping of the kernel's choice, which goes again.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), 1 << 20, libc::PROT_READ, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return Err("no mapping".to_owned());
        }
        libc::munmap(at, 1 << 20);
    }
    let (mut had, mut last) = (0_u64, ptr::null_mut::<*mut libc::c_void>());
    while had <= limit {
        // SAFETY: a list through the objects.
        unsafe {
            let at = libc::malloc(1 << 20).cast::<*mut libc::c_void>();
            if at.is_null() {
                break;
            }
            at.write(last.cast());
            last = at;
        }
        had += 1 << 20;
    }
    while !last.is_null() {
        // SAFETY: as written above.
        unsafe {
            let before = last.read();
            libc::free(last.cast());
            last = before.cast();
        }
    }
    // Libraries, stacks and caches have the rest.
    if had > limit || had < limit / 4 * 3 {
        return Err(format!("{had} bytes, where the limit is {limit}"));
    }
    Ok(format!("{} objects, then {had} bytes", used.len()))
}

/// Checks that an object of so many GiB is refused to a process that may have `spare` bytes more, and costs it next to none
/// of them.
pub fn refused(gib: u64, spare: u64) -> Outcome {
    const LITTLE: u64 = 2 << 20;
    let used = used_a_little();
    let before = status("VmSize")?;
    let limit = libc::rlimit { rlim_cur: before + spare, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this process.
    if unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) } != 0 {
        return Err("no limit can be set".to_owned());
    }
    for _ in 0..3 {
        // SAFETY: takes a number.
        let at = std::hint::black_box(unsafe { libc::malloc((gib as usize) << 30) });
        if !at.is_null() {
            return Err(format!("{gib} GiB, where {spare} bytes are left"));
        }
    }
    let after = status("VmSize")?;
    if after > before + LITTLE {
        return Err(format!("{} bytes more after objects that were refused", after - before));
    }
    Ok(format!("{} objects", used.len()))
}

/// Returns what is handed out to a process that locks its memory is locked, and no more than it uses.
pub fn locked(flags: u64) -> Outcome {
    const LEN: usize = 64 << 20;
    let used = used_a_little();
    // SAFETY: takes a number.
    if unsafe { libc::mlockall(flags as i32) } != 0 {
        return Ok("no memory may be locked".to_owned());
    }
    let before = status("VmLck")?;
    if before > LEN as u64 / 2 {
        return Err(format!("{before} bytes are locked of a small program"));
    }
    // SAFETY: an object that goes again.
    let with_it = unsafe {
        let at = std::hint::black_box(libc::malloc(LEN));
        let with_it = status("VmLck");
        libc::free(at);
        with_it?
    };
    let is_locked = with_it >= before + LEN as u64;
    if is_locked != (flags & libc::MCL_FUTURE as u64 != 0) {
        return Err(format!("{before} bytes were locked, {with_it} with {LEN} more"));
    }
    Ok(format!("{} objects, {before} bytes, then {with_it}", used.len()))
}

/// Returns what a process that locks its memory gets beyond what it asked for is not locked, however large it is
/// already.
pub fn locked_by_steps() -> Outcome {
    const LEN: usize = 1 << 20;
    const MOST: u64 = 8 << 20;
    // SAFETY: takes a number.
    let object = || std::hint::black_box(unsafe { libc::malloc(LEN) });
    let mut objects: Vec<_> = (0..200).map(|_| object()).collect();
    // SAFETY: takes a number.
    if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
        return Ok("no memory may be locked".to_owned());
    }
    let before = status("VmLck")?;
    let (mut last, mut longest) = (before, 0);
    for _ in 0..200 {
        objects.push(object());
        let now = status("VmLck")?;
        if now > last + MOST {
            return Err(format!("{} bytes were locked for one object of {LEN}", now - last));
        }
        longest = longest.max(now.saturating_sub(last));
        last = now;
    }
    for at in objects {
        // SAFETY: taken above, given back once.
        unsafe { libc::free(at) };
    }
    // What was mapped before, and is not locked, is used first.
    if last < before + 100 * LEN as u64 {
        return Err(format!("{} bytes were locked of 200 objects", last - before));
    }
    Ok(format!("{longest} bytes at once"))
}

/// Returns the memory between objects that could not go back while the process had it locked goes back when that is
/// over.
pub fn unlocked() -> Outcome {
    const COUNT: usize = 100_000;
    // SAFETY: takes a number.
    let object = |_| std::hint::black_box(unsafe { libc::malloc(1000) });
    let objects: Vec<_> = (0..COUNT).map(object).collect();
    for at in &objects {
        // SAFETY: the program's own, if there is one.
        unsafe { at.cast::<u8>().write_bytes(1, if at.is_null() { 0 } else { 1000 }) };
    }
    // SAFETY: takes a number.
    if unsafe { libc::mlockall(libc::MCL_CURRENT) } != 0 {
        return Ok("no memory may be locked".to_owned());
    }
    let trimmed = || {
        // SAFETY: takes a number.
        unsafe { libc::malloc_trim(0) };
        status("VmRSS")
    };
    for (nth, at) in objects.iter().enumerate() {
        if nth % 64 != 0 {
            // SAFETY: taken above, given back once.
            unsafe { libc::free(*at) };
        }
    }
    let locked = trimmed()?;
    // SAFETY: takes nothing.
    unsafe { libc::munlockall() };
    let unlocked = trimmed()?;
    if unlocked > locked / 2 {
        return Err(format!("{locked} bytes were resident, {unlocked} when they were not locked"));
    }
    for at in objects.iter().step_by(64) {
        // SAFETY: taken above, given back once.
        unsafe { libc::free(*at) };
    }
    Ok(format!("{locked} bytes, then {unlocked}"))
}

/// Limits addresses (0), or memory that is locked (1). Returns `false` if that is not possible here.
fn set_limit(kind: u64, limit: u64) -> bool {
    let limits = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    let resource = if kind == 0 { libc::RLIMIT_AS } else { libc::RLIMIT_MEMLOCK };
    // SAFETY: a limit of this process.
    let is_set = unsafe { libc::setrlimit(resource, &limits) } == 0;
    // No capability sets the limit aside: version 3, and none in each of two sets.
    let (version, none) = ([0x2008_0522_u32, 0], [0_u32; 6]);
    // SAFETY: the structures of capset(2).
    unsafe { libc::syscall(libc::SYS_capset, version.as_ptr(), none.as_ptr()) };
    // SAFETY: takes a number.
    is_set && (kind == 0 || unsafe { libc::mlockall(libc::MCL_FUTURE) } == 0)
}

/// After a process has met a limit and has given half of its memory back, threads start: others than the malloc have the use
/// of what is free.
pub fn room_for_others(kind: u64, limit: u64) -> Outcome {
    const THREADS: usize = 50;
    const LEN: usize = 3_000_000;
    let mut objects: Vec<*mut libc::c_void> = Vec::with_capacity(1 << 16);
    if !set_limit(kind, limit) {
        return Ok("no such limit can be set".to_owned());
    }
    let (mut len, mut had) = (LEN, 0);
    while len > 100 {
        // SAFETY: takes a number.
        let at = unsafe { libc::malloc(len) };
        if at.is_null() || objects.len() == objects.capacity() {
            len /= 3;
            continue;
        }
        objects.push(at);
        had += len as u64;
        if had > limit + limit / 4 {
            return Ok("no such limit can be set: it does not hold".to_owned());
        }
    }
    let held = objects.len();
    for at in objects.iter().step_by(2) {
        // SAFETY: taken above, given back once.
        unsafe { libc::free(*at) };
    }
    let mut started = 0;
    let mut why = String::new();
    for _ in 0..THREADS {
        match thread::Builder::new().stack_size(128 << 10).spawn(used_a_little) {
            Ok(thread) => {
                thread.join().map_err(|_| "a panic")?;
                started += 1;
            }
            Err(error) => why = error.to_string(),
        }
    }
    for at in objects.iter().skip(1).step_by(2) {
        // SAFETY: taken above, given back once.
        unsafe { libc::free(*at) };
    }
    // SAFETY: takes a number.
    let whole = std::hint::black_box(unsafe { libc::malloc(limit as usize / 2) });
    if started < THREADS || whole.is_null() {
        return Err(format!(
            "{held} objects; {started} threads started: {why}; {whole:p} afterwards"
        ));
    }
    Ok(format!("{held} objects, {started} threads"))
}
