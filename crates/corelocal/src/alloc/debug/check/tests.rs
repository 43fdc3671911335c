//! Tests of `check.rs`.

use super::*;

/// Used by this test alone: it allocates other classes' objects without trailers.
const SIZE: usize = 9000;

/// These tests run one at a time. One of them checks all objects in quarantine, while another has broken one, or needs
/// the quarantine's lock, for which a deallocation does not wait.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn object(size: usize) -> Object {
    let place = place(Range::make().unwrap(), 16, size).unwrap();
    let at = allocate(place, size).unwrap() as usize;
    Object { place, at }
}

#[test]
fn what_lies_about_an_object() {
    let _alone = alone();
    let object = object(SIZE);
    assert_eq!(object.state(), State::Live(SIZE));
    assert_eq!(object.find_other(0, SIZE, FRESH), None);
    assert_eq!(object.find_other(SIZE, object.room(), SLACK), None);
    assert_eq!(size_of(object.at as *mut u8), Some(SIZE));
    // SAFETY: a byte behind the end, which is restored.
    unsafe {
        let behind = (object.at + SIZE + 3) as *mut u8;
        behind.write(0);
        assert_eq!(object.find_other(SIZE, object.room(), SLACK), Some(SIZE + 3));
        behind.write(SLACK);
    }
    deallocate(object.place, object.at, SIZE);
    assert_eq!(object.state(), State::Freed(SIZE));
    assert_eq!(object.find_other(0, object.room(), FREED), None);
    verify_all(object.place.range);
}

/// A freed object is not allocated again for a while.
#[test]
fn quarantine_lasts() {
    let _alone = alone();
    let first = object(SIZE + 100);
    deallocate(first.place, first.at, UNKNOWN);
    for _ in 0..20 {
        let next = object(SIZE + 200);
        assert_ne!(next.at, first.at);
        deallocate(next.place, next.at, SIZE + 200);
    }
}

#[test]
fn places_have_room_for_trailers() {
    let range = Range::make().unwrap();
    for align in [1, 16, 64, 4096] {
        for size in [0, 1, 8, 9, 1000, 1016, 1017, class::LARGEST - TRAILER] {
            let shape = place(range, align, size).unwrap().shape();
            assert!(shape.size >= size + TRAILER && shape.size % align == 0);
        }
    }
    assert!(place(range, 16, class::LARGEST - TRAILER + 1).is_none());
}

#[test]
fn trailers_belong_to_their_objects() {
    let _alone = alone();
    let (one, other) = (object(SIZE), object(SIZE));
    let word = one.trailer().load(R);
    one.trailer().store(other.trailer().load(R), R);
    assert_eq!(one.state(), State::Broken);
    one.trailer().store(word, R);
    [one, other].into_iter().for_each(|object| deallocate(object.place, object.at, SIZE));
}

/// The trailers that a span leaves in memory are not valid in the next span there.
#[test]
fn trailers_belong_to_their_spans() {
    let _alone = alone();
    let object = object(SIZE);
    let start = object.place.range.chunk_of(object.at) & !(object.place.shape().chunks - 1);
    let generation = &object.place.range.record(start).generation;
    generation.fetch_add(1, R);
    assert_eq!(object.state(), State::Broken);
    generation.fetch_sub(1, R);
    deallocate(object.place, object.at, SIZE);
}

#[test]
fn large_ones() {
    let range = Range::make().unwrap();
    for size in [class::LARGEST - 3, 2 << 20, (3 << 20) + 17] {
        let (object, _) = allocate_large(range, 16, size, false).unwrap();
        assert_eq!(large::usable(range, object), size);
        // SAFETY: within the object.
        unsafe {
            assert_eq!((object.read(), object.add(size - 1).read()), (FRESH, FRESH));
            assert_eq!(object.add(size).read(), SLACK);
        }
        deallocate_other(range, object, size);
        assert_eq!(kind_of(object), Some(0));
    }
}
