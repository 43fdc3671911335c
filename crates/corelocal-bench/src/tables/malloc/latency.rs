//! How long requests to a threaded server take, under each malloc: in the mean, and for the slowest ones.
//!
//! The server has a thread for each connection. A request makes it build what servers build: a tree of
//! fields of different sizes, an answer that grows as it is written, and an entry of a cache that all
//! threads share, for which another entry goes that another thread made. Clients are in the same process;
//! they take no memory while they measure.
//!
//! Invariants:
//! 1. Every answer is checked: it holds the sum of what the request asked for.
//! 2. A client has one request under way at a time, and times are from its first byte sent to the last
//!    one received.
//! 3. The mean and the slowest requests of a round are of the same process: what one run told is kept for all lines.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use corelocal_support::mallocs::Malloc;
use corelocal_support::measure::engine::{Body, Plan, Sample};
use corelocal_support::process::child;
use corelocal_support::schema::{self, Better};
use serde_json::{Value, json};

use super::heap::Random;
use super::rivals;
use super::work::{under, whose};
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct Latency;

/// The figures of a run's requests: each with its label and the name that the child gives it.
const TOLD: [(&str, &str); 3] = [("mean", "mean"), ("p99", "p99"), ("p99.9", "p999")];

const CHILD: &str = "malloc-serve";
const LIMIT: Duration = Duration::from_secs(60);
const ROUNDS: usize = 9;

/// Connections, each with a client and a thread of the server.
const CLIENTS: usize = 4;
/// Requests of each client in a full round; a tenth of them comes before and does not count.
const REQUESTS: usize = 4000;
/// Entries of the cache.
const CACHE: usize = 4096;
/// Fields of a request's tree.
const FIELDS: usize = 120;

impl Table for Latency {
    fn id(&self) -> &'static str {
        "malloc_latency"
    }

    fn title(&self) -> &'static str {
        "Mallocs: requests to a threaded server"
    }

    fn in_report(&self, _: bool) -> bool {
        false
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let about = format!(
            "Time of a request over loopback, with the malloc preloaded: the mean, p99 and p99.9. {CLIENTS} \
             connections; a request allocates and frees some {} objects and replaces one of {CACHE} entries of \
             a cache that all threads share.",
            FIELDS * 2
        );
        let contest = Contest::new(self, about)
            .source(
                "Mathieu Desnoyers, rseq: Introduce restartable sequences system call, 2018",
                "https://git.kernel.org/torvalds/c/d7822b1e24f2df5df98c76f0e94a5416349ff759",
                "a production service, where jemalloc with data by cpu made the mean 1 to 2 % shorter and \
                 p99 2 to 3 %",
            )
            .unit("us", Better::Lower)
            .baseline(rivals::BASELINE)
            .over_names("requests", &TOLD.map(|(name, _)| name));
        Ok(rivals::enter(contest, Server::new).measure(cx))
    }

    fn children(&self) -> &'static [(&'static str, child::Body)] {
        &[(CHILD, child)]
    }
}

/// A server under a malloc.
struct Server {
    malloc: Malloc,
    requests: usize,
    /// The index in [`TOLD`] of the next figure.
    line: usize,
    /// The figures of all runs so far (3), and below it the number that this line has used.
    runs: Vec<[f64; TOLD.len()]>,
    had: usize,
}

impl Server {
    fn new(malloc: Malloc) -> Self {
        Server { malloc, requests: REQUESTS, line: 0, runs: Vec::new(), had: 0 }
    }

    fn run(&self) -> anyhow::Result<[f64; TOLD.len()]> {
        let value = under(&self.malloc, CHILD, &[self.requests.to_string()], LIMIT)?;
        let mut told = [0.0; TOLD.len()];
        for (told, (_, name)) in told.iter_mut().zip(TOLD) {
            *told = value[name].as_f64().with_context(|| format!("no {name}"))?;
        }
        Ok(told)
    }
}

impl Body for Server {
    const SINGLE_THREAD: bool = false;

    fn rounds(plan: &Plan) -> usize {
        plan.long_rounds.min(ROUNDS)
    }

    fn prepare(&mut self, x: Option<f64>, plan: &Plan) -> anyhow::Result<()> {
        (self.line, self.had) = (x.unwrap_or(0.0) as usize, 0);
        let scale = plan.slice.as_secs_f64() / Plan::FULL.slice.as_secs_f64();
        self.requests = (REQUESTS as f64 * scale) as usize;
        Ok(())
    }

    fn round(&mut self) -> anyhow::Result<Sample> {
        if self.had == self.runs.len() {
            let told = self.run()?;
            self.runs.push(told);
        }
        let value = self.runs[self.had][self.line];
        self.had += 1;
        Ok(Sample { value, extra: Vec::new() })
    }
}

