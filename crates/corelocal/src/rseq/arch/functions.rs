//! The functions of sections, around what an architecture has for each.

/// Defines the functions of sections. Each is called with the index and the object.
macro_rules! functions {
    ($(
        fn $name:ident($index:ident, $object:ident $(, $operand:ident: $type:ty)*) -> $ended:ty $body:block
    )+) => {
        $(
            #[doc = concat!("Runs the critical section `", stringify!($name), "` of `rseq.rs`.")]
            ///
            /// # Safety
            /// - The conditions of the function of that name in `rseq.rs` hold.
            #[inline(always)]
            pub(crate) unsafe fn $name(
                $index: Index,
                $object: &Slots,
                $($operand: $type),*
            ) -> $ended $body
        )+
    };
}

/// Defines the functions of `rseq/hot.rs`, by an architecture's macros `pop_at_steps` and `push_at_steps`.
macro_rules! hot_functions {
    () => {
        /// Runs `pop_at` on the stacks of hot paths.
        ///
        /// # Safety
        /// - The conditions of [`crate::rseq::pop_at`] hold for `FRONT`.
        #[inline(always)]
        pub(crate) unsafe fn pop_front(index: Index, offset: usize) -> Popped {
            pop_at_steps!(index, offset, here FRONT)
        }

        /// Runs `push_at` on the stacks of hot paths.
        ///
        /// # Safety
        /// - The conditions of [`crate::rseq::push_at`] hold for `FRONT`.
        #[inline(always)]
        pub(crate) unsafe fn push_front(index: Index, offset: usize, item: u64) -> Exit {
            push_at_steps!(index, offset, item, here FRONT)
        }

        /// Runs `push_at` on the stacks that objects of a known class are freed to.
        ///
        /// # Safety
        /// - The conditions of [`crate::rseq::push_at`] hold for `FREED`.
        #[inline(always)]
        pub(crate) unsafe fn push_freed(index: Index, offset: usize, item: u64) -> Exit {
            push_at_steps!(index, offset, item, here FREED)
        }
    };
}

/// Defines the functions of the tracer's sections on words in registers, by an architecture's macros of their names:
/// each gets the record's length in bytes, and the place of each word.
macro_rules! fixed_functions {
    () => {
        /// Runs section `trace_push_fixed`: `trace_push` of up to four words, which are in registers.
        ///
        /// # Safety
        /// - The conditions of [`crate::rseq::trace_push_fixed`] hold.
        #[inline(always)]
        pub(crate) unsafe fn trace_push_fixed<const N: usize>(
            index: Index,
            object: &Slots,
            thread: u64,
            words: [u64; N],
        ) -> Exit {
            match *words.as_slice() {
                [a] => trace_push_fixed!(index, object, thread, "16"; "8": a = a),
                [a, b] => trace_push_fixed!(index, object, thread, "24"; "8": a = a, "16": b = b),
                [a, b, c] => {
                    trace_push_fixed!(index, object, thread, "32"; "8": a = a, "16": b = b, "24": c = c)
                }
                [a, b, c, d] => {
                    trace_push_fixed!(index, object, thread, "40"; "8": a = a, "16": b = b, "24": c = c, "32": d = d)
                }
                _ => Exit::COLD,
            }
        }

        /// Runs section `trace_push_timed_fixed`: `trace_push_timed` of up to four words, which are in registers.
        ///
        /// # Safety
        /// - The conditions of [`crate::rseq::trace_push_timed_fixed`] hold.
        #[inline(always)]
        pub(crate) unsafe fn trace_push_timed_fixed<const N: usize>(
            index: Index,
            object: &Slots,
            thread: u64,
            time: u64,
            words: [u64; N],
        ) -> Exit {
            match *words.as_slice() {
                [a] => trace_push_timed_fixed!(index, object, thread, time, "16"; "8": a = a),
                [a, b] => {
                    trace_push_timed_fixed!(index, object, thread, time, "24"; "8": a = a, "16": b = b)
                }
                [a, b, c] => {
                    trace_push_timed_fixed!(index, object, thread, time, "32"; "8": a = a, "16": b = b, "24": c = c)
                }
                [a, b, c, d] => {
                    trace_push_timed_fixed!(
                        index, object, thread, time, "40"; "8": a = a, "16": b = b, "24": c = c, "32": d = d
                    )
                }
                _ => Exit::COLD,
            }
        }
    };
}
