//! Call stacks of debugging modes: a copy of the stack, taken when there is no time for more, and interpreted when
//! the process ends.
//!
//! The stack is not unwound by tables: they may be absent, and finding them takes locks. The report prints the
//! callers that frame pointers lead to and, where there are none, each word of the copy that looks like a return
//! address: it points into code, behind a call.
//!
//! # Invariants
//! 1. Only the owner of the slot that a trace belongs to writes it. A concurrent reader may see half of it; a number
//!    that is not an address of code is then skipped.
//! 2. Nothing here allocates. Code is read only where the kernel says that it is readable.

use core::cell::UnsafeCell;

use crate::sys::arch::stacks;
use crate::sys::file::stderr::Line;
use crate::sys::file::{File, OWN_MAPS};
use crate::sys::thread::stack::{self, NAME_BYTES, REGISTERS};

const WORDS: usize = 500;
/// Indices of registers in a trace.
const PROGRAM_COUNTER: usize = 0;
const STACK_POINTER: usize = 1;
const FRAME_POINTER: usize = 2;
/// The most callers that are printed.
const MOST_FRAMES: usize = 32;

/// A trace, one page long. All bytes 0 is an empty one.
pub(super) struct CallStack(UnsafeCell<Moment>);

// SAFETY: plain words, which only the trace's owner writes (1).
unsafe impl Sync for CallStack {}

#[repr(C)]
struct Moment {
    registers: [u64; REGISTERS],
    /// Bytes of the stack.
    len: u64,
    /// 0 if there is none.
    thread: u32,
    /// With the thread's number: whether the program counter is exact, rather than that of a caller.
    is_exact: u32,
    name: [u8; NAME_BYTES],
    stack: [u64; WORDS],
}

const _: () = assert!(size_of::<CallStack>() == 4096);

impl CallStack {
    /// Records the calling thread's stack.
    ///
    /// # Safety
    /// - The caller owns the trace.
    #[inline(never)]
    pub(super) unsafe fn take(&self) {
        // SAFETY: the caller owns the trace.
        let moment = unsafe { &mut *self.0.get() };
        (moment.thread, moment.name) = stack::this_thread();
        moment.is_exact = 0;
        // SAFETY: room for this many bytes.
        let copied = unsafe { stack::copy(moment.stack.as_mut_ptr().cast(), WORDS * 8) };
        (moment.registers, moment.len) = match copied {
            Some((registers, len)) => (registers, len as u64),
            None => ([0; REGISTERS], 0),
        };
    }

    /// Records the calling thread's stack at the point where a signal interrupted it.
    ///
    /// # Safety
    /// - The caller owns the trace.
    pub(super) unsafe fn take_interrupted(&self, registers: [u64; REGISTERS]) {
        // SAFETY: the caller owns the trace.
        let moment = unsafe { &mut *self.0.get() };
        (moment.thread, moment.name) = stack::this_thread();
        (moment.registers, moment.is_exact) = (registers, 1);
        let (to, from) = (moment.stack.as_mut_ptr().cast(), registers[STACK_POINTER] as usize);
        // SAFETY: room for this many bytes; the kernel checks the source addresses.
        moment.len = unsafe { stack::copy_by_kernel(to, from, WORDS * 8) }.unwrap_or(0) as u64;
    }

    /// Prints the trace below a headline, which the thread's name and number complete.
    pub(super) fn print(&self, headline: &str, maps: &Maps) {
        // SAFETY: initialised, as zero is valid; see (1) for races.
        let moment = unsafe { &*self.0.get() };
        let name = moment.name.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = core::str::from_utf8(name).unwrap_or("?");
        Line::print(format_args!("  {headline} thread {} ({name}):\n", moment.thread));
        let mut nth = 0;
        if moment.is_exact != 0 {
            maps.print(nth, moment.registers[PROGRAM_COUNTER] as usize, false, true);
            nth += 1;
        }
        // The caller of a function that has not stored it.
        let link = stacks::LINK.filter(|_| moment.is_exact != 0);
        let link = link.map(|at| stacks::return_address(moment.registers[at]));
        if let Some(caller) = link.filter(|caller| maps.is_behind_a_call(*caller)) {
            maps.print(nth, caller, true, false);
            nth += 1;
        }
        moment.for_each_caller(maps, |address, is_certain| {
            maps.print(nth, address, true, is_certain);
            nth += 1;
            nth < MOST_FRAMES
        });
    }
}

impl Moment {
    /// Calls `f` with each return address, innermost first, and whether frame pointers led there, until it returns
    /// false.
    fn for_each_caller(&self, maps: &Maps, mut f: impl FnMut(usize, bool) -> bool) {
        let words = &self.stack[..(self.len as usize / 8).min(WORDS)];
        // The index of the word at which a frame begins: the saved frame pointer, followed by the return address.
        let place = |frame: u64| {
            let offset = frame.wrapping_sub(self.registers[STACK_POINTER]) as usize;
            (offset % 8 == 0).then_some(offset / 8).filter(|at| at + 1 < words.len())
        };
        let mut frame = place(self.registers[FRAME_POINTER]);
        let mut is_led = false;
        for (nth, word) in words.iter().enumerate() {
            let address = stacks::return_address(*word);
            let is_caller = match frame {
                Some(at) if at + 1 == nth => {
                    is_led = maps.is_code(address);
                    frame = place(words[at]).filter(|next| is_led && *next > at);
                    is_led &= frame.is_some();
                    maps.is_code(address).then_some(true)
                }
                _ if is_led => None,
                _ => maps.is_behind_a_call(address).then_some(false),
            };
            if is_caller.is_some_and(|is_certain| !f(address, is_certain)) {
                return;
            }
        }
    }
}

