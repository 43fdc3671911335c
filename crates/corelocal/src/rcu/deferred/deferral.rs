//! One deferred function, in three words.
//!
//! A function of up to one word is in `data` itself, a larger one in a box whose address `data` is.

use core::mem::{self, MaybeUninit};
use std::boxed::Box;

/// A deferred function with its data. If it is dropped without being run, the function is leaked.
pub(super) struct Deferral {
    /// The code that runs the function of this data.
    run: unsafe fn(Data),
    data: Data,
    bytes: usize,
}

type Data = MaybeUninit<*mut u8>;

/// The most bytes that one function counts with: so few that the sum over all that memory has room for does not
/// overflow.
const MOST: usize = if usize::BITS == 64 { 1 << 40 } else { isize::MAX as usize };

// SAFETY: it stands for a function that is `Send`.
unsafe impl Send for Deferral {}

impl Deferral {
    /// Counts with its own size, and so many bytes besides.
    #[inline]
    pub(super) fn new<F: FnOnce() + Send + 'static>(bytes: usize, function: F) -> Deferral {
        let bytes = Deferral::bytes_of::<F>(bytes);
        if fits::<F>() {
            let mut data = Data::uninit();
            // SAFETY: it is long and aligned enough for an `F`, and this thread's.
            unsafe { data.as_mut_ptr().cast::<F>().write(function) };
            Deferral { run: run_here::<F>, data, bytes }
        } else {
            let data = Data::new(Box::into_raw(Box::new(function)).cast());
            Deferral { run: run_boxed::<F>, data, bytes }
        }
    }

    /// Returns what a function counts with that frees so many bytes.
    #[inline]
    pub(super) fn bytes_of<F>(bytes: usize) -> usize {
        let own = size_of::<Deferral>() + if fits::<F>() { 0 } else { size_of::<F>() };
        own.saturating_add(bytes).min(MOST)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Runs the function.
    pub(super) fn run(self) {
        // SAFETY: the data of the function that `run` is for, used once.
        unsafe { (self.run)(self.data) }
    }
}

const fn fits<F>() -> bool {
    size_of::<F>() <= size_of::<Data>() && align_of::<F>() <= align_of::<Data>()
}

/// # Safety
/// - The data holds an `F`, which is used once.
unsafe fn run_here<F: FnOnce()>(data: Data) {
    // SAFETY: the caller guarantees an `F`.
    let function = unsafe { data.as_ptr().cast::<F>().read() };
    function();
}

/// # Safety
/// - The data is the address of a boxed `F`, which is used once.
unsafe fn run_boxed<F: FnOnce()>(data: Data) {
    // SAFETY: the caller guarantees a boxed `F`.
    let function = unsafe { Box::from_raw(data.assume_init().cast::<F>()) };
    function();
}

const _: () = assert!(mem::size_of::<Deferral>() == 24);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn functions_of_any_length_run_once() {
        let sum = Arc::new(AtomicU64::new(0));
        let add = |n: u64| {
            let sum = sum.clone();
            move || _ = sum.fetch_add(n, Ordering::Relaxed)
        };
        fn nothing() {}
        let (short, long) = (add(0), [7u64; 9]);
        let deferrals = [
            Deferral::new(0, nothing),
            Deferral::new(1, short),
            Deferral::new(2, add(5)),
            Deferral::new(3, {
                let sum = sum.clone();
                move || _ = sum.fetch_add(long.iter().sum(), Ordering::Relaxed)
            }),
        ];
        let bytes = deferrals.iter().map(Deferral::bytes).collect::<std::vec::Vec<_>>();
        assert_eq!(bytes, [24, 41, 42, 107]);
        deferrals.into_iter().for_each(Deferral::run);
        assert_eq!((sum.load(Ordering::Relaxed), Arc::strong_count(&sum)), (68, 1));
    }
}
