//! What the program of this process is: the name of its file, its arguments, its build id. Async-signal-safe.

use core::ffi::CStr;

use super::environment::auxiliary;
use crate::sys::errno::Errno;
use crate::sys::file::File;
use crate::sys::syscall::syscall;

/// The maximum length of a build id that is kept.
const MOST: usize = 32;

/// Calls `readlink("/proc/self/exe")`, see proc(5).
///
/// The name of the program's file without its folder, as much of it as fits. Returns its length; 0 if it is not known.
#[doc(alias = "readlink")]
pub(crate) fn name(to: &mut [u8]) -> usize {
    const EXE: &CStr = c"/proc/self/exe";
    let mut path = [0_u8; 4096];
    let here = libc::AT_FDCWD as usize;
    let args = [here, EXE.as_ptr() as usize, path.as_mut_ptr() as usize, path.len(), 0, 0];
    // SAFETY: a path that ends in a zero byte, and room for so many bytes.
    let len = unsafe { syscall(libc::SYS_readlinkat, args) }.unwrap_or(0).min(path.len());
    let name = path[..len].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let len = name.len().min(to.len());
    to[..len].copy_from_slice(&name[..len]);
    len
}

/// Returns the arguments with the program's own name, each with a zero byte behind it, as many bytes as fit. Returns
/// their number.
pub(crate) fn arguments(to: &mut [u8]) -> Result<usize, Errno> {
    File::open_of_kernel(c"/proc/self/cmdline")?.read(to)
}

/// A program header of 64 bits (elf(5)).
#[cfg(target_pointer_width = "64")]
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_len: u64,
    len: u64,
    align: u64,
}

/// Returns the build id (ld(1), `--build-id`), as much of it as fits. Returns its length; 0 if there is none.
#[cfg(target_pointer_width = "64")]
pub(crate) fn build_id(to: &mut [u8; MOST]) -> usize {
    const NOTE: u32 = 4;
    const SELF: u32 = 6;
    const BUILD_ID: u32 = 3;
    let (at, count) = (auxiliary(libc::AT_PHDR), auxiliary(libc::AT_PHNUM));
    if at == 0 || auxiliary(libc::AT_PHENT) != size_of::<Header>() {
        return 0;
    }
    let first = core::ptr::with_exposed_provenance::<Header>(at);
    // SAFETY: the kernel says where the program's headers are, and how many. They stay.
    let headers = unsafe { core::slice::from_raw_parts(first, count) };
    // Where the program is, relative to the addresses in its file.
    let Some(own) = headers.iter().find(|header| header.kind == SELF) else { return 0 };
    let base = at.wrapping_sub(own.address as usize);
    for header in headers.iter().filter(|header| header.kind == NOTE) {
        let place = base.wrapping_add(header.address as usize);
        let first = core::ptr::with_exposed_provenance::<u8>(place);
        // SAFETY: the notes of the program, which are loaded for reading and stay.
        let mut notes = unsafe { core::slice::from_raw_parts(first, header.len as usize) };
        let padded = |len: u32| (len as usize).next_multiple_of(4);
        let word = |notes: &[u8], at: usize| {
            let bytes = notes.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(bytes))
        };
        while let (Some(name_len), Some(len), Some(kind)) =
            (word(notes, 0), word(notes, 4), word(notes, 8))
        {
            let name = notes.get(12..12 + name_len as usize);
            let at = 12 + padded(name_len);
            let Some(id) = notes.get(at..at + len as usize) else { break };
            if (kind, name) == (BUILD_ID, Some(&b"GNU\0"[..])) {
                let len = id.len().min(MOST);
                to[..len].copy_from_slice(&id[..len]);
                return len;
            }
            notes = notes.get(at + padded(len)..).unwrap_or_default();
        }
    }
    0
}

/// Returns 0: the program headers have another form here.
#[cfg(not(target_pointer_width = "64"))]
pub(crate) fn build_id(_: &mut [u8; MOST]) -> usize {
    0
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use std::string::ToString as _;

    #[test]
    fn of_this_program() {
        let own = std::env::current_exe().unwrap();
        let mut to = [0; 64];
        let len = name(&mut to);
        let expected = own.file_name().unwrap().to_string_lossy().into_owned();
        assert!(expected.as_bytes().starts_with(&to[..len]) && len > 0);
        let mut to = [0; 4096];
        let len = arguments(&mut to).unwrap();
        let first = std::env::args().next().unwrap();
        assert!(to[..len].starts_with(first.to_string().as_bytes()));
        let mut id = [0; MOST];
        let len = build_id(&mut id);
        // A linker that makes none is rare.
        let bytes = std::fs::read(own).unwrap();
        assert!(len == 0 || bytes.windows(len).any(|part| part == &id[..len]));
    }
}
