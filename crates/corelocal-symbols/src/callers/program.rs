//! Walks and names for the stacks of a program, from its files.
//!
//! Invariants:
//! - Each file is read at most once, when an address in it is first needed. All files together have at most
//!   [`MOST_READ`] bytes; [`Program::complaint`] reports those that exceed it.
//! - A walk has at most [`MOST_FRAMES`] calls.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::io::ErrorKind;

use super::module::Module;
use super::unwind::{self, Registers, Stack, Step};
use super::{Files, Frame, Function, MOST_FRAMES, OnDisk};
use crate::input::read_regular;

/// The maximum number of bytes that are read of one program's files.
pub const MOST_READ: u64 = 8 << 30;

/// The contents of a program's files.
pub(super) struct Contents {
    files: Vec<OnceCell<Option<Vec<u8>>>>,
    /// The number of bytes that may still be read.
    left: Cell<u64>,
    /// The indexes of files that exceeded this limit.
    too_large: RefCell<Vec<usize>>,
}

impl Contents {
    /// No file has been read yet.
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

/// A call found by a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Call {
    /// The address at which it continues.
    at: u64,
    /// An address in the calling instruction.
    inside: u64,
}

/// A program's files, read when they are needed.
pub struct Program<'a> {
    files: &'a Files,
    modules: Vec<OnceCell<Option<Module<'a>>>>,
    /// Calls that were resolved before: many stacks have most of them in common.
    known: RefCell<HashMap<Call, Frame>>,
}

impl<'a> Program<'a> {
    /// Creates a program with these files.
    pub fn new(files: &'a Files) -> Program<'a> {
        let modules = files.files.iter().map(|_| OnceCell::new()).collect();
        Program { files, modules, known: RefCell::default() }
    }

    /// Returns the chain of calls that led to these registers, the innermost first. `stack` begins at the stack
    /// pointer.
    pub fn callers(&self, registers: Registers, stack: &[u64]) -> Vec<Frame> {
        self.calls(registers, stack).into_iter().map(|call| self.frame(call)).collect()
    }

    /// Returns the static that contains the address, and the offset in it.
    pub fn variable_at(&self, address: u64) -> Option<(String, u64)> {
        let modules = (0..self.modules.len()).filter_map(|file| self.module(file));
        modules.filter(|module| module.holds(address)).find_map(|it| it.variable_at(address))
    }

    /// Returns why names are missing in the results so far. `None` if all files could be read completely.
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
            // The return address of a call may belong to the next function.
            let inside = at - u64::from(is_call);
            calls.push(Call { at, inside });
            let code = self.code_at(inside);
            let step = match code {
                Some((_, module)) => module.caller(inside, &registers, &stack),
                None => self.interrupted_by_signal(&registers, &stack),
            }
            .unwrap_or_else(|| unwind::by_frame_pointer(&registers, &stack));
            match step {
                Step::Call(caller) => (registers, is_call) = (caller, true),
                Step::Interrupted(caller) => (registers, is_call) = (caller, false),
                Step::End => break,
            }
        }
        calls
    }

    /// Steps out of a signal handler, where that returns to code in no file, if what was interrupted is in one.
    fn interrupted_by_signal(&self, registers: &Registers, stack: &Stack<'_>) -> Option<Step> {
        let step = unwind::interrupted_by_signal(registers, stack)?;
        let is_code = match &step {
            Step::Interrupted(found) => self.files.areas.find(found.program_counter()).is_some(),
            _ => false,
        };
        is_code.then_some(step)
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
