//! What the two readers of a pvclock page cost, before and after the change of 2015, and the parts that they are made of.
//!
//! Invariants:
//! - Both readers read a page of this process that is never written, so neither tries twice.
//! - Barriers and readings of the cpu number are those of the vDSO of that time: `lfence` and `lsl`.

use corelocal_support::measure::loops::Loop;
use corelocal_support::schema::{self, Row};

use crate::contest::{Contest, Context, Table};

use super::FEWER;

/// The table.
pub struct Pvclock;

const BEFORE: &str = "before";

/// The rows: id, label, the published figure in ns.
const ROWS: [(&str, &str, Option<f64>); 7] = [
    (BEFORE, "reader until Linux 4.4: two getcpu, two barriers", Some(64.0)),
    ("page-0", "page 0, two barriers", None),
    ("after", "reader since Linux 4.5: page 0, one barrier", Some(19.0)),
    ("getcpu", "one getcpu (lsl)", None),
    ("barrier", "one barrier (lfence)", None),
    ("counter", "the counter (rdtsc)", None),
    ("loads", "loads of the page and a multiplication", None),
];

impl Table for Pvclock {
    fn id(&self) -> &'static str {
        "clock_pvclock"
    }

    fn title(&self) -> &'static str {
        "Reading a pvclock page, in parts"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        cx.plan.rounds /= FEWER;
        let contest = Contest::new(
            self,
            "The change of 2015 lets a guest read page 0 instead of its own cpu's, which saves two getcpu and a \
             barrier. Both readers read a page of this process. Alone, a part costs more than it adds to a reader, \
             where it runs beside the others.",
        )
        .source(
            "Andy Lutomirski, x86, vdso, pvclock: Simplify and speed up the vdso pvclock reader, 2015",
            "https://git.kernel.org/torvalds/c/6b078f5de7fc0851af4102493c7b5bb07e49c4cb",
            "the author's KVM guest, model not given",
        )
        .baseline(BEFORE)
        .cycles();
        let contest = ROWS.into_iter().fold(contest, |contest, (id, label, published)| {
            let row = Row::new(id, label);
            let row = match published {
                Some(ns) => row.published(ns, "ns", "kvm-clock"),
                None => row,
            };
            match body(id) {
                Some(body) => contest.row(row, body),
                None => contest.unavailable(row, "instructions of x86 processors only"),
            }
        });
        Ok(contest.measure(cx))
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn body(_: &str) -> Option<Loop<'static>> {
    None
}

