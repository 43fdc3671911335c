//! Who called whom, told from a copy of a stack and the program's files.
//!
//! A program that cannot walk its own stack where it stands, since a lock must not be held for longer and nothing may
//! be allocated, copies it. What the copy means is in the files: `.eh_frame` says, for each instruction, where its
//! function's caller goes on; debug information and symbols say what functions are called.
//!
//! ```text
//!   maps.rs     /proc/PROCESS/maps: which file lies where
//!   module.rs   one file: its tables and names
//!   unwind.rs   one step from a function to its caller
//! ```
//!
//! Invariants:
//! - Any bytes may come in, as stacks and as files; nothing here panics, and a walk ends after [`MOST_FRAMES`].
//! - No file that another user names or owns holds this process up or ends it.
//! - What a file does not tell is left out. Missing debug information costs the lines, a missing table the callers
//!   beyond, unless functions there keep frame pointers.

mod maps;
mod module;
mod unwind;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub use maps::Map;
use module::Module;
pub use unwind::Registers;

use crate::content::{Content, open};

/// A walk ends here at the latest.
pub const MOST_FRAMES: usize = 256;

/// The files of a program, as they lie in its memory.
pub struct Files {
    files: Vec<OnDisk>,
}

struct OnDisk {
    /// As the program knows it.
    path: PathBuf,
    /// Where its code lies.
    maps: Vec<Map>,
    content: OnceCell<Option<Content>>,
    /// Where else the path may lead: the program may have a root of its own.
    root: Option<PathBuf>,
}

impl Files {
    /// Those that lines of `/proc/PROCESS/maps` name. `root` is where the program's paths begin, if not here:
    /// `/proc/PROCESS/root`, as long as there is one.
    pub fn new(maps: &str, root: Option<&Path>) -> Files {
        let mut files: Vec<OnDisk> = Vec::new();
        for (map, path) in maps.lines().filter_map(Map::parse) {
            match files.iter_mut().find(|file| file.path == path) {
                Some(file) if file.maps.contains(&map) => {}
                Some(file) => file.maps.push(map),
                None => {
                    let (content, root) = (OnceCell::new(), root.map(Path::to_owned));
                    files.push(OnDisk { path, maps: vec![map], content, root });
                }
            }
        }
        Files { files }
    }

    /// The program's own: the first one.
    pub fn program(&self) -> Option<&Path> {
        self.files.first().map(|file| file.path.as_path())
    }
}

impl OnDisk {
    fn content(&self) -> Option<&[u8]> {
        let content = self.content.get_or_init(|| {
            let below_root = self.root.as_ref().and_then(|root| {
                let inner = self.path.strip_prefix("/").ok()?;
                open(&root.join(inner)).ok()
            });
            Content::of(&below_root.or_else(|| open(&self.path).ok())?)
        });
        content.as_ref().map(Content::bytes)
    }
}

/// One function of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Its name, or nothing where the file has none.
    pub name: Option<String>,
    /// The line, as `file:line`.
    pub source: Option<String>,
}

/// A call: the function, and those that the compiler put into it, innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Where it was.
    pub address: u64,
    /// The file that lies there.
    pub file: Option<PathBuf>,
    /// At least one.
    pub functions: Vec<Function>,
}

/// A program's files, ready to be asked.
pub struct Program<'a> {
    modules: Vec<(&'a OnDisk, OnceCell<Option<Module<'a>>>)>,
    /// What was found out of addresses so far: many stacks have most of them in common.
    known: RefCell<HashMap<(u64, u64), Frame>>,
}

