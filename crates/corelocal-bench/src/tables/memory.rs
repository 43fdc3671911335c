//! How much memory per-core data takes, by the id that indexes it.
//!
//! Invariants:
//! - Each figure is from a process of its own: ids and memory depend on what a process did before.
//! - Containers are measured by the pages that the kernel says are there.

mod observer;

use std::collections::BTreeMap;
use std::time::Duration;

use corelocal_support::measure::noise::Watch;
use corelocal_support::process::child;
use corelocal_support::schema::{self, Better, Point, Row, Stat};

use self::observer::{CHILD, Look, Seen};
use crate::contest::{Context, Table};

/// The table.
pub struct Memory;

/// The numbers of cpus that are used, where there are so many.
const CPUS: [usize; 4] = [1, 2, 8, 64];

impl Table for Memory {
    fn id(&self) -> &'static str {
        "memory"
    }

    fn title(&self) -> &'static str {
        "Memory that per-core data takes"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let watch = Watch::start(false, None);
        let allowed = cx.machine.cpus_allowed;
        let seen = CPUS.into_iter().filter(|&cpus| cpus <= allowed.max(1)).map(|cpus| {
            cx.progress().set_message(format!("{}, cpus {cpus}", self.title()));
            // Two threads to a cpu, so that each has one to run.
            let look = Look { cpus: Some(cpus), threads: 2 * cpus, time: cx.plan.slice * 3 };
            Ok((cpus, look.in_child()?))
        });
        let seen: Vec<(usize, Seen)> = seen.collect::<anyhow::Result<_>>()?;
        cx.progress().finish();
        Ok(schema::Table {
            id: self.id().to_owned(),
            title: self.title().to_owned(),
            about: format!(
                "Resident memory of a process that is confined to this many cpus, those with the highest \
                 numbers, of {} possible ones. The arrays have a page for each id up to the largest one in use. \
                 The containers are measured: the pages of the cores that used them, and those of the metadata, \
                 which all containers of a size share.",
                cx.machine.cpus_possible
            ),
            source: None,
            unit: "KiB".to_owned(),
            better: Better::Neither,
            x_label: Some("cpus used".to_owned()),
            x_names: Vec::new(),
            baseline: None,
            tile: None,
            is_sized: false,
            rows: rows(&seen),
            notes: Vec::new(),
            noise: watch.finish(),
        })
    }

    fn children(&self) -> &'static [(&'static str, child::Body)] {
        &[(CHILD, observer::child)]
    }
}

fn rows(seen: &[(usize, Seen)]) -> Vec<Row> {
    let pages = |pages: u32| u64::from(pages) * observer::page();
    let mut rows = vec![
        filled(Row::new("cpu", "array by cpu_id"), seen, |seen| {
            Some(pages(seen.cpu_id.largest + 1))
        }),
        filled(Row::new("cid", "array by mm_cid"), seen, |seen| {
            Some(pages(seen.mm_cid?.largest + 1))
        }),
        filled(Row::ours("slot", "array by corelocal's slots"), seen, |seen| {
            Some(pages(seen.slot.largest + 1))
        }),
    ];
    rows.extend(observer::CONTAINERS.iter().map(|container| {
        let row = Row::ours(container.id, container.label);
        filled(row, seen, |seen| seen.containers.get(container.id).copied())
    }));
    rows
}

/// `row` with the bytes that `bytes` takes from what was seen.
fn filled(mut row: Row, seen: &[(usize, Seen)], bytes: impl Fn(&Seen) -> Option<u64>) -> Row {
    row.points = seen
        .iter()
        .filter_map(|(cpus, seen)| {
            let stat = Stat::of(&[bytes(seen)? as f64 / 1024.0])?;
            Some(Point {
                x: Some(*cpus as f64),
                stat,
                ratio: None,
                extra: BTreeMap::new(),
                disturbed: false,
            })
        })
        .collect();
    if row.points.is_empty() {
        row.unavailable = Some(
            "this kernel publishes no mm_cid, which came with Linux 6.3; or no thread is \
             registered for rseq"
                .to_owned(),
        );
    }
    row
}

/// Far more than a look takes.
const LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_what_was_seen() {
        let json = r#"{"cpus":2,"threads":4,"possible":64,"policy":"MmCid",
            "cpu_id":{"used":2,"largest":63},"mm_cid":null,"slot":{"used":2,"largest":1},
            "containers":{"counters":8192}}"#;
        let seen: Seen = serde_json::from_str(json).unwrap();
        let rows = rows(&[(2, seen)]);
        let kib = |id: &str| {
            let row = rows.iter().find(|row| row.id == id).unwrap();
            row.points.first().map(|point| point.stat.median)
        };
        assert_eq!(kib("cpu"), Some(256.0));
        assert_eq!(kib("cid"), None);
        assert_eq!(kib("slot"), Some(8.0));
        assert_eq!(kib("counters"), Some(8.0));
        for row in rows {
            assert_eq!(row.points.is_empty(), row.unavailable.is_some(), "{}", row.id);
        }
    }
}
