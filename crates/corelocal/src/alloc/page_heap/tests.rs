use super::claim::extend;
use super::purge::give_back_taken;
use super::runs::{free_bits, take_dirt};
use super::search::{Within, claim_words};
use super::*;
use crate::alloc::layout::bits::mask;
use crate::scaled::scaled;
use std::vec::Vec;

/// Two concurrent releases and a search may leave a hint above free words.
#[test]
fn room_below_the_hint_is_found() {
    let range = Range::make().unwrap();
    let within = Within::stripe(range, 0);
    within.hint(range, 7).store(within.words.end, Ordering::Relaxed);
    // Anywhere: other tests claim and release words meanwhile.
    let first = claim_words(range, &within, 2 * IN_A_WORD).expect("room");
    free_bits(range, first, 2 * IN_A_WORD);
}

/// Concurrent runs do not overlap and are aligned; chunks that are not dirty are zero.
#[test]
fn runs_belong_to_one() {
    let range = Range::make().unwrap();
    std::thread::scope(|scope| {
        for seed in 1..=4u64 {
            scope.spawn(move || {
                let mut random = seed;
                let mut runs: Vec<(usize, usize)> = Vec::new();
                for _ in 0..scaled(2000).max(200) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let kind = (random >> 20) as usize;
                    let align = [1, 4, 32, 1, 128][kind % 5];
                    let chunks = if kind % 11 == 0 { 65 + kind % 150 } else { 1 + kind % 64 };
                    let Some(run) = claim(range, chunks, align) else { continue };
                    assert_eq!(range.address(run.first) % (align * CHUNK), 0);
                    for chunk in run.first..run.first + chunks {
                        let word = range.address(chunk) as *mut u64;
                        // SAFETY: the run belongs to this thread.
                        unsafe {
                            assert!(!run.is_zero || word.read() == 0);
                            word.write(seed);
                        }
                    }
                    runs.push((run.first, chunks));
                    if runs.len() > 20 {
                        let (first, chunks) = runs.swap_remove(kind % 20);
                        for chunk in first..first + chunks {
                            // SAFETY: the run belongs to this thread.
                            unsafe { assert_eq!((range.address(chunk) as *mut u64).read(), seed) };
                        }
                        release(range, first, chunks);
                    }
                    if random % 64 == 0 {
                        age(range);
                        purge(range, 0, random % 128 == 0);
                    }
                }
                for (first, chunks) in runs {
                    release(range, first, chunks);
                }
            });
        }
    });
}

/// Locked memory is given back once at most, and is not taken for zero when it is claimed again.
#[test]
fn locked_chunks_are_kept() {
    let range = Range::make().unwrap();
    let run = claim(range, 4, 4).unwrap();
    let at = range.address(run.first) as *mut u8;
    // SAFETY: the run belongs to this test.
    let locked = unsafe {
        at.write_bytes(1, 4 * CHUNK);
        libc::mlock(at.cast(), 4 * CHUNK) == 0
    };
    release(range, run.first, 4);
    let (words, mask) = (range.words(run.first / IN_A_WORD), mask(run.first % IN_A_WORD, 4));
    // Other tests may claim the chunks, and release them locked.
    let settled = (0..1000).any(|_| {
        purge(range, 0, false);
        let all = [words.used, words.kept].map(|word| word.load(Ordering::Relaxed) & mask);
        let is_open = open(range, run.first / IN_A_WORD) & mask == mask;
        all[0] | all[1] != 0 || !is_open
    });
    // SAFETY: addresses of the range. Unmapped ones are skipped.
    unsafe { libc::munlock(at.cast(), 4 * CHUNK) };
    if !locked {
        std::eprintln!("skipped: locked_chunks_are_kept: no memory may be locked (RLIMIT_MEMLOCK)");
        return;
    }
    assert!(settled);
    retry_kept(range);
    let kept = words.kept.load(Ordering::Relaxed) & !words.used.load(Ordering::Relaxed) & mask;
    assert_eq!(kept, 0);
}

/// Two concurrent purges: what the kernel refused to one is not zero for the other.
#[test]
fn what_was_refused_twice_is_not_zero() {
    let range = Range::make().unwrap();
    let run = claim(range, 4, 4).unwrap();
    let at = range.address(run.first) as *mut u8;
    let (words, mask) = (range.words(run.first / IN_A_WORD), mask(run.first % IN_A_WORD, 4));
    take_dirt(range, run.first, 4);
    words.keep(mask);
    // SAFETY: the run belongs to this test, and its content is not needed.
    let is_refused = unsafe {
        libc::mlock(at.cast(), 4 * CHUNK);
        !give_back_taken(range, run.first, 4)
    };
    if is_refused {
        assert!(!take_dirt(range, run.first, 4), "it would be taken for zeros");
    } else {
        // RLIMIT_MEMLOCK, or a sanitizer whose mlock does nothing.
        std::eprintln!("skipped: what_was_refused_twice_is_not_zero: no memory can be locked");
    }
    // SAFETY: the run belongs to this test.
    unsafe { libc::munlock(at.cast(), 4 * CHUNK) };
    release(range, run.first, 4);
}

#[test]
fn runs_grow_where_there_is_room() {
    let range = Range::make().unwrap();
    let run = claim(range, 200, 1).unwrap();
    // The word in which the run ends has room, unless another test was faster.
    if extend(range, run.first + 200, 10) {
        assert!(range.high_water() >= (run.first + 210) * CHUNK);
        assert!(!extend(range, run.first + 205, 5));
        release(range, run.first + 200, 10);
    }
    assert!(!extend(range, range.chunks() - 1, 2));
    assert!(!extend(range, 5, usize::MAX));
    release(range, run.first, 200);
    assert!(claim(range, range.chunks() + 1, 1).is_none());
    assert!(claim(range, usize::MAX / 2, 1).is_none());
}
