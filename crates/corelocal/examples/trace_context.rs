//! Spans of two processes that belong together: a client sends its requests' `traceparent`, and the server's spans have it.
//!
//! ```sh
//! cargo build -p corelocal --features std --example trace_context
//! target/debug/examples/trace_context server server.trace    # prints its address
//! target/debug/examples/trace_context client client.trace 127.0.0.1:PORT 1000
//! ```

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use corelocal::trace::{self, Options, TraceParent};
use corelocal::{event, span};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["server", file] => serve(file),
        ["client", file, address, requests] => request(file, address, requests.parse()?),
        _ => Err("arguments: server FILE, or client FILE ADDRESS REQUESTS".into()),
    }
}

fn serve(file: &str) -> Result<()> {
    trace::start(Options::to_disk(file))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    for (number, line) in BufReader::new(stream.try_clone()?).lines().enumerate() {
        let incoming: TraceParent = line?.parse()?;
        let _span = span!(server::request, traceparent = incoming, number = number as u32);
        event!(server::parsed, bytes = 55_u16);
        stream.write_all(b"ok\n")?;
    }
    Ok(())
}

fn request(file: &str, address: &str, requests: u32) -> Result<()> {
    trace::start(Options::to_disk(file))?;
    let mut stream = TcpStream::connect(address)?;
    let mut answers = BufReader::new(stream.try_clone()?).lines();
    for number in 0..requests {
        let root = TraceParent::new();
        let span = span!(client::request, traceparent = root, number = number);
        writeln!(stream, "{}", root.child(span.id()))?;
        answers.next().ok_or("the server has gone")??;
    }
    Ok(())
}
