//! What an encoding must tell so that `writer.rs` and `reader.rs` can keep its page in a file.

use super::lock_file::Annex;
use super::sequence::Mark;
use super::{Encoding, ReadError, Refusal};

/// The bytes of every file and the length of every mapping: one page.
pub(super) const FILE_BYTES: usize = 4096;

/// Implemented by the pages of this crate, and by nothing else: a page is made of atomics alone, so that
/// any bytes are one, and is at most `ANNEX_AT` bytes long.
pub trait Layout: Sized + Send + Sync + 'static {
    /// The encoding's number in the annex's tag. It never changes.
    const NUMBER: u8;
    /// The annex's offset in a file: a multiple of 8, at most `FILE_BYTES` less its size.
    const ANNEX_AT: usize;
    /// Whether only the annex's tag tells that a file is of this encoding.
    const NEEDS_ANNEX: bool = false;

    /// Checks whether a file that begins so is of this encoding.
    fn examine(head: &Head<'_>) -> Result<(), Refusal>;

    /// Writes what a new file has but zeros.
    fn format(image: &mut [u8; FILE_BYTES]);

    /// Returns the sequence number now.
    fn mark(&self, annex: Option<&Annex>) -> Mark;

    /// Returns `true` if nothing has begun to be published since.
    fn is_current(&self, annex: Option<&Annex>, mark: Mark) -> bool;

    /// Returns what the page says, and what `clock` says at a moment when it says that.
    fn read_with<R>(
        &self,
        annex: Option<&Annex>,
        clock: impl FnMut() -> R,
    ) -> Result<(Mark, R, Self::Content), ReadError>
    where
        Self: Encoding;

    /// Returns what the page says.
    fn read(&self, annex: Option<&Annex>) -> Result<(Mark, Self::Content), ReadError>
    where
        Self: Encoding,
    {
        self.read_with(annex, || ()).map(|(mark, (), content)| (mark, content))
    }

    /// Publishes.
    fn publish(&self, annex: Option<&Annex>, content: &Self::Content)
    where
        Self: Encoding;
}

/// Returns the page at an address; `None` if the address is null or not aligned.
///
/// # Safety
/// - A non-null, aligned address is that of a page, readable for as long as `'a`.
/// - Other writers change it by atomic stores only.
pub(super) unsafe fn at<'a, P: Layout>(address: *const u8) -> Option<&'a P> {
    let page = address.cast::<P>();
    if page.is_null() || !page.is_aligned() {
        return None;
    }
    // SAFETY: the caller guarantees a readable, shared page; any bytes are valid (`Layout`).
    Some(unsafe { &*page })
}

/// The first bytes of a file, and how long it is.
///
/// Invariant: there are no more bytes than the file has by its status. What more could be read is no content that it
/// stores.
#[derive(Debug)]
pub struct Head<'a> {
    bytes: &'a [u8],
    file_len: u64,
}

impl<'a> Head<'a> {
    /// Creates that of a file of this length, from which these bytes were read.
    pub(super) fn new(bytes: &'a [u8], file_len: u64) -> Head<'a> {
        let len = usize::try_from(file_len).map_or(bytes.len(), |len| len.min(bytes.len()));
        Head { bytes: &bytes[..len], file_len }
    }

    /// Returns the length of the file. For a device it is unknown: the maximum.
    pub(super) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Returns the number of bytes of the first page that exist.
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes.get(at..at + 4)?.try_into().ok()?))
    }

    pub(super) fn half(&self, at: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(self.bytes.get(at..at + 2)?.try_into().ok()?))
    }

    /// Returns `true` if the annex of the encoding `P` is there.
    pub(super) fn has_annex<P: Layout>(&self) -> bool {
        self.bytes.len() >= P::ANNEX_AT + size_of::<Annex>()
            && self.bytes[P::ANNEX_AT..].starts_with(&Annex::tag(P::NUMBER))
    }
}
