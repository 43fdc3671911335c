//! Answers questions about the stacks of a program from its files.
//!
//! Invariants:
//! - Each file is read at most once, when an address in it is asked for first. All files together have at most
//!   [`MOST_READ`] bytes; those that exceed it are reported by [`Program::complaint`].
//! - A walk has at most [`MOST_FRAMES`] calls.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::io::ErrorKind;

use super::module::Module;
use super::unwind::{self, Registers, Stack, Step};
use super::{Files, Frame, Function, MOST_FRAMES, OnDisk};
use crate::input::read_regular;

/// How many bytes of files are read for one program.
pub const MOST_READ: u64 = 8 << 30;

/// The files of a program in memory.
pub(super) struct Contents {
    files: Vec<OnceCell<Option<Vec<u8>>>>,
    /// How many bytes may still be read.
    left: Cell<u64>,
    /// Files that were too large for that, by their place among the files.
    too_large: RefCell<Vec<usize>>,
}

impl Contents {
    /// Nothing is read yet.
    pub(super) fn of(files: usize) -> Contents {
        Contents {
            files: (0..files).map(|_| OnceCell::new()).collect(),
            left: Cell::new(MOST_READ),
            too_large: RefCell::default(),
        }
    }

    fn get(&self, nth: usize, file: &OnDisk) -> Option<&[u8]> {
        self.files[nth].get_or_init(|| self.read(nth, file)).as_deref()
    }

    fn read(&self, nth: usize, file: &OnDisk) -> Option<Vec<u8>> {
        for path in file.paths() {
            match read_regular(&path, self.left.get()) {
                Ok(bytes) => {
                    self.left.set(self.left.get() - bytes.len() as u64);
                    return Some(bytes);
                }
                Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                    self.too_large.borrow_mut().push(nth);
                    return None;
                }
                Err(_) => {}
            }
        }
        None
    }
}

/// A call, as a walk finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Call {
    /// Where it goes on.
    at: u64,
    /// An address in the instruction that calls.
    inside: u64,
}

/// A program's files, ready to be asked.
pub struct Program<'a> {
    files: &'a Files,
    modules: Vec<OnceCell<Option<Module<'a>>>>,
    /// What was found out of calls so far: many stacks have most of them in common.
    known: RefCell<HashMap<Call, Frame>>,
}

impl<'a> Program<'a> {
    /// Of these files, which are read when they are needed.
    pub fn new(files: &'a Files) -> Program<'a> {
        let modules = files.files.iter().map(|_| OnceCell::new()).collect();
        Program { files, modules, known: RefCell::default() }
    }

    /// The calls that lead to where the registers say, the innermost first. `stack` begins at the stack pointer.
    pub fn callers(&self, registers: Registers, stack: &[u64]) -> Vec<Frame> {
        self.calls(registers, stack).into_iter().map(|call| self.frame(call)).collect()
    }

    /// The static that lies at an address, and how far into it.
    pub fn variable_at(&self, address: u64) -> Option<(String, u64)> {
        let modules = (0..self.modules.len()).filter_map(|file| self.module(file));
        modules.filter(|module| module.holds(address)).find_map(|it| it.variable_at(address))
    }

    /// The reason for names that are missing in the answers so far; `None` if all files could be read whole.
    pub fn complaint(&self) -> Option<String> {
        let too_large = self.files.contents.too_large.borrow();
        let first = too_large.first()?;
        Some(format!(
            "names of {} files are left out, {:?} first: {} MiB of a program's files are read in all",
            too_large.len(),
            self.files.files[*first].path,
            MOST_READ >> 20,
        ))
    }

    fn calls(&self, registers: Registers, stack: &[u64]) -> Vec<Call> {
        let stack = Stack::new(registers.stack_pointer(), stack);
        let mut calls = Vec::new();
        let (mut registers, mut is_call) = (registers, false);
        while calls.len() < MOST_FRAMES {
            let at = registers.program_counter();
            if at == 0 {
                break;
            }
            // A call's return address may be the next function's.
            let inside = at - u64::from(is_call);
            calls.push(Call { at, inside });
            let step = self
                .code_at(inside)
                .and_then(|(_, module)| module.caller(inside, &registers, &stack))
                .unwrap_or_else(|| unwind::by_frame_pointer(&registers, &stack));
            match step {
                Step::Call(caller) => (registers, is_call) = (caller, true),
                Step::Interrupted(caller) => (registers, is_call) = (caller, false),
                Step::End => break,
            }
        }
        calls
    }

    fn frame(&self, call: Call) -> Frame {
        let known = self.known.borrow().get(&call).cloned();
        known.unwrap_or_else(|| {
            let found = self.code_at(call.inside);
            let mut functions =
                found.map(|(_, module)| module.functions_at(call.inside)).unwrap_or_default();
            if functions.is_empty() {
                functions.push(Function { name: None, source: None });
            }
            let file = found.map(|(file, _)| self.files.files[file].path.clone());
            let frame = Frame { address: call.at, file, functions };
            self.known.borrow_mut().insert(call, frame.clone());
            frame
        })
    }

    fn code_at(&self, address: u64) -> Option<(usize, &Module<'a>)> {
        let file = self.files.areas.find(address)?;
        Some((file, self.module(file)?))
    }

    fn module(&self, file: usize) -> Option<&Module<'a>> {
        let read = || {
            let (files, on_disk) = (self.files, &self.files.files[file]);
            Module::parse(&on_disk.map, files.contents.get(file, on_disk)?)
        };
        self.modules[file].get_or_init(read).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_limit_for_all_files_together() {
        let dir = tempfile::tempdir().unwrap();
        let mut maps = String::new();
        for nth in 1..=3 {
            let path = dir.path().join(nth.to_string());
            std::fs::write(&path, [0; 1000]).unwrap();
            maps += &format!("{nth}000-{nth}fff r-xp 0 0:0 0 {}\n", path.display());
        }
        let files = Files::new(&maps, None);
        files.contents.left.set(2500);
        let program = Program::new(&files);
        assert!((0..3).all(|file| program.module(file).is_none()));
        let is_read = |content: &OnceCell<Option<Vec<u8>>>| content.get().unwrap().is_some();
        let read: Vec<bool> = files.contents.files.iter().map(is_read).collect();
        assert_eq!((read, files.contents.left.get()), (vec![true, true, false], 500));
        let complaint = program.complaint().unwrap();
        assert!(complaint.contains("names of 1 files"), "{complaint}");
    }
}
