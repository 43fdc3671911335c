//! Each example runs, and does what it says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a program to its end, in a folder. Returns what it printed.
fn output(program: &str, folder: &Path, env: &[(&str, &str)]) -> String {
    let mut command = Command::new(program);
    command.current_dir(folder).envs(env.iter().copied());
    let output = command.output().expect("the example starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Ends it with the test.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a service that listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}

#[test]
fn service() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_service"));
    command.arg("127.0.0.1:0").current_dir(&folder).stdout(Stdio::piped());
    let mut service = Service(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(service.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().trim_start_matches("http://").trim_end_matches('/');
    assert!(get(address, "/").contains("page 1"));
    assert!(get(address, "/slow").contains("page 2"));
    let metrics = get(address, "/metrics");
    assert!(metrics.contains("requests{status=\"200\"} 2"), "{metrics}");
    assert!(metrics.contains("request_seconds_count 2"), "{metrics}");
    // The dump is made in the background.
    let dump = folder.path().join("slow.1.trace");
    let began = Instant::now();
    while !dump.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "no dump of the slow request");
        std::thread::sleep(Duration::from_millis(10));
    }
    let dump = std::fs::read(dump).unwrap();
    for name in ["http::request", "db::query", "page::counted"] {
        assert!(dump.windows(name.len()).any(|part| part == name.as_bytes()), "{name}");
    }
}

#[test]
fn buffer_pool() {
    let folder = tempfile::tempdir().unwrap();
    let text = output(env!("CARGO_BIN_EXE_buffer_pool"), folder.path(), &[]);
    assert!(text.contains("40000 lines") && text.contains("freed"), "{text}");
}

#[test]
fn log_writer() {
    let folder = tempfile::tempdir().unwrap();
    let text = output(env!("CARGO_BIN_EXE_log_writer"), folder.path(), &[]);
    assert!(text.contains("4000 lines in service.log"), "{text}");
    let log = std::fs::read_to_string(folder.path().join("service.log")).unwrap();
    assert_eq!(log.lines().count(), 4000);
    for worker in 0..4 {
        assert_eq!(log.matches(&format!("worker {worker} did job")).count(), 1000);
    }
}

#[test]
fn shared_lock() {
    let folder = tempfile::tempdir().unwrap();
    let text = output(env!("CARGO_BIN_EXE_shared_lock"), folder.path(), &[]);
    assert!(text.contains("dies with the lock: signal: 6"), "{text}");
    assert!(text.contains("200000 additions of two processes"), "{text}");
}

#[test]
fn heap_profile() {
    let folder = tempfile::tempdir().unwrap();
    let text = output(env!("CARGO_BIN_EXE_heap_profile"), folder.path(), &[]);
    assert!(text.contains("no profile") && text.contains("20000 entries, 5000 names"), "{text}");
    let wanted = [("CORELOCAL_MALLOC", "profile:here,profile-rate:16K")];
    let text = output(env!("CARGO_BIN_EXE_heap_profile"), folder.path(), &wanted);
    if text.contains("no profile") {
        return eprintln!("skipped: heap_profile: the malloc has no critical sections here");
    }
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
    assert!(files.iter().any(|file| file.file_name().to_string_lossy().ends_with(".heap")));
}
