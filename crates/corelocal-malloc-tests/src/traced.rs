//! A program that does as it is told, a line at a time, for a process that traces its malloc meanwhile.
//!
//! ```text
//!   hold     allocates HELD objects of SIZE bytes
//!   free     frees them
//!   pairs    allocates and frees objects of 64 bytes, one at a time, and says the picoseconds of a pair
//! ```

use std::time::Instant;

use crate::Outcome;

const HELD: usize = 200_000;
const SIZE: usize = 1000;
const PAIRS: u32 = 5_000_000;

pub(crate) fn traced() -> Outcome {
    let mut held = Vec::with_capacity(HELD);
    let mut answered = 0;
    for line in std::io::stdin().lines() {
        match line.map_err(|why| why.to_string())?.as_str() {
            "hold" => {
                held.extend((0..HELD).map(|_| Vec::<u8>::with_capacity(SIZE)));
                println!("{HELD}");
            }
            "free" => {
                held.clear();
                println!("0");
            }
            "pairs" => {
                let began = Instant::now();
                (0..PAIRS).for_each(|_| drop(std::hint::black_box(Vec::<u8>::with_capacity(64))));
                println!("{}", began.elapsed().as_nanos() * 1000 / u128::from(PAIRS));
            }
            other => return Err(format!("{other} is no order")),
        }
        answered += 1;
    }
    Ok(format!("followed {answered} orders"))
}
