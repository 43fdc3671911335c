//! What stored counter values are converted by: the counter and the clock at one moment.

use crate::primitive::global::Ordering;

use super::{Selector, Truth, kind, route};
use crate::clock::anchor;
use crate::clock::counter::{self, Fence};
use crate::clock::kernel::page::{Mode, Reading};
use crate::clock::kernel::paravirtual;
use crate::clock::status::{Backend, Cause};
use crate::clock::{Clock, Point};

impl<T: Truth> Selector<T> {
    /// Returns the cpu's counter and the monotonic clock at one moment: exactly what a reading with that count says,
    /// but where the vDSO serves.
    pub(in crate::clock) fn point(&self) -> Option<Point> {
        // So that it has begun, and a line goes as far as this.
        self.read::<true>(Clock::Monotonic);
        let route = self.route.load(Ordering::Acquire);
        let fence = Fence::of_bit(route);
        let mode = match kind(route) {
            route::PAGE_BY_PVCLOCK | route::ANCHOR_PVCLOCK => Mode::Pvclock,
            _ => Mode::Counter,
        };
        let mut ticks = 0;
        let mut count = || {
            let mut tick = || {
                ticks = counter::ordered_by(fence);
                ticks
            };
            match mode {
                Mode::Counter => Ok(tick()),
                Mode::Pvclock => {
                    paravirtual::count(self.pvclock().ok_or(Cause::UnknownLayout)?, tick)
                }
            }
        };
        let found = match kind(route) {
            route::ANCHOR_COUNTER | route::ANCHOR_PVCLOCK => self.on_line(mode, &mut count),
            route::PAGE_BY_PVCLOCK => self.on_page(mode, &mut count),
            route::PAGE => self.on_page(mode, &mut count),
            _ => None,
        };
        if let Some((nanos, rate, ahead)) = found {
            // Of KVM's page it is a rate over its nanoseconds.
            let rate = (mode == Mode::Counter).then_some(rate);
            return Some(Point { ticks, nanos, width: 0, rate, ahead });
        }
        let mut count = || Ok(counter::ordered_by(fence));
        let sample = anchor::sample(&mut count, || self.read::<true>(Clock::Monotonic)).ok()?;
        let (ticks, nanos, width) = (sample.counter, sample.time, sample.width);
        Some(Point { ticks, nanos, width, rate: None, ahead: None })
    }

    /// Returns the monotonic clock by the vDSO's data, where that serves by the cpu's counter.
    pub(in crate::clock) fn tick(&self) -> Option<Reading> {
        let page = self.serving()?;
        let count = || Ok(counter::ordered_by(page.fence()));
        page.read(Clock::Monotonic, Mode::Counter, count).ok()
    }

    /// Returns the monotonic clock by the vDSO's data, its rate over the count, and what realtime is ahead by.
    fn on_page(
        &self,
        mode: Mode,
        count: &mut impl FnMut() -> Result<u64, Cause>,
    ) -> Option<(u64, u64, Option<u64>)> {
        let page = self.page();
        let reading = page.read(Clock::Monotonic, mode, count).ok()?;
        // At the same count, and by the same data if the sequence is the same.
        let realtime = page.read(Clock::Realtime, mode, || Ok(reading.counter)).ok();
        let realtime = realtime.filter(|realtime| realtime.head == reading.head);
        let ahead = realtime.map(|realtime| realtime.nanos.wrapping_sub(reading.nanos));
        Some((reading.nanos, reading.rate, ahead))
    }

    /// Returns the same by the anchor's line.
    fn on_line(
        &self,
        mode: Mode,
        count: &mut impl FnMut() -> Result<u64, Cause>,
    ) -> Option<(u64, u64, Option<u64>)> {
        let (_, line, offsets, counter) = self.anchor(mode)?.read(count).ok()??;
        line.covers(counter).then(|| (line.at(counter), line.rate, Some(offsets[0])))
    }

    /// Returns by which fence the counter is read in order, if the cpus' counters are trusted to agree.
    pub(in crate::clock) fn counter(&self) -> Option<Fence> {
        // So that it has begun.
        self.read::<false>(Clock::Monotonic);
        let is_allowed = self.limit.load(Ordering::Relaxed) <= Backend::Anchor as u32;
        let is_stable = || {
            self.pvclock().is_some_and(|page| page.content().is_ok_and(|(_, is)| is.is_stable()))
        };
        let agree = self.counters_agree.load(Ordering::Relaxed) != 0 || is_stable();
        (is_allowed && agree).then(|| Fence::of_bit(self.route.load(Ordering::Relaxed)))
    }
}
