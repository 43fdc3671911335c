//! Counting from C: by calls of the C library and inline, beside Rust and beside what C programs have otherwise.
//!
//! Invariants:
//! - A contestant in C is compiled when the table runs, with the headers of this build, and loads the library of this build.
//! - Each total is compared with what was asked for.

use std::ffi::c_void;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use anyhow::Context as _;
use corelocal::percpu::{Counter, CounterVec};
use corelocal_support::mallocs::library;
use corelocal_support::schema::{self, Row};

use super::checked::{Checked, Made, Subject, agree, checked, tally};
use super::object::{Loaded, Object, Source, once};
use crate::contest::threads::Crew;
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct CApi;

/// The id of the row that ratios refer to.
const RUST: &str = "rust";

/// The number of counters of a set.
const SET: usize = 500;

impl Table for CApi {
    fn id(&self) -> &'static str {
        "c_api"
    }

    fn title(&self) -> &'static str {
        "Counting from C"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        Ok(self.on(cx.plan.threads).measure(cx))
    }
}

impl CApi {
    fn on(&self, threads: &[usize]) -> Contest<Checked<Crew<'static>>> {
        let about = "Cpu time for one addition in a loop of a C program, compiled with -O2 -fPIC when the table runs, to \
             counters of the C library: by a call through the loader's table, or inline. Sets have 500 counters, to which \
             the loop adds in turn. librseq and liburcu have rows where they are \
             installed. Each total is checked.";
        let contest = Contest::new(self, about).baseline(RUST).over("threads", threads);
        let rows: [(Row, fn() -> Made); 9] = [
            (Row::new("atomic", "__atomic_fetch_add, shared"), || ours("atomic")),
            (Row::new("urcu", "liburcu uatomic_inc, shared"), urcu),
            (Row::new("librseq", "librseq, by cpu number"), librseq),
            (Row::ours(RUST, "corelocal Counter, Rust"), || {
                tally(
                    Counter::new(),
                    1,
                    |count: &Counter, _| count.add(1),
                    |count| count.get() as u64,
                )
            }),
            (Row::ours("inline", "C, inline"), || ours("inline")),
            (Row::ours("call", "C, call"), || ours("call")),
            (Row::ours("rust-set", "corelocal CounterVec, Rust"), rust_set),
            (Row::ours("set-inline", "C, set of 500, inline"), || ours("set_inline")),
            (Row::ours("set-call", "C, set of 500, call"), || ours("set_call")),
        ];
        rows.into_iter().fold(contest, |contest, (row, made)| contest.row(row, checked(made)))
    }
}

type Begin = unsafe extern "C" fn() -> *mut c_void;
type End = unsafe extern "C" fn(*mut c_void);
type Work = unsafe extern "C" fn(*mut c_void, u64);
type Counted = unsafe extern "C" fn(*mut c_void) -> i64;

/// A function in C that adds 1 so many times, and what it adds to.
struct InC {
    state: NonNull<c_void>,
    work: Work,
    counted: Counted,
    end: End,
}

// SAFETY: the state is counters that any thread may add to.
unsafe impl Send for InC {}
// SAFETY: as above.
unsafe impl Sync for InC {}

impl Subject for InC {
    fn work(&self, _: usize, ones: u64) {
        // SAFETY: any thread may call it with this state.
        unsafe { (self.work)(self.state.as_ptr(), ones) };
    }

    fn check(&self, asked: u64) -> anyhow::Result<()> {
        // SAFETY: as above.
        agree(asked, unsafe { (self.counted)(self.state.as_ptr()) } as u64)
    }
}

impl Drop for InC {
    fn drop(&mut self) {
        // SAFETY: made by `begin`, and no thread uses it any more.
        unsafe { (self.end)(self.state.as_ptr()) };
    }
}

/// A compiled source.
#[derive(Clone)]
struct Compiled(Arc<Object>);

impl Compiled {
    /// Returns a contestant with this function.
    fn contestant(&self, work: &str) -> Made {
        let symbol = |name: &str| self.0.symbol(&format!("corelocal_c_api_{name}"));
        let (begin, end) = (symbol("begin")?, symbol("end")?);
        let (work, counted) = (symbol(work)?, symbol("counted")?);
        // SAFETY: the C sources define functions of these types.
        let (begin, end, work, counted) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Begin>(begin),
                std::mem::transmute::<*mut c_void, End>(end),
                std::mem::transmute::<*mut c_void, Work>(work),
                std::mem::transmute::<*mut c_void, Counted>(counted),
            )
        };
        // SAFETY: any thread may call it.
        let state = NonNull::new(unsafe { begin() });
        let state = state.context("there is no memory, or the thread cannot be registered")?;
        Ok(Arc::new(InC { state, work, counted, end }))
    }
}

