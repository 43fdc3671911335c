//! Large pieces, each used: what matters is how a malloc comes by pages and how soon it gives them up.

use super::did::Did;
use super::heap::{Piece, Random, give, take, together};

/// Keeps sixteen pieces of 1 to 8 MiB, of which a random one is replaced again and again.
pub fn churn(times: u64) -> Did {
    const LIVE: usize = 16;
    let wall = together(1, |_| {
        let mut random = Random::new(3);
        let mut pieces = [Piece::NONE; LIVE];
        for _ in 0..times {
            let size = random.size(1 << 20, 3);
            let slot = &mut pieces[random.below(LIVE)];
            // SAFETY: taken before, or none; the new piece has the size that is touched.
            unsafe {
                give(*slot);
                *slot = take(size);
                slot.touch(size);
            }
        }
        // SAFETY: taken above, or none.
        pieces.into_iter().for_each(|piece| unsafe { give(piece) });
    });
    Did::alone(times, wall)
}
