//! Who called whom, told from a copy of a stack and the program's files.
//!
//! A program that cannot walk its own stack where it stands, since a lock must not be held for longer and nothing may
//! be allocated, copies it. What the copy means is in the files: `.eh_frame` says, for each instruction, where its
//! function's caller goes on; debug information and symbols say what functions are called.
//!
//! ```text
//!   maps.rs     /proc/PROCESS/maps: which file lies where
//!   areas.rs    which file holds an address
//!   local.rs    all files, read in this process
//!   aside.rs    all files, read in a child process
//!   opener.rs   files, judged and opened in a child process
//!   single.rs   a single file that need not be a program's, likewise
//!   module.rs   one file: its tables and names
//!   unwind.rs   one step from a function to its caller
//! ```
//!
//! Invariants:
//! - Any bytes may come in, as stacks and as files; nothing here panics, and a walk ends after [`MOST_FRAMES`].
//! - A stack has at most [`MOST_FUNCTIONS`] functions, whose names and lines have at most [`MOST_TEXT`] bytes; frames
//!   share their texts, so that a copy of a frame has none of its own.
//! - No file that another user names or owns holds this process up or ends it: a child process opens all of them, and
//!   another one reads those to which another user may write, or for which another user's process may answer (FUSE, or
//!   an overlay of another mount namespace). What root or this process's user alone may write to is trusted, and read in
//!   this process by the descriptor that the child opened.
//! - What a file does not tell is left out. Missing debug information costs the lines, a missing table the callers
//!   beyond, unless functions there keep frame pointers.

mod areas;
mod aside;
mod local;
mod maps;
mod module;
mod opener;
mod single;
mod unwind;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

pub use areas::Areas;
use aside::Aside;
use local::{Local, Trust};
pub use maps::Map;
use opener::{Opener, Verdict};
pub use single::SingleOpener;
pub use unwind::Registers;

use crate::content::{Content, MOST_COPIED, open};

/// A walk ends here at the latest.
pub const MOST_FRAMES: usize = 256;

/// A stack ends after so many functions, those of [`LEFT_OUT`] apart. Files may nest inlined ones without end.
pub const MOST_FUNCTIONS: usize = 1024;

/// Their names and lines have so many bytes at most.
pub const MOST_TEXT: usize = 512 << 10;

/// So many areas of memory are known at most: by default, the kernel gives no process more.
pub const MOST_AREAS: usize = 65_530;

/// Stands for functions that a stack has no room for.
pub const LEFT_OUT: &str = "[left out: more functions, or longer names, than a stack has room for]";

/// The files of a program, as they lie in its memory.
pub struct Files {
    files: Vec<OnDisk>,
    /// Which of them holds an address.
    areas: Areas,
    /// Whether there were more of them than are known.
    has_more: bool,
    contents: Vec<OnceCell<Option<Content>>>,
    opener: Opener,
}

struct OnDisk {
    /// As the program knows it.
    path: Arc<Path>,
    /// Where some of its code lies.
    map: Map,
    /// Where else the path may lead: the program may have a root of its own.
    root: Option<Arc<Path>>,
}

impl Files {
    /// Those that lines of `/proc/PROCESS/maps` name. `root` is where the program's paths begin, if not here:
    /// `/proc/PROCESS/root`, as long as there is one. The first [`MOST_AREAS`] count, in which code lies.
    pub fn new(maps: &str, root: Option<&Path>) -> Files {
        let mut files: Vec<OnDisk> = Vec::new();
        let mut known: HashMap<Arc<Path>, usize> = HashMap::new();
        let root: Option<Arc<Path>> = root.map(Arc::from);
        let mut areas = Vec::new();
        let mut parsed = maps.lines().filter_map(Map::parse);
        for (map, path) in parsed.by_ref().take(MOST_AREAS) {
            let file = *known.entry(path.into()).or_insert_with_key(|path| {
                files.push(OnDisk { path: path.clone(), map, root: root.clone() });
                files.len() - 1
            });
            areas.push((map, file));
        }
        let contents = files.iter().map(|_| OnceCell::new()).collect();
        Files {
            files,
            areas: Areas::new(areas),
            has_more: parsed.next().is_some(),
            contents,
            opener: Opener::default(),
        }
    }