impl<'a> Program<'a> {
    /// Of these files, which are read when they are needed.
    pub fn new(files: &'a Files) -> Program<'a> {
        let modules = files.files.iter().map(|file| (file, OnceCell::new())).collect();
        Program { modules, known: RefCell::default() }
    }

    /// The calls that lead to where the registers say, the innermost first. `stack` begins at the stack pointer.
    pub fn callers(&self, registers: Registers, stack: &[u64]) -> Vec<Frame> {
        let stack = unwind::Stack::new(registers.stack_pointer(), stack);
        let mut frames = Vec::new();
        let (mut registers, mut is_call) = (registers, false);
        while frames.len() < MOST_FRAMES {
            let at = registers.program_counter();
            if at == 0 {
                break;
            }
            // A call's return address may be the next function's.
            let inside = at - u64::from(is_call);
            let module = self.code_at(inside);
            let known = self.known.borrow().get(&(at, inside)).cloned();
            frames.push(known.unwrap_or_else(|| {
                let frame = self.frame(at, inside, module);
                self.known.borrow_mut().insert((at, inside), frame.clone());
                frame
            }));
            let step = module
                .and_then(|module| module.caller(inside, &registers, &stack))
                .unwrap_or_else(|| unwind::by_frame_pointer(&registers, &stack));
            match step {
                unwind::Step::Call(caller) => (registers, is_call) = (caller, true),
                unwind::Step::Interrupted(caller) => (registers, is_call) = (caller, false),
                unwind::Step::End => break,
            }
        }
        frames
    }

    /// What lies at an address that is no code: a static's name, and how far into it; and the file.
    pub fn variable_at(&self, address: u64) -> Option<(String, u64)> {
        self.modules().find_map(|(_, module)| module.variable_at(address))
    }

    fn frame(&self, address: u64, inside: u64, module: Option<&Module<'a>>) -> Frame {
        let nothing = || vec![Function { name: None, source: None }];
        let functions = module.map(|module| module.functions_at(inside)).unwrap_or_default();
        Frame {
            address,
            file: module.map(|module| module.path.to_owned()),
            functions: if functions.is_empty() { nothing() } else { functions },
        }
    }

    fn code_at(&self, address: u64) -> Option<&Module<'a>> {
        let holds = |file: &OnDisk| file.maps.iter().any(|map| map.contains(address));
        let (file, module) = self.modules.iter().find(|(file, _)| holds(file))?;
        Self::module(file, module)
    }

    fn modules(&self) -> impl Iterator<Item = (&'a OnDisk, &Module<'a>)> {
        self.modules.iter().filter_map(|(file, module)| Some((*file, Self::module(file, module)?)))
    }

    fn module<'b>(
        file: &'a OnDisk,
        module: &'b OnceCell<Option<Module<'a>>>,
    ) -> Option<&'b Module<'a>> {
        let read = || Module::parse(&file.path, file.maps.first()?, file.content()?);
        module.get_or_init(read).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_their_parts() {
        let maps = "\
            1000-2000 r-xp 00001000 fe:00 12 /usr/bin/a program\n\
            2000-3000 r-xp 00002000 fe:00 12 /usr/bin/a program\n\
            5000-6000 r-xp 00000000 fe:00 13 /usr/lib/libc.so.6\n\
            5000-6000 r-xp 00000000 fe:00 13 /usr/lib/libc.so.6\n\
            nonsense\n";
        let files = Files::new(maps, None);
        assert_eq!(files.program(), Some(Path::new("/usr/bin/a program")));
        assert_eq!(files.files.iter().map(|file| file.maps.len()).collect::<Vec<_>>(), [2, 1]);
        assert!(Files::new("", None).program().is_none());
    }

    #[test]
    fn anything_may_be_in_a_stack() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let files = Files::new(&maps, Some(Path::new("/proc/self/root")));
        let program = Program::new(&files);
        let here = anything_may_be_in_a_stack as *const () as u64;
        let mut random = 88172645463325252_u64;
        let mut stack = [0; 64];
        for _ in 0..200 {
            for word in &mut stack {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Often code, often the stack itself.
                *word = match random % 3 {
                    0 => here.wrapping_add(random >> 40),
                    1 => 0x7fff_0000 + random % 600,
                    _ => random,
                };
            }
            let registers = Registers::new([here, 0x7fff_0000, 0x7fff_0040, random, 0, 1, 2, 3]);
            let frames = program.callers(registers, &stack);
            assert!(!frames.is_empty() && frames.len() <= MOST_FRAMES);
        }
        let end = [u64::MAX, u64::MAX - 7, u64::MAX, 0, 0, 0, 0, 0];
        assert_eq!(program.callers(Registers::new(end), &stack).len(), 1);
        assert_eq!(program.variable_at(here), None);
    }
}
