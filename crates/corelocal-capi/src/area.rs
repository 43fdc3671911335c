//! Words for each core that are allocated one set after the other.

use core::ffi::{c_int, c_void};
use core::mem;
use core::sync::atomic::AtomicU64;

use corelocal::foreign::words_here;
use corelocal::percpu::Area;
use corelocal::percpu::area::{Cell, Error};

/// An allocator of cells: some words of 64 bits for each core, all 0 at first. For sets that come and go by the thousand,
/// such as one for each tenant or connection.
///
/// Make it by corelocal_area_create, in memory that stays in its place. A cell of n words takes 8 n bytes rounded up to a
/// power of two on each core that changed it.
///
/// create, destroy and trim are not for signal handlers. All others may be called by any thread, in signal handlers, during
/// thread exit and in children of fork, which have their own copy. They do not block. Kernels: as for corelocal_counter.
#[repr(C)]
pub struct corelocal_area {
    /// The Rust object.
    area: *const c_void,
    /// The number of words of a cell.
    words: usize,
    /// How many there is room for, as a base-2 logarithm.
    shift: usize,
}

/// The most words of a cell: 4 KiB on each core.
pub const CORELOCAL_CELL_MAX: usize = 512;

/// A cell of an area. It is the program's until it is put back, and must not be copied.
#[repr(C)]
pub struct corelocal_cell {
    opaque: [u64; 3],
    area: *const corelocal_area,
}

/// A cell as Rust has it. All are equally long.
type CellOf<const WORDS: usize> = Cell<'static, WORDS>;
const _: () = assert!(size_of::<CellOf<1>>() == 24 && size_of::<CellOf<512>>() == 24);
const _: () = assert!(align_of::<CellOf<1>>() == 8 && align_of::<CellOf<512>>() == 8);

/// Evaluates `$body` with `$words` as a constant: the words that there is room for in cells of this area.
macro_rules! with_words {
    ($area:expr, $words:ident => $body:expr) => {
        with_words!(@ $area, $words => $body; 0 1 2 3 4 5 6 7 8; 9)
    };
    (@ $area:expr, $words:ident => $body:expr; $($shift:literal)+; $last:literal) => {
        match $area.shift {
            $($shift => { const $words: usize = 1 << $shift; $body })+
            _ => { const $words: usize = 1 << $last; $body }
        }
    };
}

/// Makes an area whose cells have this many words, from 1 to CORELOCAL_CELL_MAX, and in which so many cells are in use at a
/// time; 0: any number. Returns 0, -EINVAL for other words, or -ENOMEM.
///
/// # Safety
/// - See the crate's invariant 3. `area` may be uninitialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_area_create(
    area: *mut corelocal_area,
    words: usize,
    limit: u64,
) -> c_int {
    if words == 0 || words > CORELOCAL_CELL_MAX {
        return -libc::EINVAL;
    }
    let shift = words.next_power_of_two().trailing_zeros() as usize;
    let mut made = corelocal_area { area: core::ptr::null(), words, shift };
    let limit = if limit == 0 { u64::MAX } else { limit };
    with_words!(made, WORDS => {
        // SAFETY: not 0 bytes.
        let at: *mut Area<WORDS> = unsafe { libc::calloc(1, size_of::<Area<WORDS>>()) }.cast();
        if at.is_null() {
            return -libc::ENOMEM;
        }
        // SAFETY: as long as that; `calloc` aligns to 16 bytes.
        unsafe { at.write(Area::new().limit(limit)) };
        made.area = at.cast_const().cast();
    });
    // SAFETY: by the contract.
    unsafe { area.write(made) };
    0
}

/// Returns the area that C's describes.
///
/// # Safety
/// - It was made with as many words by `create`, and is not destroyed while the reference is used.
unsafe fn inner<const WORDS: usize>(area: &corelocal_area) -> &'static Area<WORDS> {
    // SAFETY: by the contract.
    unsafe { &*area.area.cast() }
}

/// Ends an area that was made, or is zeros, and unmaps its memory. All of its cells were put back.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_area_destroy(area: *mut corelocal_area) {
    // SAFETY: by the contract.
    let area = unsafe { &mut *area };
    if area.area.is_null() {
        return;
    }
    // SAFETY: made by `create`; by the contract no cell is left, and this is the only user.
    with_words!(area, WORDS => unsafe {
        core::ptr::drop_in_place(area.area.cast_mut().cast::<Area<WORDS>>());
    });
    // SAFETY: made by `calloc`.
    unsafe { libc::free(area.area.cast_mut().cast()) };
    *area = corelocal_area { area: core::ptr::null(), words: 0, shift: 0 };
}

/// Gives the pages back of cores that this process no longer uses, where all words are 0. Returns the bytes. Linear in the
/// cores and pages in use.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_area_trim(area: *mut corelocal_area) -> usize {
    // SAFETY: by the contract.
    let area = unsafe { &*area };
    // SAFETY: made by `create`.
    with_words!(area, WORDS => unsafe { inner::<WORDS>(area) }.trim().unwrap_or(0))
}