#[cfg(target_arch = "x86_64")]
fn body(id: &str) -> Option<Loop<'static>> {
    use corelocal_support::measure::loops::loop_of;
    let pages = x86::Pages::new();
    Some(match id {
        BEFORE => loop_of(move || pages.of_this_cpu()),
        "page-0" => loop_of(move || pages.first_with_two_barriers()),
        "after" => loop_of(move || pages.first()),
        "getcpu" => loop_of(crate::tables::cpu_number::by_lsl),
        "barrier" => loop_of(x86::barrier),
        "counter" => loop_of(x86::counter),
        _ => loop_of(move || pages.loads()),
    })
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    use std::cell::UnsafeCell;

    use crate::tables::cpu_number::by_lsl;

    /// `struct pvclock_vcpu_time_info`, with a cache line of its own.
    #[repr(C, align(64))]
    #[derive(Clone, Copy)]
    struct Page {
        version: u32,
        pad: u32,
        tsc_timestamp: u64,
        system_time: u64,
        tsc_to_system_mul: u32,
        tsc_shift: i8,
        flags: u8,
    }

    /// A page for each cpu number.
    pub struct Pages(Box<[UnsafeCell<Page>]>);

    // Newer compilers hold these intrinsics to be safe, older ones do not.
    #[allow(unused_unsafe)]
    #[inline(always)]
    pub fn barrier() {
        // SAFETY: every x86-64 has the instruction.
        unsafe { _mm_lfence() };
    }

    #[allow(unused_unsafe)]
    #[inline(always)]
    pub fn counter() -> u64 {
        // SAFETY: every x86-64 has the instruction.
        unsafe { _rdtsc() }
    }

    /// Returns the time of a counter value, by the fields of a page.
    #[inline(always)]
    fn time(page: &Page, counter: u64) -> u64 {
        let delta = counter.wrapping_sub(page.tsc_timestamp);
        let delta =
            if page.tsc_shift < 0 { delta >> -page.tsc_shift } else { delta << page.tsc_shift };
        page.system_time + ((u128::from(delta) * u128::from(page.tsc_to_system_mul)) >> 32) as u64
    }

    impl Pages {
        pub fn new() -> Pages {
            let page = Page {
                version: 2,
                pad: 0,
                tsc_timestamp: counter(),
                system_time: 1,
                // About 2.6 GHz; how it is with other rates makes no difference.
                tsc_to_system_mul: 3_303_820_997,
                tsc_shift: -1,
                flags: 1,
            };
            Pages((0..4096).map(|_| UnsafeCell::new(page)).collect())
        }

        /// Returns the fields as they are now.
        #[inline(always)]
        fn load(&self, cpu: usize) -> Page {
            // SAFETY: a page that is there, and is only read. Volatile: a host could write it.
            unsafe { self.0[cpu & 4095].get().read_volatile() }
        }

        #[inline(always)]
        fn version(&self, cpu: usize) -> u32 {
            // SAFETY: as above.
            unsafe { (&raw const (*self.0[cpu & 4095].get()).version).read_volatile() }
        }

        /// Reads as `vread_pvclock` until Linux 4.4.
        #[inline(always)]
        pub fn of_this_cpu(&self) -> (u64, bool) {
            loop {
                let cpu = by_lsl();
                let version = self.version(cpu as usize);
                barrier();
                let counter = counter();
                let page = self.load(cpu as usize);
                let time = time(&page, counter);
                barrier();
                if by_lsl() == cpu && version & 1 == 0 && self.version(cpu as usize) == version {
                    return (time, page.flags & 1 != 0);
                }
            }
        }

        #[inline(always)]
        pub fn first_with_two_barriers(&self) -> (u64, bool) {
            loop {
                let version = self.version(0);
                barrier();
                let counter = counter();
                let page = self.load(0);
                let time = time(&page, counter);
                barrier();
                if version & 1 == 0 && self.version(0) == version {
                    return (time, page.flags & 1 != 0);
                }
            }
        }

        /// Reads as `vread_pvclock` since Linux 4.5.
        #[inline(always)]
        pub fn first(&self) -> (u64, bool) {
            loop {
                let version = self.version(0);
                barrier();
                let counter = counter();
                let page = self.load(0);
                if version & 1 == 0 && self.version(0) == version {
                    return (time(&page, counter), page.flags & 1 != 0);
                }
            }
        }

        #[inline(always)]
        pub fn loads(&self) -> u64 {
            let page = self.load(0);
            time(&page, page.tsc_timestamp + 1000)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    #[test]
    fn every_row_is_measured_or_explained() {
        let machine = Machine::default();
        let plan = Plan { round: Duration::from_micros(50), rounds: 10, ..Plan::QUICK };
        let table = Pvclock.run(&mut Context::new(plan, &machine)).unwrap();
        assert_eq!(table.rows.len(), ROWS.len());
        for row in &table.rows {
            assert_eq!(row.points.is_empty(), row.unavailable.is_some(), "{}", row.id);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn readers_agree() {
        let pages = x86::Pages::new();
        let first = pages.first().0;
        let times = [pages.of_this_cpu().0, pages.first_with_two_barriers().0, pages.first().0];
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]) && first <= times[0], "{times:?}");
        assert!(times[2] - first < 1_000_000_000, "{first} {times:?}");
    }
}
