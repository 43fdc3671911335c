//! Fields of events, as bytes of a record.
//!
//! Fields whose types have a length are packed into up to [`FIXED`] words, which stay in registers. Others go through
//! an [`Encoder`], in a function of its own, so that its words are not on the stack while a span is open.
//!
//! # Invariants
//! 1. The encoder writes within its words, and cuts what is longer.
//! 2. The words of a finished record are initialised. The first four bytes of fields lie in the upper half of the first
//!    word, whose lower half is written last.

mod fields;

pub use fields::{DebugText, DisplayText};

use core::fmt;
use core::mem::MaybeUninit;

use super::format::{FieldType, MOST_WORDS, Type, WAS_CUT};

/// The place where fields begin, in bytes.
const FIRST: usize = 4;

/// A record in the making: its words without the time.
pub struct Encoder {
    /// The last one is room for the zeros behind the others.
    words: [MaybeUninit<u64>; MOST_WORDS + 1],
    /// Bytes in use.
    at: usize,
}

impl Encoder {
    /// Creates a record without fields.
    #[inline(always)]
    #[allow(clippy::new_without_default, reason = "of the macro alone")]
    pub const fn new() -> Encoder {
        Encoder { words: [MaybeUninit::uninit(); MOST_WORDS + 1], at: FIRST }
    }

    #[inline(always)]
    pub(super) fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if self.at + N <= 8 * MOST_WORDS {
            // SAFETY: within the words (1).
            unsafe {
                self.words.as_mut_ptr().cast::<u8>().add(self.at).cast::<[u8; N]>().write(bytes)
            };
            self.at += N;
        } else {
            self.fill();
        }
    }

    /// Leaves no room: else a later, smaller field would be read in place of one that does not fit.
    #[cold]
    fn fill(&mut self) {
        while self.at < 8 * MOST_WORDS {
            self.put([0]);
        }
    }

    /// Returns the length of so many bytes, of which as many follow as there is room for: whole elements of this size.
    /// Returns their number.
    #[inline(always)]
    fn put_len(&mut self, bytes: usize, element: usize) -> usize {
        let room = (8 * MOST_WORDS).saturating_sub(self.at + 2);
        let len = if bytes <= room { bytes } else { room - room % element };
        let cut = if len < bytes { WAS_CUT } else { 0 };
        self.put((len as u16 | cut).to_le_bytes());
        len
    }

    /// Writes a value of a type that is known at run time: its letter, and the value.
    pub fn put_any<T: Field + ?Sized>(&mut self, value: &T) {
        self.put([T::TYPE.of as u8]);
        value.put(self);
    }

    /// In place of such a value: there is none.
    pub fn put_missing(&mut self) {
        self.put([0]);
    }

    /// Writes a text of a type that is known at run time.
    pub fn put_any_text(&mut self, text: fmt::Arguments<'_>) {
        self.put([Type::Str as u8]);
        self.put_text(text);
    }

    /// Writes a string: as much of the text as there is room for. Nothing is allocated.
    pub(super) fn put_text(&mut self, text: fmt::Arguments<'_>) {
        let at = self.at;
        self.put([0; 2]);
        let mut writer = Text { encoder: self, was_cut: false };
        // A value that fails to format is cut there.
        let is_whole = fmt::write(&mut writer, text).is_ok() && !writer.was_cut;
        let len = self.at.saturating_sub(at + 2) as u16 | if is_whole { 0 } else { WAS_CUT };
        if at + 2 <= 8 * MOST_WORDS {
            // SAFETY: within the words (1).
            let to = unsafe { self.words.as_mut_ptr().cast::<u8>().add(at) };
            // SAFETY: two bytes of them, written above.
            unsafe { to.cast::<[u8; 2]>().write(len.to_le_bytes()) };
        }
    }

    /// Writes a length, and as many bytes as there is room for.
    #[inline]
    fn put_some(&mut self, bytes: &[u8]) {
        let len = self.put_len(bytes.len(), 1);
        self.put_bytes(&bytes[..len]);
    }

    /// Writes as many of these bytes as there is room for.
    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(8 * MOST_WORDS - self.at);
        if len > 0 {
            // SAFETY: as many bytes as there is room for (1).
            unsafe {
                let to = self.words.as_mut_ptr().cast::<u8>().add(self.at);
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len);
            }
            self.at += len;
        }
    }

    /// Returns the words, the first of which says what happened at which site.
    #[inline(always)]
    pub(super) fn finish(&mut self, what: u16) -> &[MaybeUninit<u64>] {
        let n = self.at.div_ceil(8);
        // SAFETY: `at` is at most the length of all words but the last one (1).
        unsafe {
            self.words.as_mut_ptr().cast::<u8>().add(self.at).cast::<[u8; 8]>().write([0; 8])
        };
        let first = u32::from(what) | (n as u32) << 16;
        let words = self.words.as_mut_ptr();
        // SAFETY: the lower half of the first word (2).
        unsafe { words.cast::<u32>().write(first.to_le()) };
        // SAFETY: at most as many as there are (1).
        unsafe { core::slice::from_raw_parts(words, n) }
    }
}

