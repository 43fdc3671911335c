//! How often values occur.

use core::ffi::c_int;

use corelocal::percpu::Histogram;
use corelocal::percpu::histogram::Snapshot;

use crate::object::{destroy, object, rust_object};

/// The number of a histogram's buckets.
pub const CORELOCAL_HISTOGRAM_BUCKETS: usize = 1920;

/// A histogram of numbers of 64 bits that threads on different cores record in without contention.
///
/// Buckets are log-linear: a value is known to 3.1 % of itself, the middle of its bucket to 1.6 %, and values below 64
/// exactly. A bucket counts to 2^61 and stays there.
///
/// Declare it as CORELOCAL_HISTOGRAM_INIT or as zeros; it is 15 KiB long. On each core that used it those pages of 15 KiB
/// are resident that were touched.
///
/// All functions may be called by any thread, in signal handlers, before main, during thread exit and in children of
/// fork, which have their own copy. They do not block or allocate. Their memory order is relaxed.
///
/// Kernels: as for corelocal_counter.
#[repr(C)]
pub struct corelocal_histogram {
    opaque: [u64; 1922],
}
rust_object!(corelocal_histogram, Histogram);

/// What a histogram held at one moment: a plain value of the caller's. Zeros are an empty one.
#[repr(C)]
pub struct corelocal_snapshot {
    counts: [u64; 1920],
}
const _: () = assert!(size_of::<corelocal_snapshot>() == 8 * CORELOCAL_HISTOGRAM_BUCKETS);
const _: () = assert!(size_of::<corelocal_snapshot>() == size_of::<Snapshot>());
const _: () = assert!(align_of::<corelocal_snapshot>() == align_of::<Snapshot>());

/// The bounds of a bucket, and how many values are in it.
#[repr(C)]
pub struct corelocal_bucket {
    low: u64,
    high: u64,
    count: u64,
}

/// Returns the snapshot in C's memory.
///
/// # Safety
/// - `at` is a snapshot of C's.
unsafe fn snapshot<'a>(at: *const corelocal_snapshot) -> &'a Snapshot {
    // SAFETY: by the contract; both are the counts, which may have any values.
    unsafe { &*at.cast() }
}

/// Records a value n times, at the cost of once. Constant time.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_histogram_record(
    histogram: *mut corelocal_histogram,
    value: u64,
    n: u64,
) {
    // SAFETY: by the contract.
    unsafe { object(histogram) }.record_n(value, n);
}

/// Stores to into what was recorded. Each value recorded meanwhile is included or not. Linear in the buckets times the
/// cores in use: some 10 microseconds where two cores have recorded.
///
/// # Safety
/// - See the crate's invariant 3. `into` may be uninitialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_histogram_snapshot(
    histogram: *const corelocal_histogram,
    into: *mut corelocal_snapshot,
) {
    // SAFETY: by the contract.
    let (histogram, into) = unsafe { (object(histogram), empty(into)) };
    histogram.snapshot_into(into);
}

/// Does what corelocal_histogram_snapshot does, and leaves the histogram empty. Of several threads that take at once, each
/// value goes to exactly one.
///
/// # Safety
/// - See the crate's invariant 3. `into` may be uninitialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_histogram_take(
    histogram: *mut corelocal_histogram,
    into: *mut corelocal_snapshot,
) {
    // SAFETY: by the contract.
    let (histogram, into) = unsafe { (object(histogram), empty(into)) };
    histogram.take_into(into);
}

/// Returns an empty snapshot in C's memory.
///
/// # Safety
/// - `at` is memory for a snapshot, of this thread's alone.
unsafe fn empty<'a>(at: *mut corelocal_snapshot) -> &'a mut Snapshot {
    // SAFETY: by the contract; zeros are an empty one.
    unsafe {
        at.write_bytes(0, 1);
        &mut *at.cast()
    }
}

/// Gives the histogram's memory on each core back. No other thread may use it meanwhile. Afterwards it is a new one.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_histogram_destroy(histogram: *mut corelocal_histogram) {
    // SAFETY: by the contract.
    unsafe { destroy(histogram) };
}

/// Returns the number of values, at most UINT64_MAX. Linear in the buckets, like all functions of snapshots.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_snapshot_count(at: *const corelocal_snapshot) -> u64 {
    // SAFETY: by the contract.
    unsafe { snapshot(at) }.count()
}

/// Stores to bucket the one of the value that a share q of all values does not exceed: 0.5 for the median, 0.99 for the
/// 99th percentile. A q below 0 or above 1 counts as 0 or 1.
///
/// Returns 0, or -ENODATA if there are no values or q is not a number.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_snapshot_quantile(
    at: *const corelocal_snapshot,
    q: f64,
    bucket: *mut corelocal_bucket,
) -> c_int {
    // SAFETY: by the contract.
    let Some(found) = unsafe { snapshot(at) }.quantile_bucket(q) else { return -libc::ENODATA };
    // SAFETY: by the contract.
    unsafe { bucket.write(of(found)) };
    0
}

fn of(found: corelocal::percpu::histogram::Bucket) -> corelocal_bucket {
    corelocal_bucket { low: found.low, high: found.high, count: found.count }
}

/// Returns an estimate of the mean of the values, off by at most 1.6 %. Not a number if there are none.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_snapshot_mean(at: *const corelocal_snapshot) -> f64 {
    // SAFETY: by the contract.
    unsafe { snapshot(at) }.mean().unwrap_or(f64::NAN)
}

/// Adds the counts of from to those of to. A sum of more than UINT64_MAX is UINT64_MAX.
///
/// # Safety
/// - See the crate's invariant 3. They are different ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_snapshot_merge(
    to: *mut corelocal_snapshot,
    from: *const corelocal_snapshot,
) {
    // SAFETY: by the contract.
    let (to, from) = unsafe { (&mut *to.cast::<Snapshot>(), snapshot(from)) };
    to.merge(from);
}

/// Stores to buckets the first n that are not empty, from low to high, or all if there are fewer. Returns how many are not
/// empty, which may be more than n.
///
/// # Safety
/// - See the crate's invariant 3. `buckets` has room for n; it may be null if that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_snapshot_buckets(
    at: *const corelocal_snapshot,
    buckets: *mut corelocal_bucket,
    n: usize,
) -> usize {
    let mut count = 0;
    // SAFETY: by the contract.
    for found in unsafe { snapshot(at) }.buckets() {
        if count < n {
            // SAFETY: below n, for which there is room.
            unsafe { buckets.add(count).write(of(found)) };
        }
        count += 1;
    }
    count
}
