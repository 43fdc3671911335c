//! Every item comes out once, whole: a storm of threads and signal handlers that put new tokens into containers and
//! take some out, with consumers, and with threads that take slots and memory back.
//!
//! A token is a unique number. It is recorded where it comes out, or where it is refused.
//!
//! Invariant: a program has one such storm at a time, since the tokens are global.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;

use corelocal::{cid, percpu};

/// As many tokens as there are at most.
const TOKENS: usize = 4_000_000;
/// How often each was seen.
static SEEN: [AtomicU8; TOKENS] = [const { AtomicU8::new(0) }; TOKENS];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static STEPS: AtomicUsize = AtomicUsize::new(0);

/// Containers of the test's own, and what is done to them.
pub trait Contained {
    /// How many threads consume.
    const CONSUMERS: u32;

    /// Puts tokens in, or takes some out: the step of this number, in a thread or a signal handler.
    fn step(number: usize);

    /// What one of the threads that consume does, over and over.
    fn consume(round: u32);

    /// Takes out all that is left, while no other thread is active. False if that cannot be done.
    fn empty() -> bool;

    /// Whether nothing is left.
    fn is_empty() -> bool;
}

/// A new token, as long as there are any.
pub fn fresh() -> Option<usize> {
    let token = NEXT.fetch_add(1, Ordering::Relaxed);
    (token < TOKENS).then_some(token)
}

/// The token has come out, or was refused.
pub fn see(token: usize) {
    SEEN[token].fetch_add(1, Ordering::Relaxed);
}

/// A token of several words, which tell whether they belong together.
pub type Wide = [usize; 3];

pub fn wide(token: usize) -> Wide {
    [token, !token, token ^ 0x5555]
}

/// As [`see`].
pub fn see_wide(item: Wide) {
    assert_eq!(wide(item[0]), item, "an item in pieces");
    see(item[0]);
}

/// The storm, of 16 threads with this many steps each. False if the result is unknown, since the containers could not
/// be emptied.
pub fn no_token_is_lost_or_doubled<C: Contained>(each: u64) -> bool {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for consumer in 0..C::CONSUMERS {
            let done = &done;
            scope.spawn(move || {
                for round in 0u32.. {
                    C::consume(round.wrapping_add(consumer));
                    if round % 64 == 0 {
                        // Slots change hands, and pages go; refused, they do not.
                        let _ = (cid::compact(), percpu::trim());
                    }
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        super::rage_doing(16, each, || C::step(STEPS.fetch_add(1, Ordering::Relaxed)));
        done.store(true, Ordering::Relaxed);
    });
    if !C::empty() {
        return false;
    }
    assert!(C::is_empty());
    let tokens = NEXT.load(Ordering::Relaxed).min(TOKENS);
    let mut seen = SEEN[..tokens].iter().map(|seen| seen.load(Ordering::Relaxed));
    assert_eq!(seen.position(|times| times != 1), None, "a token that was not seen once");
    true
}
