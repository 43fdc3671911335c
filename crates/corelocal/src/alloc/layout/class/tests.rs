//! Tests of `class.rs`.

use super::*;
use std::vec::Vec;

#[test]
fn every_size_has_the_smallest_class_that_fits() {
    for size in 0..=LARGEST {
        let class = of_size(size).unwrap();
        assert!((1..=CLASSES).contains(&class) && shape(class).size >= size, "{size}");
        assert!(class == 1 || shape(class - 1).size < size, "{size}");
    }
    assert_eq!(of_size(LARGEST + 1), None);
    assert_eq!(of_size(usize::MAX), None);
}

#[test]
fn what_shapes_promise() {
    for class in 1..=CLASSES {
        let shape = shape(class);
        assert!(shape.size % 16 == 0 && shape.chunks.is_power_of_two() && shape.chunks <= 32);
        assert!(shape.capacity >= 1 && shape.capacity * shape.size <= shape.chunks * CHUNK);
        assert!(shape.capacity <= 4096, "bits of a record");
        let degrees: Vec<usize> = (0..shape.capacity).map(|out| shape.fullness_of(out)).collect();
        assert!(degrees.is_sorted() && degrees[0] == 0 && degrees[shape.capacity - 1] < FULLNESSES);
        assert!((1..=MOST_BATCH).contains(&shape.batch));
        // A refill never exceeds the stack's capacity.
        assert!(shape.most + shape.batch <= MOST_ITEMS && shape.depot <= MOST_DEPOT);
    }
    assert_eq!(shape(CLASSES).size, LARGEST);
}

#[test]
fn offsets_of_objects_and_of_nothing() {
    for class in 1..=CLASSES {
        let shape = shape(class);
        for index in 0..shape.capacity {
            let at = index * shape.size;
            assert_eq!(shape.index_of(at), Some(index));
            assert!(
                [1, shape.size / 2, shape.size - 1]
                    .iter()
                    .all(|n| shape.index_of(at + n).is_none())
            );
        }
        assert_eq!(shape.index_of(shape.capacity * shape.size), None);
    }
}

#[test]
fn aligned_sizes() {
    for align in (0..=20).map(|shift| 1 << shift) {
        for size in [0, 1, 17, 100, 1000, 5000, 70_000, 1 << 19, LARGEST] {
            let class = of_aligned(align, size).unwrap();
            assert!(shape(class).size >= size && shape(class).size % align == 0);
            assert!(shape(class).chunks * CHUNK % align == 0);
        }
    }
    assert_eq!(of_aligned(1 << 21, 1), None);
    for size in [LARGEST + 1, 2 * LARGEST - 1, 2 * LARGEST, usize::MAX] {
        for align in [1, 16, 4096, LARGEST, 1 << 63] {
            assert_eq!(of_aligned(align, size), None, "{align} {size}");
        }
    }
    for align in [0, 3, 48, usize::MAX] {
        assert_eq!(of_aligned(align, 16), None, "{align}");
    }
}
