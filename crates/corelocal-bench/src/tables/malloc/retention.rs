//! Memory that a malloc keeps: for threads that are idle, and after all or most was given back.
//!
//! Invariants:
//! 1. Between two looks the process calls no malloc but for what the load says.
//! 2. A look counts what is resident and no file's.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use corelocal_support::mallocs::Malloc;
use corelocal_support::mallocs::resident::Process;
use corelocal_support::measure::noise::Watch;
use corelocal_support::process::child;
use corelocal_support::schema::{self, Better, Point, Row, Stat};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::heap::{Piece, Random, give, take};
use super::rivals;
use super::spike::{self, Heap};
use super::work::{under_with, whose};
use crate::contest::{Context, Table};

/// The table.
pub struct Retention;

const CHILD: &str = "malloc-keep";

/// Far more than a process takes, its pauses included.
const LIMIT: Duration = Duration::from_secs(120);

/// The time that all looks at one malloc take, at most.
const LOOKS_TAKE: Duration = Duration::from_secs(30);
/// The moments that are looked at, in the order of the table: the first two in one process, the others in another; those
/// of [`spike`] follow, each in one of its own.
const LOOKS: [&str; 7] = [
    "1000 idle threads",
    "when they ended",
    "550 MiB out",
    "98 % in",
    "all in",
    "3 s later",
    "3 s at work",
];
const ALL_LOOKS: usize = LOOKS.len() + spike::LOOKS.len();

/// The MiB of a malloc at all moments; none where a load was not run.
type Looks = [Option<f64>; ALL_LOOKS];

/// The size of the loads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Size {
    threads: usize,
    mib: usize,
    pause_ms: u64,
}

const SIZE: Size = Size { threads: 1000, mib: 550, pause_ms: 3000 };

impl Table for Retention {
    fn id(&self) -> &'static str {
        "malloc_memory"
    }

    fn title(&self) -> &'static str {
        "Mallocs: retained memory"
    }

    fn in_report(&self, quick: bool) -> bool {
        !quick
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let watch = Watch::start(false, None);
        let rounds = if cx.plan.long_rounds > 5 && !cx.in_report { 3 } else { 1 };
        let mut rivals: Vec<_> = rivals::all()
            .into_iter()
            .map(|(row, malloc)| (row, malloc, "", Heap::Process))
            .collect();
        // The process of the second load has one thread: ours has none of its own there unless it is asked for.
        if let Some((_, ours, ..)) = rivals.last().cloned() {
            let row = Row::ours("corelocal-thread", "corelocal, background:yes");
            rivals.push((row, ours, "background:yes", Heap::Process));
        }
        let libc = || Ok(Malloc::of_libc());
        let row = Row::ours("corelocal-crate", "corelocal, CoreLocal");
        rivals.push((row, libc(), "", Heap::Inside));
        let row = Row::ours("corelocal-crate-thread", "corelocal, with_background()");
        rivals.push((row, libc(), "", Heap::InsideWithBackground));
        let mut samples: Vec<Result<[Vec<f64>; ALL_LOOKS], String>> = rivals
            .iter()
            .map(|(_, malloc, ..)| malloc.clone().map(|_| Default::default()))
            .collect();
        let bar = cx.progress();
        bar.begin((rounds * rivals.len()) as u64);
        bar.set_message(self.title());
        let mut is_cut_short = false;
        for _ in 0..rounds {
            for ((_, malloc, words, heap), samples) in rivals.iter().zip(&mut samples) {
                if cx.plan.is_over_in(LOOKS_TAKE) {
                    is_cut_short = true;
                    break;
                }
                if let (Ok(malloc), Ok(taken)) = (malloc, &mut *samples) {
                    match looks(malloc, words, *heap, SIZE) {
                        Ok(looks) => {
                            taken.iter_mut().zip(looks).for_each(|(all, mib)| all.extend(mib))
                        }
                        Err(why) => *samples = Err(format!("{why:#}")),
                    }
                }
                bar.advance();
            }
        }
        bar.finish();
        if is_cut_short {
            cx.plan.end = Some(Instant::now());
        }
        let rows = rivals.into_iter().zip(samples).map(|((row, ..), samples)| filled(row, samples));
        Ok(schema::Table {
            id: self.id().to_owned(),
            title: self.title().to_owned(),
            about: "Resident anonymous MiB. Each of 1000 threads allocates and frees 1 MiB in objects of 64 to \
                 1023 bytes, and sleeps; later they end. Another process allocates 550 MiB in such objects, \
                 frees 98 of 100 at random, then the others, sleeps for 3 s, and then continues for 3 s with 1 \
                 MiB of such objects every 10 ms. The last three are looked at after 10 s with few calls: 8 \
                 threads have freed 512 MiB in objects of 32 to 4096 bytes, or 15 of 16 of them, and each goes on \
                 with 20 objects twice a second; one thread has freed two of three blocks of 64 KiB, 512 MiB in \
                 all, and goes on with pairs of one block."
                .to_owned(),
            source: None,
            unit: "MiB".to_owned(),
            better: Better::Lower,
            x_label: Some("moment".to_owned()),
            x_names: LOOKS.iter().chain(&spike::LOOKS).map(|look| (*look).to_owned()).collect(),
            baseline: None,
            tile: None,
            is_sized: false,
            rows: rows.collect(),
            notes: Vec::new(),
            noise: watch.finish(),
        })
    }

    fn children(&self) -> &'static [(&'static str, child::Body)] {
        &[(CHILD, child)]
    }
}

