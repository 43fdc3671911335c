//! The example, as it is: a program of its own, scraped over TCP.

mod text;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn example() -> PathBuf {
    let test = std::env::current_exe().expect("a path of this test");
    test.ancestors().nth(2).expect("a target directory").join("examples").join("prometheus")
}

/// The example, until the test ends in whatever way.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn request(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("the example listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers in UTF-8 and closes");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

#[test]
fn the_example_is_scraped() {
    if !example().exists() {
        println!(
            "skipped: scrape the_example_is_scraped: needs the example `prometheus` built beside it \
             (`cargo test` without a choice of targets does that)"
        );
        return;
    }
    let mut command = Command::new(example());
    command.arg("127.0.0.1:0").stdout(Stdio::piped());
    let mut program = Program(command.spawn().expect("the example starts"));
    let mut line = String::new();
    let stdout = program.0.stdout.take().expect("it is a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("it says where it listens");
    let address =
        line.trim_end().strip_prefix("http://").and_then(|url| url.strip_suffix("/metrics"));
    let address = address.expect("an address");

    let scrape = || {
        let (head, body) = request(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        text::parse(&body)
    };
    let one = [("worker", "one")];
    let jobs = |seen: &text::Exposition| seen.value("jobs", &one).unwrap_or(0.0);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut seen = scrape();
    let before = jobs(&seen);
    while jobs(&seen) < before + 3.0 || seen.value("job_seconds_count", &one).is_none() {
        assert!(Instant::now() < deadline, "nothing is counted: {seen:?}");
        let last = jobs(&seen);
        seen = scrape();
        assert!(jobs(&seen) >= last);
    }
    assert_eq!((seen.kind("jobs"), seen.kind("job_seconds")), (Some("counter"), Some("summary")));
    assert_eq!(seen.help("jobs"), Some("Jobs done since the start"));
    assert_eq!(seen.help("job_seconds"), Some("How long a job took (seconds)"));
    let in_flight = seen.value("jobs_in_flight", &[]).expect("a gauge");
    assert!((-2.0..=2.0).contains(&in_flight), "{in_flight}");
    let median = [("quantile", "0.5"), ("worker", "one")];
    assert!(seen.value("job_seconds", &median).is_some_and(|seconds| seconds >= 0.001));

    let (head, body) = request(address, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head}");
    assert!(request(address, "GET / HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404 "));
    assert!(request(address, "POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405 "));
}