const MOST_MAPS: usize = 4096;
const TEXT: usize = 512 << 10;

/// The executable mappings of the process. All bytes 0 is none.
pub(super) struct Maps {
    count: usize,
    all: [Map; MOST_MAPS],
    text: [u8; TEXT],
}

/// An executable mapping.
#[derive(Clone, Copy)]
struct Map {
    start: usize,
    end: usize,
    is_readable: bool,
    /// The address that file offsets are relative to.
    base: usize,
    /// The position of the path in the text.
    path: (usize, usize),
}

impl Maps {
    /// Reads the process's mappings; none if they cannot be read.
    pub(super) fn read(&mut self) {
        self.count = 0;
        let Ok(maps) = File::open_of_kernel(OWN_MAPS) else { return };
        let mut len = 0;
        while len < TEXT {
            match maps.read(&mut self.text[len..TEXT]) {
                Ok(read) if read > 0 => len += read,
                _ => break,
            }
        }
        self.parse(len);
    }

    fn parse(&mut self, len: usize) {
        let (mut from, mut last) = (0, Mapping::default());
        while let Some(line) = self.text[from..len].split(|byte| *byte == b'\n').next() {
            let next = from + line.len() + 1;
            if let Some(mut mapping) = Mapping::of_line(line, from) {
                let is_same = self.text_of(last.path) == self.text_of(mapping.path);
                // All mappings of a file are relative to its first one.
                mapping.base = match is_same {
                    true => last.base,
                    false => mapping.start.wrapping_sub(mapping.offset),
                };
                if mapping.is_code && self.count < MOST_MAPS {
                    let is_file = self.text_of(mapping.path).first() == Some(&b'/');
                    let first = if is_same { last } else { mapping };
                    self.all[self.count] = Map {
                        start: mapping.start,
                        end: mapping.end,
                        is_readable: mapping.is_readable,
                        base: if is_file && first.is_fixed() { 0 } else { mapping.base },
                        path: mapping.path,
                    };
                    self.count += 1;
                }
                last = if is_same { Mapping { path: mapping.path, ..last } } else { mapping };
            }
            if next >= len {
                break;
            }
            from = next;
        }
    }

    fn text_of(&self, (from, to): (usize, usize)) -> &[u8] {
        self.text.get(from..to).unwrap_or_default()
    }

    fn of(&self, address: usize) -> Option<&Map> {
        self.all[..self.count].iter().find(|map| (map.start..map.end).contains(&address))
    }

    fn is_code(&self, address: usize) -> bool {
        self.of(address).is_some()
    }

    /// Returns `true` if the address follows a call instruction.
    fn is_behind_a_call(&self, address: usize) -> bool {
        const LONGEST: usize = 7;
        let map = self.of(address).filter(|map| map.is_readable && address - map.start >= LONGEST);
        if map.is_none() {
            return false;
        }
        // SAFETY: within a readable mapping (2).
        let code = unsafe {
            core::ptr::with_exposed_provenance::<[u8; LONGEST]>(address - LONGEST).read()
        };
        stacks::ends_with_a_call(code)
    }

    fn print(&self, nth: usize, address: usize, is_return: bool, is_certain: bool) {
        let mark = if is_certain { "" } else { "?" };
        match self.of(address) {
            Some(map) if map.path.0 < map.path.1 => {
                let path = core::str::from_utf8(self.text_of(map.path)).unwrap_or("?");
                // An address within the call, not behind it, where another source line may begin.
                let at = address - map.base - usize::from(is_return);
                Line::print(format_args!("    #{nth}{mark} {address:#x} ({path}+{at:#x})\n"));
            }
            _ => Line::print(format_args!("    #{nth}{mark} {address:#x}\n")),
        }
    }
}

/// A line of `/proc/self/maps`.
#[derive(Clone, Copy, Default)]
struct Mapping {
    start: usize,
    end: usize,
    offset: usize,
    is_readable: bool,
    is_code: bool,
    base: usize,
    path: (usize, usize),
}

impl Mapping {
    /// Parses a line such as `55d0c8a00000-55d0c8a21000 r-xp 00002000 fd:01 123      /path`; `from` is the position
    /// of the line in the text.
    fn of_line(line: &[u8], from: usize) -> Option<Mapping> {
        let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        let mut ends = fields.next()?.split(|byte| *byte == b'-').map(hexadecimal);
        let (start, end) = (ends.next()??, ends.next()??);
        let access = fields.next()?;
        let offset = hexadecimal(fields.next()?)?;
        // The path is the rest of the line, including spaces.
        let path = line.iter().position(|byte| matches!(byte, b'/' | b'[')).unwrap_or(line.len());
        Some(Mapping {
            start,
            end,
            offset,
            is_readable: access.first() == Some(&b'r'),
            is_code: access.get(2) == Some(&b'x'),
            base: start,
            path: (from + path, from + line.len()),
        })
    }

    /// Returns `true` if this is the start of a program that is loaded at the addresses in its file.
    fn is_fixed(&self) -> bool {
        if self.offset != 0 || !self.is_readable {
            return false;
        }
        // SAFETY: a readable mapping (2), at least a page long.
        let head = unsafe { core::ptr::with_exposed_provenance::<[u8; 18]>(self.start).read() };
        head.starts_with(b"\x7fELF") && head[16] == 2
    }
}

fn hexadecimal(text: &[u8]) -> Option<usize> {
    let text = core::str::from_utf8(text).ok()?;
    usize::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests;