/// Measures in the child: microseconds of requests.
fn child(args: &[String]) -> anyhow::Result<Value> {
    let [requests] = args else { anyhow::bail!("expected a number of requests") };
    let mut nanos = serve(requests.parse()?)?;
    nanos.sort_unstable();
    let at = |share: f64| nanos[((nanos.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    let mean = nanos.iter().sum::<u64>() as f64 / nanos.len() as f64 / 1e3;
    Ok(json!({ "malloc": whose(), "mean": mean, "p99": at(0.99), "p999": at(0.999) }))
}

/// Returns the nanoseconds of each request that counts.
fn serve(requests: usize) -> anyhow::Result<Vec<u64>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no loopback device")?;
    let address = listener.local_addr()?;
    let cache: Vec<Mutex<Option<Vec<u8>>>> = (0..CACHE).map(|_| Mutex::default()).collect();
    let warm_up = requests / 10;
    thread::scope(|scope| {
        let cache = &cache;
        let mut clients = Vec::new();
        for nth in 0..CLIENTS {
            let client = TcpStream::connect(address).context("the server cannot be reached")?;
            let (server, _) = listener.accept().context("the server cannot accept")?;
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            scope.spawn(move || answer_all(server, cache));
            clients.push(scope.spawn(move || ask_all(client, nth as u64, requests + warm_up)));
        }
        let mut all = Vec::with_capacity(CLIENTS * requests);
        for client in clients {
            let nanos = client.join().map_err(|_| anyhow!("a client panicked"))??;
            all.extend_from_slice(&nanos[warm_up..]);
        }
        ensure!(!all.is_empty(), "no request was sent");
        Ok(all)
    })
}

/// Returns a client: so many requests, one after the other.
fn ask_all(mut connection: TcpStream, seed: u64, requests: usize) -> anyhow::Result<Vec<u64>> {
    let mut nanos = Vec::with_capacity(requests);
    let mut random = Random::new(seed);
    let (mut request, mut answer) = ([0; 16], [0; 4096]);
    for _ in 0..requests {
        let (seed, slot) = (random.next(), random.below(CACHE) as u64);
        request[..8].copy_from_slice(&seed.to_le_bytes());
        request[8..].copy_from_slice(&slot.to_le_bytes());
        let begin = Instant::now();
        connection.write_all(&request).context("a request could not be sent")?;
        let mut head = [0; 12];
        connection.read_exact(&mut head).context("the server did not answer")?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        ensure!(length <= answer.len(), "an answer of {length} bytes");
        connection.read_exact(&mut answer[..length]).context("the server sent half an answer")?;
        nanos.push(begin.elapsed().as_nanos() as u64);
        let sum = u64::from_le_bytes([
            head[4], head[5], head[6], head[7], head[8], head[9], head[10], head[11],
        ]);
        let summed = answer[..length].iter().map(|&byte| u64::from(byte)).sum::<u64>();
        ensure!(sum == summed && sum == expected(seed), "a wrong answer: memory was overwritten");
    }
    Ok(nanos)
}

/// Runs a thread of the server, until its client has gone.
fn answer_all(mut connection: TcpStream, cache: &[Mutex<Option<Vec<u8>>>]) {
    let mut request = [0; 16];
    while connection.read_exact(&mut request).is_ok() {
        let word = |at: usize| -> u64 {
            request[at..at + 8].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        };
        let (seed, slot) = (word(0), word(8) as usize % cache.len());
        let fields = tree(seed);
        let mut body = Vec::new();
        for (name, value) in &fields {
            body.extend_from_slice(&value[..value.len().min(16)]);
            debug_assert!(!name.is_empty());
        }
        let sum: u64 = body.iter().map(|&byte| u64::from(byte)).sum();
        // The old entry is dropped, whichever thread made it; outside of the lock.
        let old = cache[slot].lock().ok().and_then(|mut entry| entry.replace(body.clone()));
        drop(old);
        let mut answer = Vec::with_capacity(12 + body.len());
        answer.extend_from_slice(&(body.len() as u32).to_le_bytes());
        answer.extend_from_slice(&sum.to_le_bytes());
        answer.extend_from_slice(&body);
        if connection.write_all(&answer).is_err() {
            return;
        }
    }
}

/// Returns the fields of a request: names and values with memory of their own.
fn tree(seed: u64) -> Vec<(String, Vec<u8>)> {
    let mut random = Random::new(seed);
    let mut fields = Vec::new();
    for nth in 0..FIELDS {
        let name = format!("field {nth}");
        fields.push((name, vec![random.next() as u8; random.size(16, 5)]));
    }
    fields
}

/// Returns the sum that the answer to a request has.
fn expected(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    (0..FIELDS)
        .map(|_| {
            let byte = random.next() as u8;
            random.size(16, 5);
            u64::from(byte) * 16
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_right() {
        match serve(50) {
            Ok(nanos) => assert_eq!(nanos.len(), 50 * CLIENTS),
            // A wrong answer is a fault; no loopback is not.
            Err(why) if format!("{why:#}").contains("loopback") => {
                eprintln!("skipped: answers_are_right: {why:#}");
            }
            Err(why) => panic!("{why:#}"),
        }
    }

    #[test]
    fn a_run_tells_all_lines() {
        let mut server = Server::new(Malloc::of_libc());
        server.runs = vec![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
        let mut values = Vec::new();
        for line in 0..TOLD.len() {
            server.prepare(Some(line as f64), &Plan::QUICK).expect("a plan");
            values.extend([server.round(), server.round()].map(|it| it.expect("a run").value));
        }
        assert_eq!(values, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }

    #[test]
    fn figures_are_in_order() {
        let Ok(value) = child(&["40".to_owned()]) else {
            return eprintln!("skipped: figures_are_in_order: no loopback device");
        };
        let figure = |name: &str| value[name].as_f64().unwrap();
        assert!(figure("p99") <= figure("p999") && figure("mean") <= figure("p999"));
    }
}
