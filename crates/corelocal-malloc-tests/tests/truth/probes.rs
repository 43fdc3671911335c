//! The probes `otel_memory:alloc` and `otel_memory:free`: what their notes say, and a tracer that attaches to a process which
//! was not started for it.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::run::{TRY, only_ours};
use crate::skip;
use crate::tracer::{Probe, Traced, is_refused, probes};

/// The program, which follows orders.
struct Program {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Program {
    fn order(&mut self, order: &str) -> u64 {
        writeln!(self.orders, "{order}").expect("it reads");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        answer.trim().parse().unwrap_or_else(|_| panic!("{order}: {answer}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("a child of ours");
    }
}

fn named<'a>(probes: &'a [Probe], name: &str) -> &'a Probe {
    let mut named = probes.iter().filter(|it| it.provider == "otel_memory" && it.name == name);
    let probe = named.next().unwrap_or_else(|| panic!("no {name} in {probes:?}"));
    assert!(named.next().is_none(), "two of {name}");
    probe
}

#[test]
fn a_tracer_attaches_and_leaves() {
    const TEST: &str = "a_tracer_attaches_and_leaves";
    if !cfg!(target_arch = "x86_64") {
        return skip(TEST, "it reads x86-64's registers");
    }
    let Some(ours) = only_ours(TEST) else { return };
    let probes = probes(ours.library.as_deref().expect("a file"));
    let (alloc, free) = (named(&probes, "alloc"), named(&probes, "free"));
    assert_eq!(alloc.arguments, "8@%rdi 8@%rsi 8@%rdx");
    assert_eq!(free.arguments, "8@%rdi");

    let mut command = ours.command(TRY);
    let child = command.arg("traced").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("the program starts");
    let orders = child.stdin.take().expect("a pipe");
    let answers = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut program = Program { child, orders, answers };
    let process = program.child.id();
    // Without the semaphore the process goes on as before: nothing is sampled.
    let mut unseen = match Traced::new(alloc, process, false) {
        Ok(traced) => traced,
        Err(why) if is_refused(&why) => return skip(TEST, &format!("no uprobes here: {why}")),
        Err(why) => panic!("{why}"),
    };
    let held = program.order("hold") as f64;
    assert_eq!(program.order("free"), 0);
    let before = program.order("pairs");
    assert_eq!(unseen.calls().len(), 0);
    drop(unseen);

    let mut allocated = Traced::new(alloc, process, true).expect("as before");
    let mut freed = Traced::new(free, process, true).expect("as before");
    assert_eq!(program.order("hold") as f64, held);
    let calls = allocated.calls();
    // One in 512 KiB of 200 MB: 380 or so, of which 20 are a standard deviation.
    let weight: f64 = calls.iter().map(|call| call[2] as f64).sum();
    assert!((0.7..1.3).contains(&(weight / (held * 1000.0))), "{weight} of {}", calls.len());
    let rate = f64::from(512 << 10);
    let weight_of = |size: f64| size / -(-size / rate).exp_m1();
    for [_, size, weight] in &calls {
        assert!((*weight as f64 / weight_of(*size as f64) - 1.0).abs() < 1e-5, "{size}: {weight}");
    }
    let thousands = calls.iter().filter(|call| call[1] == 1000).count();
    assert!(thousands >= calls.len() - 2, "{thousands} of {}", calls.len());
    let during = program.order("pairs");
    // All that was sampled and freed until now: those of the pairs.
    let pairs: Vec<u64> = freed.calls().iter().map(|call| call[0]).collect();
    let of_pairs: Vec<u64> = allocated.calls().iter().map(|call| call[0]).collect();
    assert!(pairs.len() > 300 && pairs.len() <= of_pairs.len(), "{} pairs", pairs.len());
    assert_eq!(program.order("free"), 0);
    let gone: HashSet<u64> = freed.calls().iter().map(|call| call[0]).collect();
    assert!(calls.iter().filter(|call| call[1] == 1000).all(|call| gone.contains(&call[0])));

    // No tracer is left: it samples nothing once it has seen that.
    drop((allocated, freed));
    let _ = program.order("pairs");
    let mut unseen = Traced::new(alloc, process, false).expect("as before");
    program.order("hold");
    assert_eq!(unseen.calls().len(), 0, "it goes on");
    let after = program.order("pairs");
    let ns = |picoseconds: u64| picoseconds as f64 / 1e3;
    println!(
        "ns a pair: {:.2} before, {:.2} traced, {:.2} after",
        ns(before),
        ns(during),
        ns(after)
    );
}
