//! The per-cpu list of librseq behind a safe door, where the build found the library through
//! pkg-config; or the reason why there is none.
//!
//! Invariants:
//! - The heads have one for each cpu number the kernel can hand out.
//! - An object belongs to the list, or to the thread that took it.

/// The contestant.
#[cfg(not(librseq))]
pub fn in_list() -> crate::tables::checked::Made {
    anyhow::bail!(
        "built where pkg-config found no librseq; install it and run `cargo clean -p corelocal-cli`"
    )
}

#[cfg(librseq)]
pub use found::in_list;

#[cfg(librseq)]
mod found {
    use std::ffi::c_void;
    use std::ptr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicPtr, Ordering};

    use anyhow::ensure;

    use super::super::turns::{Counts, Item, Object};
    use crate::tables::checked::{Made, Subject};

    unsafe extern "C" {
        /// 0, or -1 for a thread that cannot be registered.
        fn corelocal_librseq_turns(
            heads: *const Head,
            times: u64,
            make: unsafe extern "C" fn(*const c_void) -> *mut Object,
            data: *const c_void,
        ) -> libc::c_int;
    }

    /// The first object of a cpu, on lines of the cpu's own.
    #[repr(C, align(128))]
    #[derive(Default)]
    struct Head(AtomicPtr<Object>);

    struct List {
        heads: Vec<Head>,
        counts: Counts,
    }

    pub fn in_list() -> Made {
        let heads = (0..corelocal::cid::capacity()).map(|_| Head::default()).collect();
        let list = List { heads, counts: Counts::default() };
        ensure!(list.run(0), "librseq cannot register this thread");
        Ok(Arc::new(list))
    }

    impl List {
        fn run(&self, times: u64) -> bool {
            unsafe extern "C" fn make(counts: *const c_void) -> *mut Object {
                // SAFETY: what `run` gives, which outlives the call.
                let counts = unsafe { &*counts.cast::<Counts>() };
                Box::into_raw(counts.make())
            }
            let counts = (&raw const self.counts).cast();
            // SAFETY: there is a head for each cpu number (invariant 1); objects begin as the C code
            // has it.
            unsafe { corelocal_librseq_turns(self.heads.as_ptr(), times, make, counts) == 0 }
        }
    }

    impl Subject for List {
        fn work(&self, _: usize, operations: u64) {
            if !self.run(operations) {
                self.counts.fail();
            }
        }

        fn check(&self, _asked: u64) -> anyhow::Result<()> {
            let mut found: Vec<Item> = Vec::new();
            for head in &self.heads {
                // Relaxed: the threads that worked have been joined.
                let mut next = head.0.swap(ptr::null_mut(), Ordering::Relaxed);
                while !next.is_null() {
                    // SAFETY: made by `make`, and in the list (invariant 2); what is there twice is
                    // never dropped.
                    let item = unsafe { Box::from_raw(next) };
                    next = item.link.load(Ordering::Relaxed);
                    found.push(item);
                }
            }
            self.counts.check(found, 0)
        }
    }
}
