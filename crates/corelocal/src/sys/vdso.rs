//! Functions of the vDSO, the small shared library that the kernel maps into every process.
//!
//! libc keeps its own pointers to them to itself; a clock or a `getcpu` without libc's detour looks
//! them up here. The image is not linked, so this walks its dynamic symbols by hand: all reads go
//! through one slice and are bounds-checked, and a damaged image yields `None`.
//!
//! Symbol versions are not compared: no vDSO defines a name twice.
//!
//! Invariant: inside `Image` every offset is checked against the slice before use; the only unsafe
//! code makes that slice.
//!
//! Manual page: vdso(7). Format: the System V ABI, chapters 4 and 5.

use core::slice;

use super::process::environment;

/// Returns the address of the vDSO's function `name`; `None` if there is no vDSO (valgrind hides it, as does
/// the boot parameter `vdso=0`) or it has no such function.
///
/// The pointer stays valid as long as the process; it is the caller's to give it the right type.
/// A look-up costs microseconds: keep the result.
///
/// ```
/// # #[cfg(target_arch = "x86_64")]
/// let getcpu = corelocal::sys::vdso::symbol("__vdso_getcpu");
/// ```
pub fn symbol(name: &str) -> Option<*const ()> {
    let base = environment::auxiliary(libc::AT_SYSINFO_EHDR);
    if base == 0 {
        return None;
    }
    let first_page = base as *const u8;
    // SAFETY: AT_SYSINFO_EHDR is the address of the vDSO's ELF header. The mapping is whole pages,
    // readable, and is neither changed nor unmapped while the process runs.
    let head = unsafe { slice::from_raw_parts(first_page, 4096) };
    let length = Image(head).mapped_length()?;
    // SAFETY: the kernel maps the whole image at once, and this is the part that it loaded.
    let image = unsafe { slice::from_raw_parts(first_page, length) };
    Image(image).symbol(name.as_bytes()).map(|offset| (base + offset) as *const ())
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const STT_FUNC: u8 = 2;
const SYMBOL_BYTES: usize = 24;
const HEADER_BYTES: usize = 56;

/// An ELF image of 64 bits in the machine's byte order, as loaded in memory: what addresses in it
/// are relative to is the address of its first PT_LOAD segment.
#[derive(Clone, Copy)]
struct Image<'a>(&'a [u8]);

/// The part of a program header that is used here.
struct Segment {
    kind: u32,
    address: u64,
    memory_bytes: u64,
}

