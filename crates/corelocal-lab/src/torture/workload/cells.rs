//! Cells of an area: the operations of `word_sections.rs`, on a word that is not the slot's first, between others
//! that no operation changes.

use corelocal::cid::{Cid, CpuId, SlotIndex};
use corelocal::percpu::Area;
use corelocal::percpu::area::Cell;

use super::word_sections::{ADDED, EXCHANGED, EXPECTED, STORED_IF_EQUAL};
use super::{Content, DONE, Model, Workload, workload};

/// The initial words of a cell. The operations use the middle one.
const IMAGE: [u64; 3] = [7, 0, u64::MAX];

/// The content of a part whose neighbouring word has changed.
const DAMAGED: i64 = i64::MIN;

/// Like `ADDED`, without a result.
const ADDED_TO: Model = Model {
    step: |part, n, result| {
        let mut with_result = part.clone();
        let sum = part.first().copied().unwrap_or(0) + n;
        let is_sum = (ADDED.step)(&mut with_result, n, sum);
        *part = with_result;
        is_sum && result == DONE
    },
    ..ADDED
};

/// A cell. `None` if there is no memory for one.
struct MaybeCell<I: SlotIndex>(Option<Cell<'static, 3, I>>);

impl<I: SlotIndex> MaybeCell<I> {
    const fn new() -> Self {
        MaybeCell(None)
    }

    fn content(&self) -> Content {
        let cell = self.0.as_ref();
        let words = cell.into_iter().flat_map(Cell::iter).map(|(_, words)| words);
        Content::of(words.filter(|words| *words != IMAGE).map(|words| {
            let is_sound = [words[0], words[2]] == [IMAGE[0], IMAGE[2]];
            if is_sound { words[1] as i64 } else { DAMAGED }
        }))
    }
}

macro_rules! cell {
    ($name:literal, $index:ty, $by_cpu:literal, $model:expr, $word:ident, $n:ident, $operate:expr) => {{
        static AREA: Area<3, $index> = Area::with_image(IMAGE);
        workload! {
            $name, MaybeCell<$index>, $model, $by_cpu;
            begin(cell, start) {
                cell.0 = None;
                cell.0 = AREA.take().ok();
                if let Some(cell) = &cell.0 {
                    cell.at::<1>().add(start);
                }
                cell.content()
            };
            operate(cell, $n) match &cell.0 {
                Some(cell) => {
                    let $word = cell.at::<1>();
                    $operate
                }
                None => DAMAGED,
            };
            look(cell) cell.content().numbers().iter().sum();
            end(cell) cell.content();
        }
    }};
}

pub fn workloads() -> Vec<Workload> {
    let stored = Workload {
        start: EXPECTED,
        ..cell!("cell-cpu/store-if-equal", CpuId, true, STORED_IF_EQUAL, word, n, {
            i64::from(word.store_if_equal(EXPECTED, n as u64).is_ok())
        })
    };
    let exchanged = cell!("cell-cpu/exchange", CpuId, true, EXCHANGED, word, n, {
        word.exchange(n as u64) as i64
    });
    let added = |workload| Workload { start: 5, ..workload };
    vec![
        stored,
        Workload { name: "cell-cpu/store-mismatch", start: EXPECTED + 1, ..stored },
        added(exchanged),
        added(cell!("cell-cid/add-fetch", Cid, false, ADDED, word, n, {
            word.add_fetch(n as u64) as i64
        })),
        added(cell!("cell-cpu/add", CpuId, true, ADDED_TO, word, n, {
            word.add(n as u64);
            DONE
        })),
    ]
}
