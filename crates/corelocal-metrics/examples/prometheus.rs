//! Serves what a program counts at `/metrics`, with nothing but the standard library.
//!
//! ```sh
//! cargo run --release -p corelocal-metrics --example prometheus -- 127.0.0.1:9000
//! curl http://127.0.0.1:9000/metrics
//! ```

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use corelocal_metrics::Handle;
use metrics::{Unit, counter, describe_counter, describe_histogram, gauge, histogram};

fn main() -> Result<(), Box<dyn Error>> {
    let metrics = corelocal_metrics::install()?;
    describe_counter!("jobs", "Jobs done since the start");
    describe_histogram!("job_seconds", Unit::Seconds, "How long a job took");

    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:9000"))?;
    writeln!(io::stdout(), "http://{}/metrics", listener.local_addr()?)?;

    for name in ["one", "two"] {
        thread::spawn(move || work(name));
    }
    // One scrape after another. An error in one does not affect the next.
    for stream in listener.incoming() {
        if let Err(error) = stream.and_then(|stream| serve(stream, &metrics)) {
            writeln!(io::stderr(), "a scrape failed: {error}")?;
        }
    }
    Ok(())
}

/// Does the work that the program is there for.
fn work(worker: &'static str) {
    loop {
        let start = Instant::now();
        gauge!("jobs_in_flight").increment(1);
        thread::sleep(Duration::from_millis(1));
        gauge!("jobs_in_flight").decrement(1);
        counter!("jobs", "worker" => worker).increment(1);
        histogram!("job_seconds", "worker" => worker).record(start.elapsed());
    }
}

/// Answers one request.
fn serve(mut stream: TcpStream, metrics: &Handle) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let head = head(&mut stream)?;
    let mut words = head.split(' ');
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET" | "HEAD"), Some("/metrics")) => ("200 OK", metrics.render()),
        (Some("GET" | "HEAD"), _) => ("404 Not Found", "see /metrics\n".into()),
        _ => ("405 Method Not Allowed", "GET /metrics\n".into()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        Handle::CONTENT_TYPE,
        body.len()
    )?;
    if !head.starts_with("HEAD ") {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

/// The request up to the empty line, of at most 8 KiB.
fn head(stream: &mut TcpStream) -> io::Result<String> {
    let (mut head, mut more) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut more)?;
        if read == 0 || head.len() > 8192 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&more[..read]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