fn filled(mut row: Row, samples: Result<[Vec<f64>; ALL_LOOKS], String>) -> Row {
    match samples {
        Err(why) => row.unavailable = Some(why),
        Ok(samples) => {
            let stats = samples.iter().enumerate().filter_map(|(x, mib)| {
                let stat = Stat::of(mib)?;
                Some(Point {
                    x: Some(x as f64),
                    stat,
                    ratio: None,
                    extra: BTreeMap::new(),
                    disturbed: false,
                })
            });
            row.points = stats.collect();
        }
    }
    row
}

/// Returns the MiB at each of the moments. The loads that mostly wait run side by side.
fn looks(malloc: &Malloc, words: &str, heap: Heap, size: Size) -> anyhow::Result<Looks> {
    let run = |what: &str, size: String| -> anyhow::Result<Vec<f64>> {
        let args = [what.to_owned(), size, serde_json::to_string(&heap)?];
        let env = [("CORELOCAL_MALLOC", words)];
        let value = under_with(malloc, CHILD, &args, &env, LIMIT)?;
        let looks: Vec<f64> = serde_json::from_value(value["kib"].clone())?;
        Ok(looks.into_iter().map(|kib| kib / 1024.0).collect())
    };
    let mut all = Vec::new();
    // The first loads use the malloc of the process.
    if heap == Heap::Process {
        for what in ["idle", "retain"] {
            all.extend(run(what, serde_json::to_string(&size)?)?.into_iter().map(Some));
        }
    }
    all.resize(LOOKS.len(), None);
    let of_spike = serde_json::to_string(&spike::SIZE)?;
    let spikes = thread::scope(|scope| {
        let begun = spike::LOADS.map(|load| {
            let (run, size) = (&run, of_spike.clone());
            scope.spawn(move || run(load, size))
        });
        begun.map(|load| load.join().map_err(|_| anyhow!("a thread panicked"))?)
    });
    for spike in spikes {
        all.extend(spike?.into_iter().map(Some));
    }
    all.try_into().map_err(|_| anyhow!("a process reported another number of samples"))
}

/// Runs in the child.
fn child(args: &[String]) -> anyhow::Result<Value> {
    let [what, size, heap] = args else { anyhow::bail!("expected a load, its size and its heap") };
    let looks = match what.as_str() {
        "idle" => idle(serde_json::from_str(size)?)?,
        "retain" => retain(serde_json::from_str(size)?)?,
        load => vec![spike::run(load, serde_json::from_str(size)?, serde_json::from_str(heap)?)?],
    };
    Ok(json!({ "malloc": whose(), "kib": looks }))
}

