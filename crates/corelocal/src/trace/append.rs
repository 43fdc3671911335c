//! Records that a thread appends to a buffer which it alone has.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use super::buffer::Buffer;
use super::encode::Packed;
use super::format::{CONTEXT, MOST_WORDS};
use super::{context, time};
use crate::rseq;
use crate::sys::thread::id;

/// Appends an event of the calling thread, whose fields are words, to a buffer that was just begun.
pub(super) fn append_event(buffer: &Buffer, site: u16, fields: &[u64; 2]) {
    let words = Packed::words(site, &(&fields[0], (&fields[1], ())));
    append(buffer, time::of_context(), &thread_context().0[1..]);
    append(buffer, time::of_event(), &[words[0], words[1], words[2]].map(MaybeUninit::new));
}

/// Returns a record of the calling thread: its id, its cpu, its name, its span; and the cpu. The first word is for the
/// time.
pub(super) fn thread_context() -> ([MaybeUninit<u64>; 6], u32) {
    let mut name = [0_u64; 2];
    // SAFETY: room for 16 bytes, which the kernel ends by a zero.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let cpu = rseq::cpu_id();
    let first = u64::from(cpu) << 32 | 5 << 16 | u64::from(CONTEXT);
    let thread = id::current().into();
    let words = [0, first, thread, name[0], name[1], context::span().as_raw()];
    (words.map(MaybeUninit::new), cpu)
}

/// Appends this time and these words to a buffer of the calling thread that has room for them.
pub(super) fn append(buffer: &Buffer, time: u64, words: &[MaybeUninit<u64>]) {
    let used = buffer.used.load(Ordering::Relaxed);
    let at = used as usize / 8;
    buffer.word(at).store(time, Ordering::Relaxed);
    for (nth, word) in words.iter().take(MOST_WORDS).enumerate() {
        // SAFETY: the words of a finished record are initialised, as are those of `thread_context`.
        let word = unsafe { word.assume_init() };
        buffer.word(at + 1 + nth).store(word, Ordering::Relaxed);
    }
    // Release: partners are the Acquires in dump.rs.
    buffer.used.store(used + 8 * (1 + words.len()) as u64, Ordering::Release);
}
