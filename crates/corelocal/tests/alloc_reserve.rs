//! What large objects keep in reserve, and what they leave unused between them. In a process whose malloc has nothing else.

use corelocal::alloc;

const MIB: usize = 1 << 20;

/// Written to as a whole.
fn object(size: usize) -> *mut u8 {
    let object = alloc::allocate(size);
    assert!(!object.is_null());
    // SAFETY: allocated just now, with so many bytes.
    unsafe { object.write_bytes(1, size) };
    object
}

fn free(objects: impl IntoIterator<Item = *mut u8>) {
    for object in objects {
        // SAFETY: allocated by `object`, and not given back yet.
        unsafe { alloc::deallocate(object) };
    }
}

/// Makes small objects large by `realloc`, and returns them with the bytes that are then in reserve.
fn grown(count: usize, size: usize) -> (Vec<*mut u8>, usize) {
    let grow = |_| {
        let small = object(1000);
        // SAFETY: allocated just now; the result has so many bytes.
        unsafe {
            let large = alloc::reallocate(small, size);
            assert!(!large.is_null());
            large.write_bytes(2, size);
            large
        }
    };
    let objects: Vec<_> = (0..count).map(grow).collect();
    (objects, alloc::stats().large_reserve)
}

/// One test, as each looks at all that there is.
#[test]
fn reserve_and_gaps() {
    // Memory that nothing was in: half as much again, which is no memory as long as it is not written to.
    let (objects, reserve) = grown(4, 6 * MIB);
    assert!(reserve > 4 * 2 * MIB && reserve <= 4 * 3 * MIB, "{reserve}");
    let in_use = alloc::stats().large_bytes;
    assert!((24 * MIB..26 * MIB).contains(&in_use), "{in_use}: reserve is not in use");
    // An object grows into its reserve without moving, and has less of it then.
    // SAFETY: allocated above; only the result is used from here on.
    let longer = unsafe { alloc::reallocate(objects[0], 8 * MIB) };
    assert_eq!(longer, objects[0]);
    assert!(alloc::stats().large_reserve <= reserve - 2 * MIB + (64 << 10));
    free(objects);
    assert_eq!((alloc::stats().large_reserve, alloc::stats().large_bytes), (0, 0));

    // Recycled memory would be kept: none of it goes into a reserve.
    let spread: Vec<_> = (0..64).map(|_| object(2 * MIB)).collect();
    free(spread);
    let (objects, reserve) = grown(20, 2 * MIB);
    assert!(reserve < 2 * MIB, "{reserve} bytes in reserve");
    free(objects);
    alloc::trim(0);

    // Objects of a little more than half of 4 MiB lie side by side.
    let before = alloc::stats().committed;
    let objects: Vec<_> = (0..60).map(|_| object(2 * MIB + MIB / 4)).collect();
    let more = alloc::stats().committed.saturating_sub(before);
    assert!(more < 60 * 3 * MIB, "{more} bytes for 135 MiB");
    // Of each two neighbours one goes; longer ones than these gaps do not break others up.
    let (kept, gone): (Vec<_>, Vec<_>) = objects.chunks(2).map(|two| (two[0], two[1])).unzip();
    free(gone);
    let idle = alloc::stats().idle;
    let refilled: Vec<_> = (0..25).map(|_| object(2 * MIB + MIB / 4)).collect();
    let left = alloc::stats().idle;
    assert!(left + 25 * 2 * MIB <= idle, "gaps are not used again: {idle} bytes idle, then {left}");
    free(kept.into_iter().chain(refilled));
}
