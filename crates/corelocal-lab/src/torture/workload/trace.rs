//! Events of the tracer: the critical sections that append a record to the core's buffer.

use std::sync::atomic::{AtomicU32, Ordering};

use corelocal::event;
use corelocal::trace::format::Kind;
use corelocal::trace::{self, Encoder, Field as _, Options, Site};

use super::{Content, DONE, Model, Operands, Workload, workload};

/// The result in a forked child, which records nothing.
const OFF: i64 = -1;

/// The number of the round's events, and the sum of their numbers.
const RECORDED: Model = Model {
    operands: |_| Operands { target: 1, other: 1 << 20 },
    step: |all, n, result| {
        if result == DONE {
            all[0] += 1;
            all[1] += n;
        }
        result == DONE || result == OFF
    },
    look: |all| all[1],
    parted: false,
};

/// Marks the events of a round: those of earlier ones are still in the buffers.
struct Round(AtomicU32);

impl Round {
    const fn new() -> Round {
        Round(AtomicU32::new(0))
    }

    fn begin(&self) -> Content {
        // One recording serves all rounds. If there is no memory for it, each operation is off.
        let _ = trace::start(Options::flight_recorder().max_bytes(1 << 20).no_thread());
        self.0.fetch_add(1, Ordering::Relaxed);
        Content::of([0, 0])
    }

    /// Returns the same, and registers a site that no macro makes.
    fn begin_with(&self, site: &'static Site) -> Content {
        if site.is_new() {
            site.register(&[]);
        }
        self.begin()
    }

    fn number(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the same of events of one word: 16 bits of the round, and of the operand, which is a power of two.
    fn recorded_short(&self, name: &str) -> [i64; 2] {
        let mut all = [0; 2];
        trace::each_record(name, |[word, _]| {
            if (word >> 32) as u16 == self.number() as u16 {
                all[0] += 1;
                all[1] += 1 << (word >> 48);
            }
        });
        all
    }

    /// Returns the number of this round's events, and their sum.
    fn recorded(&self, name: &str) -> [i64; 2] {
        let mut all = [0; 2];
        trace::each_record(name, |[first, second]| {
            if (first >> 32) as u32 == self.number() {
                all[0] += 1;
                all[1] += second as i64;
            }
        });
        all
    }
}

fn result() -> i64 {
    if trace::status().is_some() { DONE } else { OFF }
}

static CONTEXT: Site = Site::new(Kind::Event, "torture::context");
static TIMED: [Site; 5] = [
    Site::new(Kind::Event, "torture::timed_1"),
    Site::new(Kind::Event, "torture::timed_2"),
    Site::new(Kind::Event, "torture::timed_3"),
    Site::new(Kind::Event, "torture::timed_4"),
    Site::new(Kind::Event, "torture::timed_any"),
];

pub fn workloads() -> Vec<Workload> {
    let push = workload! {
        "trace/push", Round, RECORDED, false;
        begin(round, _) round.begin();
        operate(round, n) {
            event!(torture::push, round = round.number(), n = n);
            result()
        };
        look(round) round.recorded("torture::push")[1];
        end(round) Content::of(round.recorded("torture::push"));
    };
    // A section of its own for each number of words.
    let push_1 = workload! {
        "trace/push-1", Round, RECORDED, false;
        begin(round, _) round.begin();
        operate(round, n) {
            event!(torture::push_1, round = round.number() as u16, power = n.ilog2() as u16);
            result()
        };
        look(round) round.recorded_short("torture::push_1")[1];
        end(round) Content::of(round.recorded_short("torture::push_1"));
    };
    let push_3 = workload! {
        "trace/push-3", Round, RECORDED, false;
        begin(round, _) round.begin();
        operate(round, n) {
            event!(torture::push_3, round = round.number(), n = n, third = n);
            result()
        };
        look(round) round.recorded("torture::push_3")[1];
        end(round) Content::of(round.recorded("torture::push_3"));
    };
    let push_4 = workload! {
        "trace/push-4", Round, RECORDED, false;
        begin(round, _) round.begin();
        operate(round, n) {
            event!(torture::push_4, round = round.number(), n = n, third = n, fourth = n);
            result()
        };
        look(round) round.recorded("torture::push_4")[1];
        end(round) Content::of(round.recorded("torture::push_4"));
    };
    let context = workload! {
        "trace/context", Round, RECORDED, false;
        begin(round, _) round.begin_with(&CONTEXT);
        operate(round, n) {
            let mut encoder = Encoder::new();
            round.number().put(&mut encoder);
            n.put(&mut encoder);
            trace::record_as_owner(&CONTEXT, &mut encoder);
            result()
        };
        look(round) round.recorded("torture::context")[1];
        end(round) Content::of(round.recorded("torture::context"));
    };
    // The same with a time that was read before, and one for records that are not fixed.
    let timed_1 = workload! {
        "trace/timed-1", Round, RECORDED, false;
        begin(round, _) round.begin_with(&TIMED[0]);
        operate(round, n) {
            trace::record_timed(&TIMED[0], (&(round.number() as u16), (&(n.ilog2() as u16), ())));
            result()
        };
        look(round) round.recorded_short("torture::timed_1")[1];
        end(round) Content::of(round.recorded_short("torture::timed_1"));
    };
    let timed_2 = workload! {
        "trace/timed-2", Round, RECORDED, false;
        begin(round, _) round.begin_with(&TIMED[1]);
        operate(round, n) {
            trace::record_timed(&TIMED[1], (&round.number(), (&n, ())));
            result()
        };
        look(round) round.recorded("torture::timed_2")[1];
        end(round) Content::of(round.recorded("torture::timed_2"));
    };
    let timed_3 = workload! {
        "trace/timed-3", Round, RECORDED, false;
        begin(round, _) round.begin_with(&TIMED[2]);
        operate(round, n) {
            trace::record_timed(&TIMED[2], (&round.number(), (&n, (&n, ()))));
            result()
        };
        look(round) round.recorded("torture::timed_3")[1];
        end(round) Content::of(round.recorded("torture::timed_3"));
    };
    let timed_4 = workload! {
        "trace/timed-4", Round, RECORDED, false;
        begin(round, _) round.begin_with(&TIMED[3]);
        operate(round, n) {
            trace::record_timed(&TIMED[3], (&round.number(), (&n, (&n, (&n, ())))));
            result()
        };
        look(round) round.recorded("torture::timed_4")[1];
        end(round) Content::of(round.recorded("torture::timed_4"));
    };
    let timed_any = workload! {
        "trace/timed-any", Round, RECORDED, false;
        begin(round, _) round.begin_with(&TIMED[4]);
        operate(round, n) {
            trace::record_timed(&TIMED[4], (&round.number(), (&n, (&"text", ()))));
            result()
        };
        look(round) round.recorded("torture::timed_any")[1];
        end(round) Content::of(round.recorded("torture::timed_any"));
    };
    // A buffer is not in a slot.
    [push, push_1, push_3, push_4, context, timed_1, timed_2, timed_3, timed_4, timed_any]
        .into_iter()
        // Without a counter that sections read, records have times that were read before.
        .filter(|workload| {
            !cfg!(target_arch = "riscv64") || !workload.name.starts_with("trace/push")
        })
        .map(|workload| Workload { to_slot: false, ..workload })
        .collect()
}
