//! What the consumer does with a slot, under its lock.
//!
//! Invariants: those of the [module above](super).

use super::*;

impl Slot {
    /// # Safety
    /// - All items of the slot are `T`s.
    pub(super) unsafe fn pop_own<T>(&self, locked: &Locked<'_>) -> Option<Words<T>> {
        let Consumers { read, limit, .. } = &self.consumers;
        // Relaxed: written under the lock.
        let mut at = read.load(Ordering::Relaxed);
        // A consumer that a fork left behind may have stored only one of the two.
        if at == limit.load(Ordering::Relaxed) || locked.recovered {
            // SAFETY: the caller guarantees that all items are `T`s, and the lock is held.
            at = unsafe { self.go_on(at) }?;
        }
        // SAFETY: an item by invariant 1; the lock makes this thread its only reader.
        let words = unsafe { at.cast::<MaybeUninit<Words<T>>>().read().assume_init() };
        // Release: partner is the Acquire in `look`.
        read.store(at.wrapping_add(size_of::<Words<T>>()), Ordering::Release);
        Some(words)
    }

    /// Finds the next item, and sets `limit`. `None` if there is none.
    ///
    /// # Safety
    /// - All items of the slot are `T`s.
    /// - The caller holds the lock.
    pub(super) unsafe fn go_on(&self, mut at: *mut u8) -> Option<*mut u8> {
        // Acquire: partner is the commit of the section that stored it, a Release.
        let end = self.producers.end.load(Ordering::Acquire);
        if at == end {
            self.consumers.limit.store(at, Ordering::Relaxed);
            return None;
        }
        if segment::is_end(at) {
            let first = if at.is_null() {
                // Relaxed: the Acquire came before (invariant 2).
                self.producers.start.load(Ordering::Relaxed)
            } else {
                // SAFETY: `end` has left the segment, so it is in use and `next` is final (invariants 2 and 3).
                unsafe { segment::next(segment::ending_at(at)) }
            };
            let left = at;
            at = first;
            self.consumers.read.store(at, Ordering::Release);
            self.step(2);
            if !left.is_null() {
                // SAFETY: both `read` and `end` have left the segment (invariant 3).
                self.dispose(unsafe { Segment::from_raw(segment::ending_at(left)) });
            }
        }
        let segment = segment::containing(at);
        let limit = if segment == segment::ending_at(end) {
            end
        } else {
            segment.cast::<u8>().wrapping_add(crate::rseq::SEGMENT)
        };
        self.consumers.limit.store(limit, Ordering::Relaxed);
        Some(at)
    }

    /// # Safety
    /// - All items of the slot are `T`s.
    pub(super) unsafe fn pop_shared<T>(&self, _locked: &Locked<'_>) -> Option<Words<T>> {
        let oldest = &self.consumers.oldest;
        // Relaxed: written under the lock.
        let mut node = oldest.load(Ordering::Relaxed).cast::<Node<T>>();
        if node.is_null() || is_marked(node.cast()) {
            // SAFETY: the caller guarantees that all items are `T`s, and the lock is held.
            node = unsafe { self.turn_round(node.cast()) }?;
        }
        // SAFETY: a node of the list of `oldest`, which the lock makes this thread's (invariant 4).
        let (newer, words) = unsafe {
            ((*node).newer.load(Ordering::Relaxed), (*node).words.with(|words| words.read()))
        };
        // Release: partner is the Acquire in `look`.
        oldest.store(newer, Ordering::Release);
        let header = segment::containing(node.cast());
        // Relaxed: written under the lock. SAFETY: the node's segment, which stays until its last node has been
        // emptied.
        let done = unsafe { (*header).done.fetch_add(1, Ordering::Relaxed) } + 1;
        if done as usize == Places::<Node<T>>::COUNT {
            // SAFETY: all of its nodes have been taken (invariant 4).
            self.dispose(unsafe { Segment::from_raw(header) });
        }
        Some(words)
    }

