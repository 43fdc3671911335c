//! The tables of the report, in the order they run.
//!
//! To add one: write it in a file of its own, name it here. Nothing else changes.
//!
//! Invariant: ids are unique, and never change once released.

pub mod barriers;
mod baseline;
pub mod c_api;
mod checked;
pub mod clock;
pub mod condvars;
pub mod counter;
pub mod cpu_number;
pub mod futex;
pub mod histogram;
pub mod locks;
mod lockstep;
pub mod malloc;
pub mod memory;
mod object;
pub mod pool;
pub mod queue;
pub mod rcu;
mod recorder;
pub mod remote;
pub mod rwlocks;
pub mod sched;
pub mod trace;

use std::fmt;

use crate::contest::Table;

/// Returns every table.
pub fn all() -> &'static [&'static dyn Table] {
    &[
        &counter::Counter,
        &counter::CounterEight,
        &c_api::CApi,
        &cpu_number::CpuNumber,
        &histogram::Histogram,
        &pool::Pool,
        &queue::Queue,
        &remote::Remote,
        &futex::Futex,
        &locks::Locks,
        &rwlocks::RwLocks::READ,
        &rwlocks::RwLocks::WRITE,
        &rwlocks::RwLocks::MIXED,
        &condvars::Condvars::ROUND_TRIP,
        &condvars::Condvars::ALL,
        &barriers::Barriers,
        &rcu::Read,
        &rcu::Write,
        &rcu::Wait,
        &rcu::Map,
        &clock::Clock,
        &clock::start::ClockStart,
        &clock::convert::ClockConvert,
        &clock::pages::ClockPage,
        &clock::pvclock::Pvclock,
        &trace::Trace,
        &trace::TraceThreads,
        &trace::coarse::TraceCoarse,
        &sched::Messaging::PROCESSES,
        &sched::Messaging::THREADS,
        &sched::ids::Ids,
        &memory::Memory,
        &malloc::Suite,
        &malloc::retention::Retention,
        &malloc::start::Start,
        &malloc::latency::Latency,
        &malloc::modes::Modes,
    ]
}

/// Returns the table called `name`.
///
/// # Errors
///
/// When there is none: says which names come nearest.
pub fn find(name: &str) -> Result<&'static dyn Table, UnknownTable> {
    let known = || all().iter().map(|table| table.id());
    let found = all().iter().find(|table| table.id() == name).copied();
    found.ok_or_else(|| UnknownTable { name: name.to_owned(), near: nearest(name, known()) })
}

/// A name that no table has.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownTable {
    name: String,
    near: Vec<String>,
}

impl fmt::Display for UnknownTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no table called `{}`", self.name)?;
        if !self.near.is_empty() {
            write!(f, "; did you mean `{}`?", self.near.join("` or `"))?;
        }
        write!(f, "\n`corelocal bench --list` shows all of them")
    }
}

impl std::error::Error for UnknownTable {}

/// Returns those of `known` that a reader may have meant by `name`, the most similar first, three at most.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let name = name.to_lowercase();
    let similarity = |known: &str| {
        let begins = !name.is_empty() && known.starts_with(&name);
        if begins { 1.0 } else { strsim::jaro_winkler(&name, known) }
    };
    let mut ranked: Vec<(f64, &str)> = known.map(|known| (similarity(known), known)).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    let similar = ranked.into_iter().filter(|&(similarity, _)| similarity > 0.7);
    similar.take(3).map(|(_, known)| known.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const KNOWN: [&str; 5] = ["cpu_number", "counter", "futex", "clock", "sched"];

    fn near(name: &str) -> Vec<String> {
        nearest(name, KNOWN.into_iter())
    }

    #[test]
    fn nearest_names() {
        assert_eq!(near("clok")[0], "clock");
        assert_eq!(near("FUTEXES")[0], "futex");
        assert_eq!(near("cpu")[0], "cpu_number");
        assert_eq!(near("conter")[0], "counter");
        assert!(near("zzz").is_empty());
        assert!(near("").is_empty());
    }

    #[test]
    fn a_wrong_name_says_what_to_do() {
        let error = find("clok").err().expect("no such table").to_string();
        assert!(error.contains("`clok`") && error.contains("did you mean `clock`"), "{error}");
        assert!(error.contains("--list"), "{error}");
        assert_eq!(find("clock").map(|table| table.id()), Ok("clock"));
    }

    #[test]
    fn ids_and_children_are_unique() {
        let ids: BTreeSet<_> = all().iter().map(|table| table.id()).collect();
        assert_eq!(ids.len(), all().len());
        let children: Vec<_> =
            all().iter().flat_map(|table| table.children()).map(|child| child.0).collect();
        assert_eq!(children.iter().collect::<BTreeSet<_>>().len(), children.len());
    }
}
