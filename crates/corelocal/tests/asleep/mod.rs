//! Whether threads sleep, as the kernel tells it.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than any machine takes to run a thread as far as it sleeps.
const LONG: Duration = Duration::from_secs(60);

/// Waits until the thread sleeps; where that cannot be seen, for a while.
pub fn until_asleep(thread: i32) {
    let began = Instant::now();
    loop {
        match is_asleep(thread) {
            Some(true) => return,
            Some(false) => thread::yield_now(),
            None => return thread::sleep(Duration::from_millis(50)),
        }
        assert!(began.elapsed() < LONG, "thread {thread} does not sleep");
    }
}

/// Whether the thread of this number, of any process, sleeps; `None` where that cannot be seen.
fn is_asleep(thread: i32) -> Option<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    // After the name, which may hold anything.
    Some(stat.rsplit_once(") ")?.1.starts_with('S'))
}