    /// Takes all pushed nodes, and links them to newer ones. Returns the oldest of them, which is then in `oldest`.
    /// `left` is the former value of `oldest`: null, or marked by a consumer that a fork left behind.
    ///
    /// # Safety
    /// - All items of the slot are `T`s.
    /// - The caller holds the lock.
    pub(super) unsafe fn turn_round<T>(&self, left: *mut u8) -> Option<*mut Node<T>> {
        let left = unmarked(left);
        // SAFETY: the caller guarantees that all items are `T`s, and holds the lock.
        let mut node = if !left.is_null() && !unsafe { self.is_listed::<T>(left) } {
            left
        } else {
            self.take_newest()
        }
        .cast::<Node<T>>();
        if node.is_null() {
            return None;
        }
        let mut newer = ptr::null_mut::<Node<T>>();
        while !node.is_null() {
            // SAFETY: the node belongs to this thread: its list is no longer that of `newest`.
            let Node { older, newer: link, .. } = unsafe { &*node };
            link.store(newer.cast(), Ordering::Relaxed);
            (newer, node) = (node, older.load(Ordering::Relaxed).cast());
        }
        // Even already, if a consumer that a fork left behind had come this far.
        if self.is_turning() {
            self.step(1);
        }
        // Release: partner is the Acquire in `look`.
        self.consumers.oldest.store(newer.cast(), Ordering::Release);
        Some(newer)
    }

    /// Takes the list of `newest`. From then on its newest node is in `oldest`, marked. Null if the list is empty.
    pub(super) fn take_newest(&self) -> *mut u8 {
        let (newest, oldest) = (&self.producers.newest, &self.consumers.oldest);
        let mut node = newest.load(Ordering::Relaxed);
        while !node.is_null() {
            // Before the list is taken, so that the list is reachable at every moment.
            oldest.store(marked(node), Ordering::Relaxed);
            if !self.is_turning() {
                self.step(1);
            }
            // Acquire: partner is the Release in `push_shared`, for all nodes: they follow each other by
            // read-modify-writes. Release: partner is the Acquire in `look`, for the step before.
            match newest.compare_exchange(
                node,
                ptr::null_mut(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => node = now,
            }
        }
        node
    }

    /// Returns `true` if a node is still on the list of `newest`: then the consumer that marked it had not taken the
    /// list.
    ///
    /// # Safety
    /// - All items of the slot are `T`s.
    /// - The caller holds the lock.
    #[cold]
    pub(super) unsafe fn is_listed<T>(&self, sought: *mut u8) -> bool {
        // Acquire: partner is the Release in `push_shared`, of all nodes.
        let mut node = self.producers.newest.load(Ordering::Acquire);
        while !node.is_null() && node != sought {
            // SAFETY: only the owner of the lock takes nodes off.
            node = unsafe { (*node.cast::<Node<T>>()).older.load(Ordering::Relaxed) };
        }
        !node.is_null()
    }

    /// Returns `true` if `steps` is odd. Called with the lock held.
    pub(super) fn is_turning(&self) -> bool {
        self.consumers.steps.load(Ordering::Relaxed) % 2 != 0
    }

    /// Advances `steps` (invariant 5). Called with the lock held.
    pub(super) fn step(&self, by: u64) {
        let steps = &self.consumers.steps;
        // Release: partner is the Acquire in `look`, which then sees the earlier stores.
        steps.store(steps.load(Ordering::Relaxed) + by, Ordering::Release);
    }

    /// Leaves a segment to the next producer, or frees it to the pool.
    pub(super) fn dispose(&self, mut segment: Segment) {
        segment.renew();
        // Release: partner is the Acquire in `take_spare`. Acquire: for the segment that was there before, which goes
        // to the pool.
        let before = self.consumers.spare.swap(segment.into_raw(), Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: from `into_raw`, and owned by this thread since the swap.
            drop(unsafe { Segment::from_raw(before) });
        }
    }
}
