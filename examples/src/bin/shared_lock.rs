//! A lock and a value that processes share by a name. If a process dies with the lock, the next owner learns of it, and mends
//! the value.
//!
//! ```sh
//! cargo run -p corelocal-examples --bin shared_lock    # starts two more processes, one of which dies with the lock
//! ```

use std::process::Command;

use corelocal::sync::shared::{SharedBox, SharedRobustMutex};
use corelocal::sync::{RobustError, RobustMutexGuard, Shared};

/// How often each process adds.
const TIMES: u64 = 100_000;

/// What is shared: a number, and its copy from before the change that is being made.
type Pair = SharedBox<SharedRobustMutex<[u64; 2]>>;
type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(name), Some(work)) if work == "die" => die(&open(&name)?),
        (Some(name), _) => add(&open(&name)?),
        (None, _) => begin(),
    }
}

/// Makes the value, and starts processes that use it.
fn begin() -> Result<(), Failure> {
    let name = format!("corelocal-example-{}", std::process::id());
    // SAFETY: a box is neither moved nor unmapped while it is in use.
    let pair = unsafe { SharedRobustMutex::with_scope([0, 0]) };
    // SAFETY: other programs do not use this name.
    let pair: Pair = unsafe { SharedBox::create(&name, pair) }?;
    let worked = start(&name, "add").and_then(|mut adds| {
        println!("a process that dies with the lock: {}", start(&name, "die")?.wait()?);
        add(&pair)?;
        Ok(adds.wait()?)
    });
    // The memory stays until the last process ends.
    Pair::unlink(&name)?;
    println!("a process that adds: {}", worked?);
    println!("{} additions of two processes", lock(&pair)?[0]);
    Ok(())
}

fn start(name: &str, work: &str) -> Result<std::process::Child, Failure> {
    Ok(Command::new(std::env::current_exe()?).args([name, work]).spawn()?)
}

fn open(name: &str) -> Result<Pair, Failure> {
    // SAFETY: the name is that of `begin`.
    Ok(unsafe { SharedBox::open(name) }?)
}

fn add(pair: &Pair) -> Result<(), Failure> {
    for _ in 0..TIMES {
        let mut pair = lock(pair)?;
        pair[0] += 1;
        pair[1] = pair[0];
    }
    Ok(())
}

/// Ends in the middle of a change.
fn die(pair: &Pair) -> Result<(), Failure> {
    let mut pair = lock(pair)?;
    pair[0] += 1_000_000;
    std::process::abort()
}

/// Locks, and takes back a change that the last owner did not complete.
fn lock(pair: &Pair) -> Result<RobustMutexGuard<'_, [u64; 2], Shared>, Failure> {
    match pair.lock() {
        Ok(pair) => Ok(pair),
        Err(RobustError::OwnerDied(mut pair)) => {
            pair[0] = pair[1];
            Ok(pair.make_consistent())
        }
        Err(error) => Err(error.to_string().into()),
    }
}
