//! Recording events: a flight recorder in the traced process.
//!
//! # Data flow
//! `CORELOCAL_EVENT` → the site's state, in place → `corelocal_trace_event` → the library's site, made at the first event
//! → the encoder → one critical section that appends to the core's buffer.
//!
//! # Invariants
//! 1. `site` of a C site is null, or a library's site that lives as long as the program; it is set once.
//! 2. A site has the names and types of its first event. A program that passes others records nonsense, within the record.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::io::{self, ErrorKind};
use std::path::Path;

use corelocal::foreign::{site_state, trace_start};
use corelocal::trace::format::{FieldType, Kind, Type};
use corelocal::trace::{self, Encoder, Field, Level, Site};

/// The type of a field whose value is number. So is that of a field with a type that is none of these.
pub const CORELOCAL_FIELD_U64: u32 = 0;
/// The value is number, as int64_t.
pub const CORELOCAL_FIELD_I64: u32 = 1;
/// The value is real.
pub const CORELOCAL_FIELD_F64: u32 = 2;
/// The value is number: 0, or other.
pub const CORELOCAL_FIELD_BOOL: u32 = 3;
/// The value is text, of len bytes of UTF-8. It is cut before what is not.
pub const CORELOCAL_FIELD_TEXT: u32 = 4;
/// The value is text, of len bytes.
pub const CORELOCAL_FIELD_BYTES: u32 = 5;

/// The value of a field.
#[repr(C)]
#[derive(Clone, Copy)]
pub union corelocal_field_value {
    number: u64,
    real: f64,
    text: *const c_char,
}

/// A field of an event.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct corelocal_field {
    /// Its name; the first event's counts.
    name: *const c_char,
    value: corelocal_field_value,
    /// The length of a text in bytes. What has no room in the record is cut.
    len: usize,
    /// The same at each event of a site.
    field_type: u32,
}

/// The most fields of an event.
pub const CORELOCAL_FIELDS_MAX: usize = 16;

/// How severe the events of a site are. See corelocal_trace_switch.
pub const CORELOCAL_LEVEL_ERROR: u32 = 1;
pub const CORELOCAL_LEVEL_WARN: u32 = 2;
pub const CORELOCAL_LEVEL_INFO: u32 = 3;
pub const CORELOCAL_LEVEL_DEBUG: u32 = 4;
pub const CORELOCAL_LEVEL_TRACE: u32 = 5;

/// A place in the program that records events: a static object that begins with a name and a level, or 0, and zeros.
/// CORELOCAL_EVENT of corelocal/event.h makes one.
#[repr(C)]
pub struct corelocal_site {
    /// Of UTF-8, such as "http::request".
    name: *const c_char,
    level: u32,
    /// Where the library says whether it is on; null until the first event.
    state: *const u32,
    site: *const c_void,
}

/// Returns the library's site, made if it is the first time.
///
/// # Safety
/// - `at` is a site of C's, which lives as long as the program.
unsafe fn site_of(at: *mut corelocal_site) -> Option<&'static Site> {
    // SAFETY: by the contract; threads change the word by this atomic alone.
    let place = unsafe { AtomicPtr::from_ptr((&raw mut (*at).site).cast::<*mut Site>()) };
    // Acquire: partner is the Release below.
    let known = place.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: invariant 1.
        return Some(unsafe { &*known });
    }
    // SAFETY: by the contract.
    let (name, level) = unsafe { (CStr::from_ptr((*at).name), (*at).level) };
    let name: *mut str = Box::into_raw(name.to_string_lossy().into_owned().into_boxed_str());
    // SAFETY: it is freed only if no other thread has seen the site, and with it.
    let mut site = Site::new(Kind::Event, unsafe { &*name });
    if let Some(level) = level_of(level) {
        site = site.with_level(level);
    }
    let fresh = Box::into_raw(Box::new(site));
    // Release: partner is the Acquire above.
    let set = place.compare_exchange(null_mut(), fresh, Ordering::Release, Ordering::Acquire);
    let site: *mut Site = match set {
        Ok(_) => fresh,
        Err(first) => {
            // SAFETY: no other thread has seen it.
            drop(unsafe { Box::from_raw(fresh) });
            // SAFETY: its site is gone.
            drop(unsafe { Box::from_raw(name) });
            first
        }
    };
    // SAFETY: invariant 1.
    let site = unsafe { &*site };
    // SAFETY: by the contract; all threads store the same.
    unsafe { AtomicPtr::from_ptr((&raw mut (*at).state).cast::<*mut u32>()) }
        .store(site_state(site).cast_mut(), Ordering::Release);
    Some(site)
}

