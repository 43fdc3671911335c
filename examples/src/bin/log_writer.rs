//! A log with one writer: threads push lines to a queue whose slots belong to cores, and one thread writes them to a file.
//!
//! Pushing takes no lock and does not wait for the file. The queue keeps the order of each thread that stays on a core; lines
//! carry their time, for readers that need more.

use std::fs::File;
use std::io::{self, BufWriter};
use std::thread;
use std::time::Duration;

use corelocal::clock::Instant;
use corelocal::percpu::{PushError, Queue};

/// What the writer gets.
enum Entry {
    Line { at: Duration, text: String },
    End,
}

fn main() -> io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "service.log".to_owned());
    let mut file = BufWriter::new(File::create(&path)?);
    let queue = &Queue::new();
    let began = Instant::now();
    let written = thread::scope(|scope| {
        let writer = scope.spawn(move || write(queue, &mut file));
        thread::scope(|scope| {
            for worker in 0..4 {
                scope.spawn(move || {
                    for number in 0..1000 {
                        let text = format!("worker {worker} did job {number}");
                        log(queue, Entry::Line { at: began.elapsed(), text });
                    }
                });
            }
        });
        log(queue, Entry::End);
        writer.join().expect("the writer does not panic")
    })?;
    println!("{written} lines in {path}");
    Ok(())
}

/// Without memory the queue gives the entry back. This log waits for the writer then; another one may drop it, and count.
fn log(queue: &Queue<Entry>, mut entry: Entry) {
    while let Err(PushError(back)) = queue.push(entry) {
        entry = back;
        thread::yield_now();
    }
}

/// Writes entries until the end. Other threads have ended when it was pushed, but their lines may be in other slots.
fn write(queue: &Queue<Entry>, file: &mut impl io::Write) -> io::Result<u64> {
    let mut written = 0;
    let mut is_over = false;
    while !is_over || !queue.is_empty() {
        match queue.pop() {
            Entry::Line { at, text } => {
                writeln!(file, "{:12.6} {text}", at.as_secs_f64())?;
                written += 1;
            }
            Entry::End => is_over = true,
        }
    }
    file.flush()?;
    Ok(written)
}
