//! Answers questions about a program from its files, in this process.
//!
//! Invariants:
//! - Files that another user may write to are read only where [`Trust`] says so, and [`MOST_COPIED`] bytes of them in
//!   all.
//! - A walk has at most [`MOST_FRAMES`] calls.

use std::cell::{Cell, OnceCell, RefCell};

use super::module::Module;
use super::unwind::{self, Registers, Stack, Step};
use super::{Call, Files, Frame, Function, MOST_FRAMES};
use crate::content::{Content, MOST_COPIED, is_trusted};

/// Which files are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// All, opened here: in a child process.
    Anybody,
    /// Those that only this process's user or root may write to. A child process opens them.
    Owner,
}

pub struct Local<'a> {
    files: &'a Files,
    modules: Vec<OnceCell<Option<Module<'a>>>>,
    trust: Trust,
    /// How many bytes may still be copied.
    left_to_copy: Cell<u64>,
    /// Files that there was no memory for, by their place among the files.
    left_out: RefCell<Vec<usize>>,
}

impl<'a> Local<'a> {
    pub fn new(files: &'a Files, trust: Trust) -> Local<'a> {
        Local {
            files,
            modules: files.files.iter().map(|_| OnceCell::new()).collect(),
            trust,
            left_to_copy: Cell::new(MOST_COPIED),
            left_out: RefCell::default(),
        }
    }

    /// The calls that lead to where the registers say, the innermost first.
    pub fn calls(&self, registers: Registers, stack: &[u64]) -> Vec<Call> {
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

    /// What is known of a call.
    pub fn frame(&self, call: Call) -> Frame {
        let (file, functions) = self.functions(call);
        let file = file.map(|file| self.files.files[file].path.clone());
        Frame { address: call.at, file, functions }
    }

    /// Which file a call is in, and its functions: at least one.
    pub fn functions(&self, call: Call) -> (Option<usize>, Vec<Function>) {
        let found = self.code_at(call.inside);
        let functions = found.map(|(_, module)| module.functions_at(call.inside));
        let nothing = || vec![Function { name: None, source: None }];
        let functions = functions.filter(|found| !found.is_empty()).unwrap_or_else(nothing);
        (found.map(|(file, _)| file), functions)
    }

    /// The static that lies there, and how far into it.
    pub fn variable_at(&self, address: u64) -> Option<(String, u64)> {
        let modules = (0..self.modules.len()).filter_map(|file| self.module(file));
        modules.filter(|module| module.holds(address)).find_map(|it| it.variable_at(address))
    }

    /// Files that there was no memory for, so far.
    pub fn left_out(&self) -> Vec<usize> {
        self.left_out.borrow().clone()
    }

    fn code_at(&self, address: u64) -> Option<(usize, &Module<'a>)> {
        let file = self.files.areas.find(address)?;
        Some((file, self.module(file)?))
    }

    fn module(&self, file: usize) -> Option<&Module<'a>> {
        let read = || {
            let (files, on_disk) = (self.files, &self.files.files[file]);
            let content = files.contents[file].get_or_init(|| self.content(file)).as_ref()?;
            Module::parse(&on_disk.map, content.bytes())
        };
        self.modules[file].get_or_init(read).as_ref()
    }

    fn content(&self, file: usize) -> Option<Content> {
        let Files { files, opener, .. } = self.files;
        let opened = match self.trust {
            Trust::Owner => opener.open(files, file)?,
            Trust::Anybody if opener.is_unreachable(file) => return None,
            Trust::Anybody => files[file].open()?,
        };
        let meta = opened.metadata().ok()?;
        let is_trusted = is_trusted(&meta);
        if !is_trusted && self.trust == Trust::Owner {
            return None;
        }
        let left = self.left_to_copy.get();
        if !is_trusted && meta.is_file() && meta.len() > left {
            self.left_out.borrow_mut().push(file);
            return None;
        }
        let content = Content::of_at_most(&opened, left)?;
        if let Content::Copied(bytes) = &content {
            // It may have been given away since it was looked at.
            if self.trust == Trust::Owner {
                return None;
            }
            self.left_to_copy.set(left.saturating_sub(bytes.len() as u64));
        }
        Some(content)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn there_is_a_limit_for_all_files_together() {
        let dir = tempfile::tempdir().unwrap();
        let mut maps = String::new();
        for nth in 1..=3 {
            let path = dir.path().join(nth.to_string());
            std::fs::write(&path, [0; 1000]).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o646)).unwrap();
            maps += &format!("{nth}000-{nth}fff r-xp 0 0:0 0 {}\n", path.display());
        }
        let files = Files::new(&maps, None);
        let local = Local::new(&files, Trust::Anybody);
        local.left_to_copy.set(2500);
        assert!((0..3).all(|file| local.module(file).is_none()));
        let is_copied = |content: &OnceCell<Option<Content>>| content.get().unwrap().is_some();
        assert_eq!(files.contents.iter().map(is_copied).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!((local.left_out(), local.left_to_copy.get()), (vec![2], 500));
        // Nothing of them is read here.
        let files = Files::new(&maps, None);
        let local = Local::new(&files, Trust::Owner);
        assert!((0..3).all(|file| local.module(file).is_none()));
        assert!(files.contents.iter().all(|content| !is_copied(content)));
    }
}