fn level_of(level: u32) -> Option<Level> {
    Some(match level {
        CORELOCAL_LEVEL_ERROR => Level::Error,
        CORELOCAL_LEVEL_WARN => Level::Warn,
        CORELOCAL_LEVEL_INFO => Level::Info,
        CORELOCAL_LEVEL_DEBUG => Level::Debug,
        CORELOCAL_LEVEL_TRACE => Level::Trace,
        _ => return None,
    })
}

/// Records an event with n fields, if a recording was started and the site is on: some tens of nanoseconds. Fields beyond
/// CORELOCAL_FIELDS_MAX are left out.
///
/// May be called by any thread, before main, at thread exit and in children of fork, and in signal handlers once the site
/// has recorded an event: the first one allocates. Kernels: as for corelocal_counter; without restartable sequences a thread
/// takes a buffer while it records.
///
/// # Safety
/// - See the crate's invariant 3. The site is static; `fields` has n of them, and may be null if n is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_trace_event(
    site: *mut corelocal_site,
    fields: *const corelocal_field,
    n: usize,
) {
    // SAFETY: by the contract.
    let Some(site) = (unsafe { site_of(site) }) else { return };
    let fields = match n {
        0 => &[],
        // SAFETY: by the contract.
        _ => unsafe { core::slice::from_raw_parts(fields, n.min(CORELOCAL_FIELDS_MAX)) },
    };
    if site.is_new() {
        register(site, fields);
    }
    let Some(wanted) = site.wanted() else { return };
    let mut encoder = Encoder::new();
    for field in fields {
        // SAFETY: by the contract a field has the value of its type.
        unsafe { put(field, &mut encoder) };
    }
    trace::record_encoded(site, wanted, &mut encoder);
}

#[cold]
fn register(site: &'static Site, fields: &[corelocal_field]) {
    let mut described = [("", FieldType::from(of(CORELOCAL_FIELD_U64))); CORELOCAL_FIELDS_MAX];
    for (to, field) in described.iter_mut().zip(fields) {
        // SAFETY: by the contract of the event.
        let name = unsafe { CStr::from_ptr(field.name) }.to_str().unwrap_or("?");
        *to = (name, FieldType::from(of(field.field_type)));
    }
    site.register(&described[..fields.len()]);
}

fn of(field_type: u32) -> Type {
    match field_type {
        CORELOCAL_FIELD_I64 => Type::I64,
        CORELOCAL_FIELD_F64 => Type::F64,
        CORELOCAL_FIELD_BOOL => Type::Bool,
        CORELOCAL_FIELD_TEXT => Type::Str,
        CORELOCAL_FIELD_BYTES => Type::Bytes,
        _ => Type::U64,
    }
}

/// Writes a field.
///
/// # Safety
/// - It has the value of its type.
unsafe fn put(field: &corelocal_field, into: &mut Encoder) {
    let value = field.value;
    // SAFETY: by the contract.
    let bytes = || unsafe { core::slice::from_raw_parts(value.text.cast::<u8>(), field.len) };
    // SAFETY: by the contract; any bits are a number.
    unsafe {
        match field.field_type {
            CORELOCAL_FIELD_I64 => (value.number as i64).put(into),
            CORELOCAL_FIELD_F64 => value.real.put(into),
            CORELOCAL_FIELD_BOOL => (value.number != 0).put(into),
            CORELOCAL_FIELD_BYTES => bytes().put(into),
            CORELOCAL_FIELD_TEXT => text(bytes()).put(into),
            _ => value.number.put(into),
        }
    }
}