fn look() -> anyhow::Result<u64> {
    Process::This
        .anonymous()
        .context("this process cannot read its own memory use; is /proc mounted?")
}

/// Returns the threads that sleep after they have used memory; then they end.
fn idle(size: Size) -> anyhow::Result<Vec<u64>> {
    const MIB: usize = 1 << 20;
    // All have used theirs; all may end.
    let gates = Arc::new([(); 2].map(|()| Barrier::new(size.threads + 1)));
    let threads: Vec<_> = (0..size.threads)
        .map(|nth| {
            let gates = gates.clone();
            // What std's default would reserve is not touched, and not counted.
            thread::Builder::new().spawn(move || {
                let mut random = Random::new(nth as u64);
                // The list is no part of the load: pieces hold the next one's address.
                let (mut taken, mut list) = (0, Piece::NONE);
                while taken < MIB {
                    let size = random.size(64, 4);
                    list = linked(take(size), list);
                    taken += size;
                }
                give_all(list);
                gates[0].wait();
                gates[1].wait();
            })
        })
        .collect::<Result<_, _>>()
        .context("so many threads cannot be started; raise the limit with `ulimit -u`")?;
    gates[0].wait();
    thread::sleep(Duration::from_millis(50));
    let asleep = look()?;
    gates[1].wait();
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a thread panicked"))?;
    }
    Ok(vec![asleep, look()?])
}

/// Takes much memory, which is given back in two parts.
fn retain(size: Size) -> anyhow::Result<Vec<u64>> {
    let mut random = Random::new(9);
    // One of fifty is kept for longer.
    let (mut most, mut few, mut taken) = (Piece::NONE, Piece::NONE, 0);
    while taken < size.mib << 20 {
        let size = random.size(64, 4);
        let piece = take(size);
        if random.below(50) == 0 {
            few = linked(piece, few);
        } else {
            most = linked(piece, most);
        }
        taken += size;
    }
    let out = look()?;
    give_all(most);
    let rest = look()?;
    give_all(few);
    let none = look()?;
    let pause = Duration::from_millis(size.pause_ms);
    thread::sleep(pause);
    let asleep = look()?;
    let began = Instant::now();
    while began.elapsed() < pause {
        let (mut taken, mut list) = (0, Piece::NONE);
        while taken < 1 << 20 {
            let size = random.size(64, 4);
            list = linked(take(size), list);
            taken += size;
        }
        give_all(list);
        thread::sleep(Duration::from_millis(10));
    }
    Ok(vec![out, rest, none, asleep, look()?])
}

/// Returns a list through the pieces themselves. Each has 64 bytes at least.
fn linked(piece: Piece, next: Piece) -> Piece {
    // SAFETY: the piece has room for a word, and is the caller's.
    unsafe { piece.mark(next.into_word() as u64) };
    piece
}

fn give_all(mut list: Piece) {
    while list.is_some() {
        // SAFETY: `linked` wrote the next one's address, or none; each is given back once.
        unsafe {
            let next = list.marked();
            give(list);
            list = Piece::from_word(next as *mut u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_loads_are_looked_at() {
        let size = Size { threads: 4, mib: 40, pause_ms: 1 };
        assert_eq!(idle(size).unwrap().len(), 2);
        let [out, _, none, _, _] = retain(size).unwrap()[..] else { panic!("five moments") };
        assert!(out >= 40 << 10, "{out} KiB");
        assert!(none > 0);
    }

    #[test]
    fn rows_have_a_point_for_each_moment() {
        let mut samples = [(); ALL_LOOKS].map(|()| vec![1.0, 3.0]);
        samples[2].clear();
        let row = filled(Row::new("a", "a"), Ok(samples));
        assert_eq!(row.points.len(), ALL_LOOKS - 1, "none where nothing was measured");
        assert_eq!((row.points[5].stat.median, row.points[2].x), (2.0, Some(3.0)));
        let row = filled(Row::new("a", "a"), Err("why".to_owned()));
        assert!(row.points.is_empty() && row.unavailable.as_deref() == Some("why"));
    }
}
