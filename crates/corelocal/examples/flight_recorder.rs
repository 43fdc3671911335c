//! A server with a flight recorder: started with one line, and dumped when a request was slow.
//!
//! ```sh
//! cargo run -p corelocal --features std --example flight_recorder
//! corelocal trace view slow.1.trace
//! corelocal trace export slow.1.trace    # opens in ui.perfetto.dev
//! ```

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use corelocal::trace::{self, Options};
use corelocal::{event, span};

const SLOW: Duration = Duration::from_millis(20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "slow.%n.trace".into());
    trace::start(Options::flight_recorder().dump_to(&file))?;
    println!("{}", trace::smoke_test()?);

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || serve(&listener));
    for number in 0..300_u32 {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&number.to_le_bytes())?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer)?;
    }
    server.join().expect("the server")?;
    // The dump is made in the background.
    thread::sleep(Duration::from_millis(200));
    Ok(())
}

/// Serves 300 requests; one of them is slow.
fn serve(listener: &TcpListener) -> io::Result<()> {
    for stream in listener.incoming().take(300) {
        let mut stream = stream?;
        let _request = trace::dump_if_slow(span!(server::request), SLOW);
        let mut number = [0; 4];
        stream.read_exact(&mut number)?;
        let number = u32::from_le_bytes(number);
        event!(server::parsed, number = number, path = "/index.html");
        if number == 250 {
            let _wait = span!(server::waits, on = "disk");
            thread::sleep(2 * SLOW);
        }
        let _answer = span!(server::answers, bytes = 2_u32);
        stream.write_all(b"ok")?;
    }
    Ok(())
}
