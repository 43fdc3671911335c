//! A server with a flight recorder: started with one line, and dumped when a request was slow.
//!
//! ```sh
//! cargo run -p corelocal --features std --example flight_recorder
//! corelocal trace view slow.trace
//! ```

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use corelocal::event;
use corelocal::trace::{self, Options};

const SLOW: Duration = Duration::from_millis(20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    trace::start(Options::flight_recorder())?;
    let status = trace::smoke_test()?;
    println!("recording, {} events lost", status.lost);
    let file = std::env::args_os().nth(1).map_or_else(|| "slow.trace".into(), PathBuf::from);
    thread::scope(|scope| {
        for worker in 0..4_u32 {
            let file = &file;
            scope.spawn(move || (0..1000).try_for_each(|number| serve(worker, number, file)));
        }
    });
    Ok(())
}

/// Serves a request; one of them is slow.
fn serve(worker: u32, number: u32, file: &PathBuf) -> std::io::Result<()> {
    let began = Instant::now();
    event!(server::request, worker = worker, number = number, path = "/index.html");
    if (worker, number) == (2, 700) {
        event!(server::waits, on = "disk");
        thread::sleep(2 * SLOW);
    }
    let took = began.elapsed();
    event!(server::response, worker = worker, number = number, micros = took.as_micros() as u64);
    if took > SLOW && worker == 2 {
        let bytes = trace::dump(file)?;
        println!("request {number} took {took:?}: {} has {bytes} bytes", file.display());
    }
    Ok(())
}