/// Returns the bytes as text, as far as they are.
fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap_or_else(|wrong| {
        core::str::from_utf8(&bytes[..wrong.valid_up_to()]).unwrap_or_default()
    })
}

/// Starts a recording. options is what the variable CORELOCAL_TRACE may have: "on" for a flight recorder in memory,
/// "disk=PATH", "file=PATH", "off=*" and others; docs/trace.md has them all. Switched-on sites record from then on.
///
/// Returns 0. -EALREADY if there is a recording, else -EINVAL; why then has what is wrong, cut to n bytes with a 0. why may be
/// null. Not for signal handlers.
///
/// # Safety
/// - See the crate's invariant 3. `why` has room for n bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_trace_start(
    options: *const c_char,
    why: *mut c_char,
    n: usize,
) -> c_int {
    // SAFETY: by the contract.
    let options = unsafe { CStr::from_ptr(options) };
    let is_started = trace::status().is_some();
    let started = match options.to_str() {
        Ok(options) => trace_start(options),
        Err(_) => Err("the options are not UTF-8".to_owned()),
    };
    let Err(wrong) = started else { return 0 };
    if !why.is_null() && n > 0 {
        let len = wrong.len().min(n - 1);
        // SAFETY: by the contract there is room for n.
        unsafe {
            why.cast::<u8>().copy_from_nonoverlapping(wrong.as_ptr(), len);
            why.add(len).write(0);
        }
    }
    if is_started { -libc::EALREADY } else { -libc::EINVAL }
}

/// Switches all sites whose names match a pattern, now and later: every 0 is off, 1 on, n one event of n. `*` stands for any
/// part of a name, "@info" for a level and finer or more severe ones.
///
/// Returns how many sites match so far, or -EINVAL: nothing is recorded, the pattern is too long or there are too many. Not
/// for signal handlers.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_trace_switch(pattern: *const c_char, every: u32) -> c_int {
    // SAFETY: by the contract.
    let Ok(pattern) = unsafe { CStr::from_ptr(pattern) }.to_str() else { return -libc::EINVAL };
    match trace::sample(pattern, every) {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(_) => -libc::EINVAL,
    }
}

/// Writes the last events to a file, which replaces a recording of that name once it is whole. `corelocal trace view` shows
/// it.
///
/// Returns the number of bytes, -ENOTCONN if nothing is recorded, -EEXIST if the file is there and is no recording, or
/// another negative error number, such as -ENOSPC. Allocates; not for signal handlers.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_trace_dump(path: *const c_char) -> i64 {
    use std::os::unix::ffi::OsStrExt as _;
    // SAFETY: by the contract.
    let path = unsafe { CStr::from_ptr(path) };
    match trace::dump(Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()))) {
        Ok(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
        Err(error) => -i64::from(number_of(&error)),
    }
}

/// Returns the error's number: the kernel's, or one for what the library found.
fn number_of(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(match error.kind() {
        ErrorKind::NotConnected => libc::ENOTCONN,
        ErrorKind::AlreadyExists => libc::EEXIST,
        _ => libc::EIO,
    })
}

/// Waits until what was recorded before the call is in the file of a recording to disk. Returns 0, or a negative error
/// number. Not for signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_trace_flush() -> c_int {
    match trace::flush() {
        Ok(()) => 0,
        Err(error) => -number_of(&error),
    }
}

/// Returns the number of events that were lost since all buffers were in use; 0 if nothing is recorded.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_trace_lost() -> u64 {
    trace::status().map_or(0, |status| status.lost)
}