    /// The program's own: the first one.
    pub fn program(&self) -> Option<&Path> {
        self.files.first().map(|file| &*file.path)
    }

    /// Whether another user may write to one of them.
    fn has_untrusted(&self) -> bool {
        self.opener.verdicts(&self.files).contains(&Verdict::Untrusted)
    }
}

impl OnDisk {
    /// Opens it, in a child process: it may take for ever.
    fn open(&self) -> Option<File> {
        #[cfg(test)]
        tests::before_opening(&self.path);
        let below_root = self.root.as_ref().and_then(|root| {
            let inner = self.path.strip_prefix("/").ok()?;
            open(&root.join(inner)).ok()
        });
        below_root.or_else(|| open(&self.path).ok())
    }
}

/// One function of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Its name, or nothing where the file has none.
    pub name: Option<Arc<str>>,
    /// The line, as `file:line`.
    pub source: Option<Arc<str>>,
}

impl Function {
    /// One that is known by its name alone.
    pub fn named(name: &str) -> Function {
        Function { name: Some(name.into()), source: None }
    }

    fn text_len(&self) -> usize {
        [&self.name, &self.source].into_iter().flatten().map(|text| text.len()).sum()
    }
}

/// A call: the function, and those that the compiler put into it, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it was.
    pub address: u64,
    /// The file that lies there.
    pub file: Option<Arc<Path>>,
    /// At least one.
    pub functions: Vec<Function>,
}

/// Without the texts: a walk may have half a MiB of them, and shares them with others.
impl Hash for Frame {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.address, self.functions.len()).hash(state);
    }
}

/// What a stack still has room for.
struct Room {
    functions: usize,
    text: usize,
}

impl Room {
    fn of_stack() -> Room {
        Room { functions: MOST_FUNCTIONS, text: MOST_TEXT }
    }

    /// How many of these functions it has room for; those take it.
    fn take(&mut self, functions: &[Function]) -> usize {
        let fits = functions.iter().take_while(|function| {
            let left =
                self.functions.checked_sub(1).zip(self.text.checked_sub(function.text_len()));
            left.is_some_and(|left| {
                (self.functions, self.text) = left;
                true
            })
        });
        fits.count()
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
    local: Local<'a>,
    /// Where one of the files is another user's.
    aside: Option<RefCell<Aside<'a>>>,
    /// What was found out of calls so far: many stacks have most of them in common.
    known: RefCell<HashMap<Call, Frame>>,
}

impl<'a> Program<'a> {
    /// Of these files, which are read when they are needed. If another user may write to one of them, a child process
    /// reads them, with limits.
    pub fn new(files: &'a Files) -> Program<'a> {
        let aside = files.has_untrusted().then(|| RefCell::new(Aside::new(files)));
        let local = Local::new(files, Trust::Owner);
        Program { files, local, aside, known: RefCell::default() }
    }

    /// The calls that lead to where the registers say, the innermost first. `stack` begins at the stack pointer.
    pub fn callers(&self, registers: Registers, stack: &[u64]) -> Vec<Frame> {
        let calls = self
            .asked(|aside| aside.calls(registers, stack))
            .unwrap_or_else(|| self.local.calls(registers, stack));
        let (mut frames, mut room) = (Vec::new(), Room::of_stack());
        for call in calls {
            let frame = self.frame(call);
            // The first one has room, at least for its first functions.
            let fits = room.take(&frame.functions) == frame.functions.len();
            if !fits && !frames.is_empty() {
                let functions = vec![Function::named(LEFT_OUT)];
                frames.push(Frame { address: 0, file: None, functions });
                break;
            }
            frames.push(frame);
        }
        frames
    }

    /// What lies at an address that is no code: a static's name, and how far into it; and the file.
    pub fn variable_at(&self, address: u64) -> Option<(String, u64)> {
        self.asked(|aside| aside.variable_at(address))
            .unwrap_or_else(|| self.local.variable_at(address))
    }

    /// What is missing in the answers so far, and why: a sentence for each cause.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.files.has_more {
            complaints.push(format!(
                "some names are left out: only the first {MOST_AREAS} areas with code are looked at, as many as a \
                 process has at most by default"
            ));
        }
        let verdicts = self.files.opener.verdicts(&self.files.files);
        let unreachable = |verdict: &Verdict| *verdict == Verdict::Unreachable;
        if let Some(first) = verdicts.iter().position(unreachable) {
            complaints.push(format!(
                "names of {} files are left out, {:?} first: to open them took too long, as it does where the server \
                 of a network or FUSE mount does not answer",
                verdicts.iter().filter(|verdict| unreachable(verdict)).count(),
                self.files.files[first].path,
            ));
        }
        let Some(aside) = &self.aside else { return complaints };
        let mut aside = aside.borrow_mut();
        let left_out = aside.left_out();
        if let Some(first) = left_out.first() {
            complaints.push(format!(
                "names of {} files are left out, {:?} first: of files that other users own or may write to, {} MiB are \
                 read in all; change their owners or rights, if you trust them",
                left_out.len(),
                self.files.files[*first].path,
                MOST_COPIED >> 20,
            ));
        }
        if aside.has_ended() {
            complaints.push(
                "some names are left out: files that other users own or may write to, or that are in FUSE mounts or \
                 in overlays of containers, took too much time or memory, and were not read any further; change \
                 their owners or rights if you trust them, or run this command in the container"
                    .to_owned(),
            );
        }
        complaints
    }