/// Writes to the end of a record.
struct Text<'e> {
    encoder: &'e mut Encoder,
    was_cut: bool,
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let before = self.encoder.at;
        self.encoder.put_bytes(text.as_bytes());
        self.was_cut |= self.encoder.at - before < text.len();
        Ok(())
    }
}

/// A value that an event can have as a field.
///
/// Sealed: the types are those of [`Type`], `char`, `String`, options of these, slices and arrays of numbers, and
/// references to these. Other values are recorded as texts, by `?value` or `%value`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the field of an event",
    label = "a field of type `{Self}`",
    note = "record its text: `field = ?value` uses `Debug`, `field = %value` uses `Display`"
)]
pub trait Field: sealed::Sealed {
    /// The type in the recording.
    const TYPE: FieldType;

    /// Returns the bits of a value whose type has a length.
    #[doc(hidden)]
    #[inline(always)]
    fn bits(&self) -> u64 {
        0
    }

    #[doc(hidden)]
    fn put(&self, into: &mut Encoder);
}

/// The most words of a record that is packed.
pub(super) const FIXED: usize = 4;

/// The fields of an event: a pair of the first one and the others, or none.
#[doc(hidden)]
pub trait Fields {
    /// The length of all in bytes; `None` if it differs from record to record.
    const LEN: Option<usize>;

    /// Packs them, from this byte on.
    fn pack(&self, words: &mut [u64; FIXED], at: usize);

    /// Appends them.
    fn put_all(&self, into: &mut Encoder);
}

impl Fields for () {
    const LEN: Option<usize> = Some(0);

    #[inline(always)]
    fn pack(&self, _: &mut [u64; FIXED], _: usize) {}

    #[inline(always)]
    fn put_all(&self, _: &mut Encoder) {}
}

impl<F: Field + ?Sized, R: Fields> Fields for (&F, R) {
    const LEN: Option<usize> = match (F::TYPE.size(), R::LEN) {
        (Some(first), Some(rest)) => Some(first + rest),
        _ => None,
    };

    #[inline(always)]
    fn pack(&self, words: &mut [u64; FIXED], at: usize) {
        let (Some(len), Some(shift)) = (F::TYPE.size(), Some(8 * (at % 8))) else { return };
        let bits = self.0.bits();
        words[at / 8] |= bits << shift;
        if at % 8 + len > 8 {
            words[at / 8 + 1] |= bits >> (64 - shift);
        }
        self.1.pack(words, at + len);
    }

    #[inline(always)]
    fn put_all(&self, into: &mut Encoder) {
        self.0.put(into);
        self.1.put_all(into);
    }
}

/// The words of a record of `Self::LEN` bytes of fields, and how many there are. `None` if they are not packed.
pub(super) struct Packed<F>(core::marker::PhantomData<F>);

impl<F: Fields> Packed<F> {
    /// The number of words of the record; 0 if its fields are not packed.
    pub(super) const WORDS: usize = match F::LEN {
        Some(len) if FIRST + len <= 8 * FIXED => (FIRST + len).div_ceil(8),
        _ => 0,
    };

    /// Returns the words, the first of which says what happened at which site.
    #[inline(always)]
    pub(super) fn words(what: u16, fields: &F) -> [u64; FIXED] {
        let mut words = [0; FIXED];
        words[0] = u64::from(what) | (Self::WORDS as u64) << 16;
        fields.pack(&mut words, FIRST);
        words
    }
}

pub(super) mod sealed {
    pub trait Sealed {}
}

/// Returns the type of a field's value, for the macro.
#[doc(hidden)]
pub const fn type_of<T: Field + ?Sized>(_: &T) -> FieldType {
    T::TYPE
}

#[cfg(test)]
mod tests;
