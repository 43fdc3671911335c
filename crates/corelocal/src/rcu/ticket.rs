//! A grace period that a program looks at without blocking.

use core::cell::Cell;
use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;

#[cfg(feature = "std")]
use super::deferred::runner;
use super::domain::Domain;
use super::error::Error;
use super::grace_period::{Number, Step};
use super::readers::Core;
use super::{survivors, word};
use crate::primitive::atomic::Ordering;
use crate::sys::futex::{Deadline, Scope};
use crate::sys::sleep;

/// A grace period that a program asks for now and then. See [`Domain::start_poll`].
#[derive(Clone)]
pub struct Ticket {
    core: &'static Core,
    domain: &'static Domain,
    number: Cell<Number>,
}

impl Ticket {
    /// Returns `true` if the grace period has ended: whether every guard that existed when the ticket was made has
    /// ended.
    ///
    /// Takes steps towards the end, as long as no guard is in the way, with a few calls of `membarrier(2)` at most.
    /// Never blocks. In a forked child a ticket from before stands for the child's next grace period.
    ///
    /// # Errors
    /// As for [`Domain::synchronize`].
    pub fn is_complete(&self) -> Result<bool, Error> {
        #[cfg(feature = "std")]
        if runner::is_inside_of(self.domain.key()) {
            return Err(Error::InCallback);
        }
        self.poll()
    }

    /// Does what `is_complete` does, in a deferred function, too.
    pub(super) fn poll(&self) -> Result<bool, Error> {
        loop {
            let number = self.of_this_process();
            if self.core.is_complete(number) {
                return Ok(true);
            }
            if !self.takes_a_step(number)? {
                return Ok(false);
            }
        }
    }

    /// Returns the grace period; in a forked child another one than before.
    pub(super) fn of_this_process(&self) -> Number {
        if self.number.get().generation()
            != word::generation(self.core.word.load(Ordering::Relaxed))
        {
            self.number.set(self.domain.next_grace_period());
        }
        self.number.get()
    }

    /// Returns the domain that it is of.
    pub fn domain(&self) -> &'static Domain {
        self.domain
    }

    /// Waits until the grace period has ended.
    ///
    /// # Errors
    /// As for [`Domain::synchronize`].
    pub fn wait(&self) -> Result<(), Error> {
        self.wait_until(None)
    }

    /// Returns the grace period.
    #[cfg(feature = "std")]
    pub(super) fn number(&self) -> Number {
        self.number.get()
    }

    /// Takes a step. False if readers are in the way, or guards from before a fork, or another thread is at it.
    fn takes_a_step(&self, number: Number) -> Result<bool, Error> {
        let (core, domain) = (self.core, self.domain);
        if core.progress.is_complete(number) {
            if !survivors::are_gone() {
                domain.is_waiting(&core.watch, number.get(), survivors::known);
            }
            return Ok(false);
        }
        // Acquire and Release: a hint, but so the steps of one driver come before those of the next.
        if core.driver.swap(1, Ordering::Acquire) != 0 {
            return Ok(false);
        }
        let step = core.progress.step(number, core);
        core.driver.store(0, Ordering::Release);
        if core.progress.is_complete(number) {
            // Release: partner is the Acquire in `wait_until`.
            core.changes.fetch_add(1, Ordering::Release);
            sleep::wake(&core.changes, u32::MAX, Scope::Private);
        }
        if step == Ok(Step::Waiting) {
            let last = core.progress.last(number.generation());
            domain.is_waiting(&core.watch, last, || core.guards());
        }
        step.map(|step| step == Step::Changed).map_err(Error::Refused)
    }

    /// Waits until the grace period has ended, or until the deadline.
    pub(super) fn wait_until(&self, deadline: Option<Deadline>) -> Result<(), Error> {
        const SPINS: u32 = 16;
        const SHORTEST: Duration = Duration::from_micros(50);
        /// A pause, and the share of the wait so far that a pause may take, up to `LONGEST`: many threads that wait for
        /// a long reader must not keep the processor busy.
        const LONG: Duration = Duration::from_millis(1);
        const SHARE: u32 = 32;
        const LONGEST: Duration = Duration::from_millis(100);
        #[cfg(feature = "std")]
        if runner::is_inside_of(self.domain.key()) {
            return Err(Error::InCallback);
        }
        let core = self.core;
        let (mut looks, mut pause, mut waited) = (0, SHORTEST, Duration::ZERO);
        loop {
            let number = self.of_this_process();
            // Acquire: partner is the Release in `takes_a_step`, so that no end after this load is missed.
            let changes = core.changes.load(Ordering::Acquire);
            if core.is_complete(number) {
                return Ok(());
            }
            if self.takes_a_step(number)? {
                continue;
            }
            if deadline.is_some_and(|deadline| deadline.remaining().is_zero()) {
                return Err(Error::TimedOut);
            }
            looks += 1;
            if looks < SPINS {
                core::hint::spin_loop();
                continue;
            }
            let most = deadline.map_or(pause, |deadline| pause.min(deadline.remaining()));
            sleep::wait(&core.changes, changes, Some(Deadline::after(most)), Scope::Private);
            waited += most;
            pause = (pause * 2).min((waited / SHARE).clamp(LONG, LONGEST));
        }
    }
}

impl Domain {
    /// Begins to wait for a grace period, without blocking: [`Ticket::is_complete`] tells when it has ended.
    ///
    /// ```
    /// use corelocal::rcu;
    ///
    /// let guard = rcu::read();
    /// let ticket = rcu::start_poll();
    /// assert_eq!(ticket.is_complete(), Ok(false));
    /// drop(guard);
    /// while !ticket.is_complete().unwrap() {}
    /// ```
    #[must_use]
    pub fn start_poll(&'static self) -> Ticket {
        self.ticket(self.next_grace_period())
    }

    /// Returns a ticket of this grace period.
    pub(super) fn ticket(&'static self, number: Number) -> Ticket {
        Ticket { core: self.core(), domain: self, number: Cell::new(number) }
    }
}

impl UnwindSafe for Ticket {}
impl RefUnwindSafe for Ticket {}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}
