//! Recovers call chains from a copy of a stack and the program's files.
//!
//! A program that cannot walk its own stack on the spot, because it holds a lock or must not allocate, copies the
//! stack. The files tell what the copy means: `.eh_frame` says for each instruction where its function's caller
//! continues; debug information and symbols have the functions' names.
//!
//! ```text
//!   maps.rs     /proc/PROCESS/maps: which file lies where
//!   areas.rs    which file contains an address
//!   program.rs  all files: walks, names, limits
//!   module.rs   one file: its tables and names
//!   unwind.rs   one step from a function to its caller
//! ```
//!
//! Invariants:
//! - Stacks and files may contain any bytes. Nothing here panics, and a walk ends after [`MOST_FRAMES`].
//! - Frames share their texts, so a copy of a frame does not copy them.
//! - Files must be regular, and opening them never blocks (`input.rs`).
//! - Missing information is left out. Missing debug information costs the lines. A missing table costs the callers
//!   beyond it, unless functions there keep frame pointers.

mod areas;
mod maps;
mod module;
mod program;
mod unwind;

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use areas::Areas;
pub use maps::Map;
use program::Contents;
pub use program::Program;
pub use unwind::Registers;

/// The maximum number of frames in a walk.
pub const MOST_FRAMES: usize = 256;

/// The files of a program, as they are mapped in its memory.
pub struct Files {
    files: Vec<OnDisk>,
    /// The file that contains an address.
    areas: Areas,
    contents: Contents,
}

struct OnDisk {
    /// The path as the program knows it.
    path: Arc<Path>,
    /// The mapping of some of its code.
    map: Map,
    /// The program's root directory, if it has one of its own: the path may lead there.
    root: Option<Arc<Path>>,
}

impl Files {
    /// Returns the files that lines of `/proc/PROCESS/maps` name. `root` is the root directory of the program's paths,
    /// if it is not the caller's: `/proc/PROCESS/root`, while the process exists.
    pub fn new(maps: &str, root: Option<&Path>) -> Files {
        let mut files: Vec<OnDisk> = Vec::new();
        let mut known: HashMap<Arc<Path>, usize> = HashMap::new();
        let root: Option<Arc<Path>> = root.map(Arc::from);
        let mut areas = Vec::new();
        for (map, path) in maps.lines().filter_map(Map::parse) {
            let file = *known.entry(path.into()).or_insert_with_key(|path| {
                files.push(OnDisk { path: path.clone(), map, root: root.clone() });
                files.len() - 1
            });
            areas.push((map, file));
        }
        let (contents, areas) = (Contents::of(files.len()), Areas::new(areas));
        Files { files, areas, contents }
    }

    /// Returns the program's own file: the first one.
    pub fn program(&self) -> Option<&Path> {
        self.files.first().map(|file| &*file.path)
    }
}

impl OnDisk {
    /// Returns the paths where it may be, the most likely one first.
    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let below_root = self.root.as_ref().and_then(|root| {
            let inner = self.path.strip_prefix("/").ok()?;
            Some(root.join(inner))
        });
        below_root.into_iter().chain([self.path.to_path_buf()])
    }
}

/// One function of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Its name. `None` if the file has none.
    pub name: Option<Arc<str>>,
    /// The source line, as `file:line`.
    pub source: Option<Arc<str>>,
}

impl Function {
    /// Returns a function of which only the name is known.
    pub fn named(name: &str) -> Function {
        Function { name: Some(name.into()), source: None }
    }
}

/// A call: the function, and those that the compiler inlined into it, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The address of the instruction.
    pub address: u64,
    /// The file that contains this address.
    pub file: Option<Arc<Path>>,
    /// At least one.
    pub functions: Vec<Function>,
}

/// Without the texts: a walk may have half a MiB of them, shared with other walks.
impl Hash for Frame {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.address, self.functions.len()).hash(state);
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
        assert_eq!(files.files.len(), 2);
        let holders =
            [0xfff, 0x1000, 0x2fff, 0x3000, 0x5000].map(|address| files.areas.find(address));
        assert_eq!(holders, [None, Some(0), Some(0), None, Some(1)]);
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
                // Often an address of code, often one of the stack itself.
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
