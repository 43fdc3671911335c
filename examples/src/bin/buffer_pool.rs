//! A pool of buffers: each core has a stock of its own, so taking and giving back shares no cache line.
//!
//! A buffer that is dropped on another core joins the stock of that one. `trim` gives back the stocks of cores that are idle.

use std::io::{self, Write as _};
use std::thread;

use corelocal::percpu::Pool;

/// Up to 64 buffers for each core.
static BUFFERS: Pool<Vec<u8>> = Pool::new(|| Vec::with_capacity(16 * 1024));

fn main() -> io::Result<()> {
    let mut lines = 0;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|worker| scope.spawn(move || answer(worker))).collect();
        for worker in workers {
            lines += worker.join().expect("a worker does not panic");
        }
    });
    let stock = BUFFERS.len();
    println!("{lines} lines, by {stock} buffers that wait for the next request");
    match BUFFERS.clear() {
        Ok(freed) => println!("{freed} freed"),
        Err(busy) => println!("some are in use: {busy}"),
    }
    Ok(())
}

/// Formats answers into a buffer of the pool. It goes back when it is dropped.
fn answer(worker: u32) -> usize {
    let mut lines = 0;
    for request in 0..10_000 {
        let mut buffer = BUFFERS.lend();
        buffer.clear();
        writeln!(buffer, "answer {request} of worker {worker}").expect("a vector takes all");
        lines += buffer.iter().filter(|&&byte| byte == b'\n').count();
    }
    lines
}
