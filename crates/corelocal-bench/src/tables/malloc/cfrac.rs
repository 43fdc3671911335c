//! A program of one thread that takes and gives back small numbers all the time, as cfrac does: the
//! continued fraction of a square root, with numbers of any length that are new pieces after each
//! operation.
//!
//! Invariants:
//! 1. A number owns its piece: limbs of 32 bits, the lowest first, none of them a leading zero.
//! 2. The numbers that come up are below 2^128: `N` is below 2^80, the terms below 2^41.
//! 3. The result is proved: the square of a convergent's numerator is, modulo `N`, the denominator of the
//!    complete quotient, with alternating sign (Lehmer and Powers, 1931).

use std::time::Instant;

use anyhow::ensure;

use super::did::Did;
use super::heap::{Piece, give, take};

/// Digits of the golden ratio: 80 bits, and no square.
const N: u128 = 0x9e37_79b9_7f4a_7c15_f39d;

/// A number that lives in memory of its own.
struct Number {
    piece: Piece,
    limbs: usize,
}

impl Number {
    fn new(value: u128) -> Self {
        let limbs = (128 - value.leading_zeros() as usize).div_ceil(32).max(1);
        let piece = take(limbs * 4);
        for at in 0..limbs {
            // SAFETY: within the piece, which is new.
            unsafe { piece.into_word().cast::<u32>().add(at).write((value >> (32 * at)) as u32) };
        }
        Number { piece, limbs }
    }

    fn value(&self) -> u128 {
        let limb = |at| {
            // SAFETY: within the piece, and written by `new`.
            let limb = unsafe { self.piece.into_word().cast::<u32>().add(at).read() };
            u128::from(limb) << (32 * at)
        };
        (0..self.limbs).map(limb).sum()
    }

    /// Returns a new number from two.
    fn from(a: &Number, b: &Number, op: impl Fn(u128, u128) -> u128) -> Number {
        Number::new(op(a.value(), b.value()))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // SAFETY: its own, and gone with it (1).
        unsafe { give(self.piece) };
    }
}

/// Computes so many terms; an operation is a number.
pub fn factor(times: u64) -> anyhow::Result<Did> {
    /// New numbers of a term.
    const NUMBERS: u64 = 11;
    let terms = (times / NUMBERS).max(2);
    let begin = Instant::now();
    let n = Number::new(N);
    let root = Number::new(N.isqrt());
    // The complete quotient (root(N) + m) / d, its whole part a, and the last two numerators.
    let (mut m, mut d, mut a) = (Number::new(0), Number::new(1), Number::new(root.value()));
    let (mut before, mut last) = (Number::new(1), Number::new(root.value()));
    for _ in 0..terms {
        let product = Number::from(&d, &a, |d, a| d * a);
        m = Number::from(&product, &m, |product, m| product - m);
        let square = Number::from(&m, &m, |m, other| m * other);
        let rest = Number::from(&n, &square, |n, square| n - square);
        d = Number::from(&rest, &d, |rest, d| rest / d);
        let sum = Number::from(&root, &m, |root, m| root + m);
        a = Number::from(&sum, &d, |sum, d| sum / d);
        let scaled = Number::from(&a, &last, |a, last| a * last);
        let whole = Number::from(&scaled, &before, |scaled, before| scaled + before);
        let quotient = Number::from(&whole, &n, |whole, n| whole / n);
        let next = Number::from(&whole, &quotient, |whole, quotient| whole - quotient * N);
        before = last;
        last = next;
    }
    let wall = begin.elapsed();
    // (3), with the number before the last: its complete quotient is the one that was made last.
    let square = squared_modulo_n(before.value());
    let expected = if terms % 2 == 0 { d.value() % N } else { N - d.value() % N };
    ensure!(square == expected, "the numbers are wrong: an object was overwritten");
    Ok(Did::alone(terms * NUMBERS, wall))
}

/// Squares by doubling, since the square itself has more than 128 bits.
fn squared_modulo_n(value: u128) -> u128 {
    (0..128).rev().fold(0, |sum, bit| {
        let added = if value >> bit & 1 == 1 { value } else { 0 };
        (sum * 2 + added) % N
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_right() {
        assert!(N >> 80 == 0 && N.isqrt() * N.isqrt() != N);
        for terms in 2..60 {
            assert_eq!(factor(terms * 11).unwrap().ops, terms * 11);
        }
        assert!(factor(100_000).is_ok());
    }

    #[test]
    fn numbers_keep_their_values() {
        for value in [0, 1, u128::from(u32::MAX), 1 << 32, N, u128::MAX] {
            assert_eq!(Number::new(value).value(), value);
        }
        assert_eq!(squared_modulo_n(3), 9);
        assert_eq!(squared_modulo_n(N - 2), 4);
    }
}
