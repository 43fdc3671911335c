//! Sections on trace buffers.

use core::mem::MaybeUninit;

use crate::rseq::{Exit, Index, Slots, TRACE_BUFFER};

/// For trace buffers: loads the buffer's address into `scratch`.
macro_rules! trace_buffer {
    () => {
        concat!(
            "mov {scratch}, qword ptr [{scratch}]\n",
            "test {scratch}, {scratch}\n",
            "jz 36f\n",
        )
    };
}

/// Leaves for `mismatch` if another thread or cpu was the last to append.
macro_rules! trace_owner {
    () => {
        concat!(
            "mov {used:e}, dword ptr fs:[{area} + 4]\n",
            "add {used}, {thread}\n",
            "cmp qword ptr [{scratch} + 8], {used}\n",
            "jne 36f\n",
        )
    };
}

/// Reserves the words of a record, with so many bytes besides: `used` is their offset, `next` the one behind.
macro_rules! trace_reserve {
    ($besides:literal) => {
        concat!(
            "mov {used}, qword ptr [{scratch}]\n",
            "lea {next}, [{used} + 8*{n} + ",
            $besides,
            "]\n",
            "cmp {next}, {limit}\n",
            "ja 36f\n",
            "add {used}, {scratch}\n",
        )
    };
}

/// Copies the words of a record behind `$besides` bytes. Changes rax and rdx.
macro_rules! trace_copy {
    ($besides:literal) => {
        concat!(
            "mov rdx, {n}\n",
            "37:\n",
            "mov rax, qword ptr [{from} + 8*rdx - 8]\n",
            prepare!(concat!("mov qword ptr [{used} + 8*rdx - 8 + ", $besides, "], rax")),
            "sub rdx, 1\n",
            "jnz 37b\n",
        )
    };
}

functions! {
    // It names rax and rdx, which unoptimised code copies afterwards, so the exits clear what it changes.
    fn trace_push(index, object, thread: u64, from: *const MaybeUninit<u64>, n: u64) -> Exit {
        section!(
            index,
            object,
            trace_buffer!(),
            trace_owner!(),
            trace_reserve!("8"),
            "rdtsc",
            prepare!("mov dword ptr [{used}], eax"),
            prepare!("mov dword ptr [{used} + 4], edx"),
            trace_copy!("8"),
            "mov qword ptr [{scratch}], {next}";
            yields "xor eax, eax; xor edx, edx; xor {used:e}, {used:e}; xor {next:e}, {next:e}";
            thread = in(reg) thread, from = in(reg) from, n = in(reg) n, limit = const TRACE_BUFFER,
            used = out(reg) _, next = out(reg) _, out("rax") _, out("rdx") _,
        )
    }

    fn trace_push_timed(index, object, thread: u64, time: u64, from: *const MaybeUninit<u64>, n: u64) -> Exit {
        section!(
            index,
            object,
            trace_buffer!(),
            trace_owner!(),
            trace_reserve!("8"),
            prepare!("mov qword ptr [{used}], {time}"),
            trace_copy!("8"),
            "mov qword ptr [{scratch}], {next}";
            yields "xor eax, eax; xor edx, edx; xor {used:e}, {used:e}; xor {next:e}, {next:e}";
            thread = in(reg) thread, time = in(reg) time, from = in(reg) from, n = in(reg) n,
            limit = const TRACE_BUFFER,
            used = out(reg) _, next = out(reg) _, out("rax") _, out("rdx") _,
        )
    }
}

/// Reserves room for a record of so many bytes: `used` is its address.
macro_rules! trace_reserve_fixed {
    ($len:literal) => {
        concat!(
            "mov {used}, qword ptr [{scratch}]\n",
            "cmp {used}, {limit} - ",
            $len,
            "\n",
            "ja 36f\n",
            "add {used}, {scratch}\n",
        )
    };
}

/// The sections of records of fixed length: the steps that write the time, what clears the registers they change, and
/// their operands; then the length of the record in bytes, and for each word its offset in the record and its register.
macro_rules! trace_fixed {
    ([$($time:expr),+] [$clear:literal] [$($operands:tt)*]
        $index:ident, $object:ident, $thread:ident, $len:literal; $($at:literal: $word:ident = $value:expr),+) => {
        section!(
            $index,
            $object,
            trace_buffer!(),
            trace_owner!(),
            trace_reserve_fixed!($len),
            $($time,)+
            $(prepare!(concat!("mov qword ptr [{used} + ", $at, "], {", stringify!($word), "}")),)+
            concat!("add qword ptr [{scratch}], ", $len);
            yields $clear;
            thread = in(reg) $thread, limit = const TRACE_BUFFER, used = out(reg) _, $($operands)*
            $($word = in(reg) $value,)+
        )
    };
}

/// The section `trace_push_fixed`, see [`trace_fixed`].
macro_rules! trace_push_fixed {
    ($($rest:tt)*) => {
        trace_fixed!(
            ["rdtsc", prepare!("mov dword ptr [{used}], eax"), prepare!("mov dword ptr [{used} + 4], edx")]
            ["xor eax, eax; xor edx, edx; xor {used:e}, {used:e}"]
            [out("rax") _, out("rdx") _,]
            $($rest)*
        )
    };
}

/// The section `trace_push_timed_fixed`, see [`trace_fixed`].
macro_rules! trace_push_timed_fixed {
    ($index:ident, $object:ident, $thread:ident, $time:ident, $($rest:tt)*) => {
        trace_fixed!(
            [prepare!("mov qword ptr [{used}], {time}")]
            ["xor {used:e}, {used:e}"]
            [time = in(reg) $time,]
            $index, $object, $thread, $($rest)*
        )
    };
}

fixed_functions! {}

functions! {
    // The commit is one instruction, so an abort leaves both words or none. Other cpus read `used` only.
    fn trace_context(index, object, owner: u64, from: *const MaybeUninit<u64>, n: u64) -> Exit {
        section!(
            index,
            object,
            trace_buffer!(),
            trace_reserve!("0"),
            trace_copy!("0"),
            "movq {both}, {next}",
            "movq {high}, {owner}",
            "punpcklqdq {both}, {high}",
            "movaps xmmword ptr [{scratch}], {both}";
            yields "xor eax, eax; xor edx, edx; xor {used:e}, {used:e}; xor {next:e}, {next:e}; \
                xorps {both}, {both}; xorps {high}, {high}";
            owner = in(reg) owner, from = in(reg) from, n = in(reg) n, limit = const TRACE_BUFFER,
            used = out(reg) _, next = out(reg) _, out("rax") _, out("rdx") _,
            both = out(xmm_reg) _, high = out(xmm_reg) _,
        )
    }
}
