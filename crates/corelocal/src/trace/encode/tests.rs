//! Tests of `encode.rs`.

use super::*;

#[cfg(target_endian = "big")]
#[test]
fn big_endian_processors_record_nothing() {
    use crate::trace::{Options, StartError, start};
    assert_eq!(start(Options::flight_recorder()), Err(StartError::BigEndian));
}

#[cfg(target_endian = "little")]
#[test]
fn numbers_are_packed() {
    let mut encoder = Encoder::new();
    7_u32.put(&mut encoder);
    assert_eq!(encoder.finish(5).len(), 1);
    true.put(&mut encoder);
    (-1_i16).put(&mut encoder);
    let words = encoder.finish(5);
    assert_eq!(words.len(), 2);
    // SAFETY: both words were written, the second one with zeros at its end.
    let words = unsafe { [words[0].assume_init(), words[1].assume_init()] };
    assert_eq!(words, [7 << 32 | 2 << 16 | 5, 0xff_ff01]);
}

#[test]
fn arrays_are_cut_between_elements() {
    let mut encoder = Encoder::new();
    [1_u16, 2].put(&mut encoder);
    assert_eq!(encoder.at, FIRST + 2 + 4);
    [7_u64; 100].put(&mut encoder);
    assert_eq!(encoder.at, FIRST + 2 + 4 + 2 + 60 * 8);
    // There is room for a byte, but the field before it did not fit.
    7_u32.put(&mut encoder);
    7_u8.put(&mut encoder);
    assert_eq!(encoder.at, 8 * MOST_WORDS);
    assert_eq!(<[f64; 3]>::TYPE, FieldType { of: Type::F64, is_array: true });
}

#[cfg(target_endian = "little")]
#[test]
fn texts() {
    let mut encoder = Encoder::new();
    encoder.put_any(&7_u16);
    encoder.put_missing();
    encoder.put_any_text(format_args!("{}{}", "a", 12));
    assert_eq!(encoder.at, FIRST + 3 + 1 + 3 + 3);
    encoder.put_text(format_args!("{:1000}", 0));
    assert_eq!(encoder.at, 8 * MOST_WORDS);
    encoder.put_text(format_args!("no room"));
    assert_eq!(encoder.finish(1).len(), MOST_WORDS);
    let length = encoder.words.as_ptr().cast::<u8>().wrapping_add(FIRST + 10).cast::<u16>();
    // SAFETY: written by `put_text`.
    let length = unsafe { length.read_unaligned() };
    assert_eq!(length, (8 * MOST_WORDS - FIRST - 12) as u16 | WAS_CUT);
}

#[cfg(target_endian = "little")]
#[test]
fn long_strings_are_cut() {
    let mut encoder = Encoder::new();
    let long = [b'x'; 1000];
    long[..].put(&mut encoder);
    // There is no room any more.
    7_u64.put(&mut encoder);
    "".put(&mut encoder);
    assert_eq!(encoder.finish(1).len(), MOST_WORDS);
    assert_eq!(encoder.at, 8 * MOST_WORDS);
    let length = encoder.words.as_ptr().cast::<u8>().wrapping_add(FIRST).cast::<u16>();
    // SAFETY: written by `put_some`.
    let length = unsafe { length.read_unaligned() };
    assert_eq!(length, (8 * MOST_WORDS - FIRST - 2) as u16 | WAS_CUT);
}