    fn asked<T>(&self, ask: impl FnOnce(&mut Aside<'a>) -> Option<T>) -> Option<T> {
        ask(&mut self.aside.as_ref()?.borrow_mut())
    }

    fn frame(&self, call: Call) -> Frame {
        let known = self.known.borrow().get(&call).cloned();
        known.unwrap_or_else(|| {
            let mut frame =
                self.asked(|aside| aside.frame(call)).unwrap_or_else(|| self.local.frame(call));
            let fits = Room::of_stack().take(&frame.functions);
            if fits < frame.functions.len() {
                frame.functions.truncate(fits);
                frame.functions.push(Function::named(LEFT_OUT));
            }
            self.known.borrow_mut().insert(call, frame.clone());
            frame
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    /// Stands for a file of a server that does not answer.
    pub const HANGS: &str = "/no/such/mount/hangs";
    /// The process of the tests.
    static TESTS: AtomicU32 = AtomicU32::new(0);

    /// What opening a file is preceded by, in any process.
    pub fn before_opening(path: &Path) {
        let is_child = TESTS.load(Relaxed) != std::process::id();
        if path == Path::new(HANGS) {
            assert!(is_child, "opened in the process that may not hang");
            loop {
                std::thread::sleep(std::time::Duration::from_secs(60));
            }
        }
    }

    #[test]
    fn a_file_that_cannot_be_opened_in_time_holds_nothing_up() {
        TESTS.store(std::process::id(), Relaxed);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let maps = format!("1000-2000 r-xp 0 0:0 0 {HANGS}\n{maps}");
        let files = Files::new(&maps, None);
        let program = Program::new(&files);
        let here = a_file_that_cannot_be_opened_in_time_holds_nothing_up as *const () as u64;
        // The others are known, and its own addresses are nothing.
        let frame = program.frame(Call { at: here, inside: here });
        assert!(frame.functions[0].name.is_some() && frame.file.is_some(), "{frame:?}");
        let frame = program.frame(Call { at: 0x1800, inside: 0x1800 });
        assert_eq!((frame.functions[0].name.as_deref(), frame.file), (None, None));
        let complaints = program.complaints();
        assert!(complaints.len() == 1 && complaints[0].contains(HANGS), "{complaints:?}");
    }

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
    fn there_is_a_limit_for_areas() {
        let line = |nth: usize| format!("{nth:x}000-{nth:x}fff r-xp 0 0:0 0 /no/such/file{nth}\n");
        let maps = |count| (1..=count).map(line).collect::<String>();
        let known = Files::new(&maps(MOST_AREAS), None);
        assert_eq!(known.files.len(), MOST_AREAS);
        assert_eq!(Program::new(&known).complaints(), [""; 0]);
        let more = Files::new(&maps(MOST_AREAS + 10), None);
        assert_eq!(more.files.len(), MOST_AREAS);
        let complaints = Program::new(&more).complaints();
        assert!(complaints.len() == 1 && complaints[0].contains("65530 areas"), "{complaints:?}");
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