/// The headers of the C library, and where the source that comes first includes them.
const HEADERS: &[(&str, &str)] = &[
    ("c_api.c", include_str!("c_api.c")),
    ("corelocal/base.h", include_str!("../../capi/corelocal/base.h")),
    ("corelocal/area.h", include_str!("../../capi/corelocal/area.h")),
    ("corelocal/counter.h", include_str!("../../capi/corelocal/counter.h")),
    ("corelocal/ids.h", include_str!("../../capi/corelocal/ids.h")),
    ("corelocal/inline.h", include_str!("../../capi/corelocal/inline.h")),
    ("corelocal/inline_aarch64.h", include_str!("../../capi/corelocal/inline_aarch64.h")),
    ("corelocal/inline_x86_64.h", include_str!("../../capi/corelocal/inline_x86_64.h")),
    ("corelocal/rcu_copy.h", include_str!("../../capi/corelocal/rcu_copy.h")),
];

fn ours(work: &str) -> Made {
    static LOADED: Loaded<Compiled> = Loaded::new();
    let load = || {
        // Where cargo puts it, beside the command's dependencies; the tests are there themselves.
        let name = "libcorelocal_capi.so";
        let path = library::beside_this_program(&["deps", ""], name).with_context(|| {
            format!(
                "{name} is not beside this program: run the one that `cargo build` left in target/"
            )
        })?;
        let folder = path.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
        let source = Source { files: HEADERS, flags: &[], packages: "gcc" };
        let flags = [format!("-L{folder}"), format!("-l:{name}"), format!("-Wl,-rpath,{folder}")];
        // Its soname is that of an installed library: it is found by that once it is loaded.
        let library = Object::load(&path.to_string_lossy())?;
        library.symbol("corelocal_version")?;
        Ok(Compiled(Arc::new(source.compile_with(&flags)?.load()?)))
    };
    once(&LOADED, load)?.contestant(work)
}

fn urcu() -> Made {
    static LOADED: Loaded<Compiled> = Loaded::new();
    let files = &[("c_api.urcu.c", include_str!("c_api.urcu.c"))];
    let source = Source { files, flags: &["-lurcu-common"], packages: "liburcu-dev" };
    let load = || Ok(Compiled(Arc::new(source.load()?)));
    once(&LOADED, load)?.contestant("urcu")
}

fn librseq() -> Made {
    static LOADED: Loaded<Compiled> = Loaded::new();
    let files = &[("c_api.librseq.c", include_str!("c_api.librseq.c"))];
    let source = Source { files, flags: &["-lrseq"], packages: "librseq-dev" };
    let load = || Ok(Compiled(Arc::new(source.load()?)));
    once(&LOADED, load)?.contestant("librseq")
}

fn rust_set() -> Made {
    struct Set(Box<CounterVec<512>>);
    impl Subject for Set {
        fn work(&self, _: usize, ones: u64) {
            let mut left = ones as usize;
            while left > 0 {
                let end = left.min(SET);
                for at in 0..end {
                    // In range; a failure would show in the total.
                    let _ = self.0.add(at, 1);
                }
                left -= end;
            }
        }

        fn check(&self, asked: u64) -> anyhow::Result<()> {
            agree(asked, self.0.sum() as u64)
        }
    }
    Ok(Arc::new(Set(Box::new(CounterVec::new()))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    #[test]
    fn every_row_on_several_threads() {
        let short = Duration::from_millis(1);
        let plan = Plan { slice: short, contest: short, rounds: 5, ..Plan::QUICK };
        let table = CApi.on(&[1, 5]).measure(&Context::new(plan, &Machine::default()));
        for row in &table.rows {
            match &row.unavailable {
                // What a counter lost is never excused.
                Some(why) if why.contains("counted") => panic!("{}: {why}", row.id),
                Some(why) => eprintln!("skipped: row {}: {why}", row.id),
                None => assert_eq!(row.points.len(), 2, "{}: {:?}", row.id, table.notes),
            }
        }
    }
}