impl Image<'_> {
    fn bytes<const N: usize>(self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..offset.checked_add(N)?)?.try_into().ok()
    }

    fn half(self, offset: usize) -> Option<u16> {
        self.bytes(offset).map(u16::from_ne_bytes)
    }

    fn word(self, offset: usize) -> Option<u32> {
        self.bytes(offset).map(u32::from_ne_bytes)
    }

    fn long(self, offset: usize) -> Option<u64> {
        self.bytes(offset).map(u64::from_ne_bytes)
    }

    fn segments(self) -> Option<impl Iterator<Item = Segment>> {
        let class_64 = 2;
        let byte_order = if cfg!(target_endian = "little") { 1 } else { 2 };
        let [m0, m1, m2, m3, class, order] = self.bytes(0)?;
        if [m0, m1, m2, m3] != *b"\x7fELF" || class != class_64 || order != byte_order {
            return None;
        }
        let table = usize::try_from(self.long(32)?).ok()?;
        let entry_bytes = usize::from(self.half(54)?);
        let entries = usize::from(self.half(56)?);
        if entry_bytes < HEADER_BYTES {
            return None;
        }
        Some((0..entries).map_while(move |index| {
            let entry = table.checked_add(index * entry_bytes)?;
            Some(Segment {
                kind: self.word(entry)?,
                address: self.long(entry.checked_add(16)?)?,
                memory_bytes: self.long(entry.checked_add(40)?)?,
            })
        }))
    }

    /// Returns what the image's addresses are relative to.
    fn load_address(self) -> Option<u64> {
        self.segments()?.find(|segment| segment.kind == PT_LOAD).map(|segment| segment.address)
    }

    /// Returns the offset, in the image, of an address that the image mentions.
    fn offset(self, address: u64) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.load_address()?)?).ok()?;
        (offset < self.0.len()).then_some(offset)
    }

    /// Returns how long the image is in memory.
    fn mapped_length(self) -> Option<usize> {
        let start = self.load_address()?;
        let loads = self.segments()?.filter(|segment| segment.kind == PT_LOAD);
        let end = loads.filter_map(|load| load.address.checked_add(load.memory_bytes)).max()?;
        usize::try_from(end.checked_sub(start)?).ok()
    }

    /// Returns the offset of the function `name`.
    fn symbol(self, name: &[u8]) -> Option<usize> {
        let tables = self.tables()?;
        (0..tables.symbol_count).find_map(|index| {
            let symbol = tables.symbols.checked_add(index.checked_mul(SYMBOL_BYTES)?)?;
            let [kind] = self.bytes(symbol.checked_add(4)?)?;
            let section = self.half(symbol.checked_add(6)?)?;
            let is_defined_function = kind & 0xf == STT_FUNC && section != 0;
            let string = tables.strings.checked_add(self.word(symbol)? as usize)?;
            if is_defined_function && self.holds_string(string, name) {
                self.offset(self.long(symbol.checked_add(8)?)?)
            } else {
                None
            }
        })
    }

    /// Returns `true` if `string`, ended by NUL, is at `offset`.
    fn holds_string(self, offset: usize, string: &[u8]) -> bool {
        let tail = self.0.get(offset..).and_then(|tail| tail.strip_prefix(string));
        tail.is_some_and(|rest| rest.first() == Some(&0))
    }

    fn tables(self) -> Option<Tables> {
        let dynamic = self.segments()?.find(|segment| segment.kind == PT_DYNAMIC)?;
        let mut entry = self.offset(dynamic.address)?;
        let (mut symbols, mut strings, mut hash, mut gnu_hash) = (None, None, None, None);
        loop {
            let value = self.long(entry.checked_add(8)?)?;
            match self.long(entry)? {
                DT_NULL => break,
                DT_SYMTAB => symbols = self.offset(value),
                DT_STRTAB => strings = self.offset(value),
                DT_HASH => hash = self.offset(value),
                DT_GNU_HASH => gnu_hash = self.offset(value),
                _ => {}
            }
            entry = entry.checked_add(16)?;
        }
        // The number of symbols is nowhere but in the hash tables. The older one has it outright.
        let symbol_count = match (hash, gnu_hash) {
            (Some(hash), _) => self.word(hash.checked_add(4)?)? as usize,
            (None, Some(gnu_hash)) => self.gnu_symbol_count(gnu_hash)?,
            (None, None) => return None,
        };
        // A damaged count must not make the search long.
        let symbol_count = symbol_count.min(self.0.len() / SYMBOL_BYTES);
        Some(Tables { symbols: symbols?, strings: strings?, symbol_count })
    }

    /// Returns the number of symbols by a DT_GNU_HASH table: a header of four words, the bloom filter, the
    /// buckets with their first symbols, then one word per hashed symbol whose lowest bit ends a
    /// bucket. The last symbol is the one that ends the bucket that begins last.
    fn gnu_symbol_count(self, table: usize) -> Option<usize> {
        let buckets = self.word(table)? as usize;
        let first_hashed = self.word(table.checked_add(4)?)? as usize;
        let bloom_longs = self.word(table.checked_add(8)?)? as usize;
        let bucket_at = table.checked_add(16)?.checked_add(bloom_longs.checked_mul(8)?)?;
        let chain_at = bucket_at.checked_add(buckets.checked_mul(4)?)?;
        let mut last = 0;
        for bucket in 0..buckets {
            last = last.max(self.word(bucket_at.checked_add(bucket.checked_mul(4)?)?)? as usize);
        }
        if last < first_hashed {
            return Some(first_hashed);
        }
        loop {
            let link = (last - first_hashed).checked_mul(4)?;
            let ends_bucket = self.word(chain_at.checked_add(link)?)? & 1 != 0;
            last = last.checked_add(1)?;
            if ends_bucket {
                return Some(last);
            }
        }
    }
}

/// The dynamic symbols, as offsets in the image.
struct Tables {
    symbols: usize,
    strings: usize,
    symbol_count: usize,
}

#[cfg(test)]
mod tests;
