//! What `mallinfo2(3)` counts over a script of calls: each field rises and falls as glibc's does.
//!
//! Invariant: large objects are in `hblks` and `hblkhd` alone; the arena is what is in use of it and what is free.

use std::hint::black_box;

use crate::Outcome;

const LARGE: usize = 50 << 20;
const SMALL: usize = 200;
const COUNT: usize = 10_000;
/// What a malloc may add to a figure.
const LITTLE: usize = 1 << 20;

#[cfg(target_env = "gnu")]
pub fn accounts() -> Outcome {
    // SAFETY: takes nothing.
    let look = || unsafe { libc::mallinfo2() };
    // SAFETY: takes a number.
    let take = |len: usize| black_box(unsafe { libc::malloc(len) });
    // SAFETY: taken here, given back once.
    let give = |at| unsafe { libc::free(at) };
    let mut objects = Vec::with_capacity(COUNT);
    let mut infos = vec![look()];
    let large = take(LARGE);
    infos.push(look());
    objects.extend((0..COUNT).map(|_| take(SMALL)));
    infos.push(look());
    give(large);
    infos.push(look());
    // The last one stays, so that the memory before it does not go back to the kernel.
    let last = objects.pop();
    objects.drain(..).for_each(give);
    infos.push(look());
    last.into_iter().for_each(give);
    for (step, info) in infos.iter().enumerate() {
        let is_sum = info.arena == info.uordblks + info.fordblks;
        let are_parts = info.keepcost <= info.fordblks && info.fsmblks <= info.fordblks;
        if !(is_sum && are_parts && info.usmblks == 0) {
            return Err(format!("after step {step}: {info:?}"));
        }
    }
    let [start, with_large, with_both, with_small, end] = infos[..] else {
        return Err("steps".into());
    };
    let near = |a: usize, b: usize| a.abs_diff(b) <= LITTLE;
    let rises = |a: usize, b: usize, by: usize| b >= a + by && b <= a + by + by / 2 + LITTLE;
    let checks = [
        ("hblkhd has the large object", rises(start.hblkhd, with_large.hblkhd, LARGE)),
        ("hblks counts it", with_large.hblks == start.hblks + 1),
        ("uordblks does not have it", near(start.uordblks, with_large.uordblks)),
        ("the arena does not have it", near(start.arena, with_large.arena)),
        (
            "uordblks has small objects",
            rises(with_large.uordblks, with_both.uordblks, SMALL * COUNT),
        ),
        ("the arena has them", with_both.arena >= with_large.arena + SMALL * COUNT / 2),
        ("hblkhd does not have them", with_both.hblkhd == with_large.hblkhd),
        ("hblkhd falls", with_small.hblkhd == start.hblkhd && with_small.hblks == start.hblks),
        ("uordblks stays", near(with_both.uordblks, with_small.uordblks)),
        ("uordblks falls", near(start.uordblks, end.uordblks)),
        ("fordblks rises", end.fordblks + LITTLE >= with_small.fordblks + SMALL * COUNT),
    ];
    match checks.iter().find(|(_, holds)| !holds) {
        Some((what, _)) => Err(format!("not so: {what}: {infos:#?}")),
        None => Ok(format!("{} bytes of large objects, then none", with_large.hblkhd)),
    }
}

#[cfg(not(target_env = "gnu"))]
pub fn accounts() -> Outcome {
    Ok("this libc has no mallinfo2".to_owned())
}