/// Takes a cell, whose words are 0 on every core. Returns 0, -ENOSPC if the limit is reached, or -ENOMEM. Lock-free; at
/// worst linear in the cells.
///
/// # Safety
/// - See the crate's invariant 3. `cell` may be uninitialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_area_take(
    area: *mut corelocal_area,
    cell: *mut corelocal_cell,
) -> c_int {
    // SAFETY: by the contract.
    let here = unsafe { &*area };
    // SAFETY: made by `create`.
    with_words!(here, WORDS => match unsafe { inner::<WORDS>(here) }.take() {
        Ok(taken) => {
            // SAFETY: by the contract; as long as that.
            unsafe {
                cell.cast::<CellOf<WORDS>>().write(taken);
                (*cell).area = area;
            }
            0
        }
        Err(Error::Full { .. }) => -libc::ENOSPC,
        Err(Error::NoMemory { .. }) => -libc::ENOMEM,
    })
}

/// Evaluates `$body` with the Rust cell.
macro_rules! with_cell {
    ($at:expr, $cell:ident, $words:ident => $body:expr) => {{
        // SAFETY: by the contract of the caller.
        let area = unsafe { &*(*$at).area };
        with_words!(area, $words => {
            // SAFETY: taken from an area with this many words.
            let $cell = unsafe { &*$at.cast::<CellOf<$words>>() };
            $body
        })
    }};
}

/// Returns `true` if the cell has a word of this index.
///
/// # Safety
/// - `cell` was taken.
unsafe fn has(cell: *const corelocal_cell, index: usize) -> bool {
    // SAFETY: by the contract.
    index < unsafe { (*(*cell).area).words }
}

/// Puts a cell back. No other thread may use it meanwhile. Linear in the cores in use.
///
/// # Safety
/// - See the crate's invariant 3. The cell was taken, and is put back once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_cell_put(cell: *mut corelocal_cell) {
    with_cell!(cell, inner, WORDS => {
        // SAFETY: by the contract this is its only user.
        unsafe { core::ptr::drop_in_place(core::ptr::from_ref(inner).cast_mut()) };
    });
}

/// Adds n, wrapping, to this core's word. Returns 0, or -ERANGE if there is no such word. Constant time.
/// corelocal/inline.h has it inline.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_cell_add(
    cell: *mut corelocal_cell,
    index: usize,
    n: u64,
) -> c_int {
    // SAFETY: by the contract.
    if !unsafe { has(cell, index) } {
        return -libc::ERANGE;
    }
    with_cell!(cell, inner, WORDS => if let Some(word) = inner.word(index) { word.add(n) });
    0
}

/// Stores n in this core's word and returns the old value; 0 if there is no such word.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_cell_exchange(
    cell: *mut corelocal_cell,
    index: usize,
    n: u64,
) -> u64 {
    // SAFETY: by the contract.
    if !unsafe { has(cell, index) } {
        return 0;
    }
    with_cell!(cell, inner, WORDS => inner.word(index).map_or(0, |word| word.exchange(n)))
}

/// Stores n in this core's word if that is as expected. Returns 1, 0 if it is not, or -ERANGE.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_cell_store_if_equal(
    cell: *mut corelocal_cell,
    index: usize,
    expected: u64,
    n: u64,
) -> c_int {
    // SAFETY: by the contract.
    if !unsafe { has(cell, index) } {
        return -libc::ERANGE;
    }
    with_cell!(cell, inner, WORDS => inner
        .word(index)
        .map_or(-libc::ERANGE, |word| c_int::from(word.store_if_equal(expected, n).is_ok())))
}

/// Returns this core's word: a hint. 0 if there is no such word.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_cell_load(cell: *const corelocal_cell, index: usize) -> u64 {
    // SAFETY: by the contract.
    if !unsafe { has(cell, index) } {
        return 0;
    }
    with_cell!(cell, inner, WORDS => inner.word(index).map_or(0, |word| word.load()))
}

/// Returns the sum of a word over all cores, wrapping; 0 if there is no such word. Linear in the cores in use.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_cell_sum(cell: *const corelocal_cell, index: usize) -> u64 {
    // SAFETY: by the contract.
    if !unsafe { has(cell, index) } {
        return 0;
    }
    with_cell!(cell, inner, WORDS => inner.word(index).map_or(0, |word| {
        word.iter().fold(0, |sum: u64, (_, value)| sum.wrapping_add(value))
    }))
}

/// Returns the address of this core's words, for critical sections of the program's own: a hint, as the thread may have
/// another core by now. Null if there is no memory. What is stored there outside of a critical section is lost or destroys
/// what others store.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_cell_here(cell: *mut corelocal_cell) -> *mut u64 {
    let at: Option<*const AtomicU64> = with_cell!(cell, inner, WORDS => words_here(inner));
    at.map_or(core::ptr::null_mut(), |at| at.cast_mut().cast())
}

/// Calls visit with the words of each core that may have changed them, and with context. A word that changes meanwhile is
/// seen before or after the change. Linear in the words times the cores in use.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_cell_walk(
    cell: *const corelocal_cell,
    visit: unsafe extern "C" fn(words: *const u64, n: usize, context: *mut c_void),
    context: *mut c_void,
) {
    // SAFETY: by the contract.
    let n = unsafe { (*(*cell).area).words };
    with_cell!(cell, inner, WORDS => for (_, words) in inner.iter() {
        // SAFETY: the program's own function, with what it asked for.
        unsafe { visit(words.as_ptr(), n, context) };
    });
}

const _: () = assert!(!mem::needs_drop::<corelocal_cell>());
