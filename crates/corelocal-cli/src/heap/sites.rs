//! From samples to call sites: stacks are walked, the malloc's own functions left out, and samples of one stack
//! put together.
//!
//! Invariants:
//! - A stack has one function at least.
//! - Frames are told apart by their index in [`Told::frames`].
//! - A stack has no texts of its own, nor has what is made of it here: stacks of a hostile profile have as long names
//!   as there is room for.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corelocal_support::output::{complain, one_line, shared_line};
use corelocal_symbols::callers::{Files, Frame, Function, Map, Program, Registers};

use super::file::{Heap, Sample};

/// The frame that stands for callers beyond the copied part of the stack.
const BEYOND: &str = "[callers beyond the copied part of the stack]";

/// The call site of the memory that the malloc's library requests from libc, whichever call caused it: its thread
/// uses libc's memory.
const OWN: &str = "[the malloc itself]";

/// The suffix that maps give the name of a file that was deleted or replaced.
const DELETED: &str = " (deleted)";

/// A profile with names of functions, ready to be shown.
#[derive(Debug, Default)]
pub struct Told {
    /// The file that the process ran.
    pub program: Option<PathBuf>,
    pub frames: Vec<Frame>,
    /// The frames of each address.
    pub calls: Vec<Vec<Call>>,
    /// The stacks, most bytes first.
    pub stacks: Vec<Stack>,
    /// The number of samples in the stacks.
    pub samples: usize,
}

/// The objects that one call stack allocated.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The indices of its frames, innermost first.
    pub frames: Vec<usize>,
    pub size: u64,
    /// The thread's name and number.
    pub thread: (String, u64),
    pub bytes: f64,
    pub objects: f64,
}

/// A function in a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    /// The function's name, or the file and the address.
    pub function: Arc<str>,
    pub source: Option<Arc<str>>,
}

/// The key by which samples are summed up: frames, size, name and number of the thread.
type Key<'a> = (Vec<usize>, u64, (&'a str, u64));

/// Returns what is told of the samples that are in use, or were at the peak.
pub fn told(heap: &Heap, at_peak: bool) -> Told {
    let files = Files::new(&heap.maps, heap.root.as_deref());
    let program = Program::new(&files);
    let deleted: Vec<(Map, Arc<Path>)> = heap.maps.lines().filter_map(deleted).collect();
    let mut told = Told { program: files.program().map(Path::to_owned), ..Told::default() };
    let mut frames: HashMap<Frame, usize> = HashMap::new();
    let mut stacks: HashMap<Key<'_>, (f64, f64)> = HashMap::new();
    for sample in &heap.samples {
        if !(if at_peak { sample.was_at_peak } else { sample.is_in_use }) {
            continue;
        }
        let stack = walk(&program, sample, heap, told.program.as_deref(), &deleted);
        let indices = stack.into_iter().map(|frame| {
            let next = frames.len();
            *frames.entry(frame).or_insert(next)
        });
        let key = (indices.collect(), sample.size, (sample.name.as_str(), sample.thread));
        let (bytes, objects) = stacks.entry(key).or_default();
        *bytes += sample.bytes(heap.rate);
        *objects += sample.objects(heap.rate);
        told.samples += 1;
    }
    if let Some(complaint) = program.complaint() {
        complain(complaint);
    }
    let mut in_order: Vec<(Frame, usize)> = frames.into_iter().collect();
    in_order.sort_by_key(|(_, index)| *index);
    told.frames = in_order.into_iter().map(|(frame, _)| frame).collect();
    let shown = |frame: &Frame| frame.functions.iter().map(|it| call(it, frame)).collect();
    told.calls = told.frames.iter().map(shown).collect();
    let stacks = stacks.into_iter().map(|((frames, size, thread), (bytes, objects))| Stack {
        frames,
        size,
        thread: (thread.0.to_owned(), thread.1),
        bytes,
        objects,
    });
    told.stacks = stacks.collect();
    told.stacks.sort_by(|a, b| {
        let most_first = b.bytes.total_cmp(&a.bytes);
        most_first.then_with(|| (&a.frames, a.size, &a.thread).cmp(&(&b.frames, b.size, &b.thread)))
    });
    told
}

impl Told {
    /// Returns the bytes of all stacks.
    pub fn bytes(&self) -> f64 {
        self.stacks.iter().map(|stack| stack.bytes).sum()
    }

    /// Returns the functions of a stack, innermost first.
    pub fn calls<'a>(
        &'a self,
        stack: &'a Stack,
    ) -> impl DoubleEndedIterator<Item = &'a Call> + Clone {
        stack.frames.iter().filter_map(|frame| self.calls.get(*frame)).flatten()
    }

    /// Returns the calls from the call site on: without those by which every program asks its language's library for
    /// memory.
    pub fn calls_from_site<'a>(
        &'a self,
        stack: &'a Stack,
    ) -> impl Iterator<Item = &'a Call> + Clone {
        let calls = self.calls(stack);
        let plumbing = calls.clone().position(|call| !is_plumbing(call));
        calls.skip(plumbing.unwrap_or(0))
    }
}

/// Returns a function as it is shown.
fn call(function: &Function, frame: &Frame) -> Call {
    let address = frame.address;
    let unnamed = || match frame.file.as_deref().and_then(Path::file_name) {
        Some(file) => format!("{}, {address:#x}", file.to_string_lossy()),
        None => format!("{address:#x}"),
    };
    let named = function.name.as_ref().map(shared_line);
    Call {
        function: named.unwrap_or_else(|| one_line(unnamed()).into()),
        source: function.source.as_ref().map(shared_line),
    }
}

/// Returns code of a file that is gone, with a name that says so: its functions are not known.
fn deleted(line: &str) -> Option<(Map, Arc<Path>)> {
    let (map, mut path) = Map::parse(line.strip_suffix(DELETED)?)?;
    path.as_mut_os_string().push(DELETED);
    Some((map, path.into()))
}

fn walk(
    program: &Program<'_>,
    sample: &Sample,
    heap: &Heap,
    own: Option<&Path>,
    deleted: &[(Map, Arc<Path>)],
) -> Vec<Frame> {
    let mut frames = program.callers(Registers::new(sample.registers), &sample.stack);
    for frame in frames.iter_mut().filter(|frame| frame.file.is_none()) {
        let found = deleted.iter().find(|(map, _)| map.contains(frame.address));
        frame.file = found.map(|(_, path)| path.clone());
    }
    without_malloc(&mut frames, own);
    let last = frames.iter().position(|frame| frame.functions.iter().any(is_beginning));
    let is_whole = last.is_some() || frames.last().is_some_and(|frame| frame.address == 0);
    let is_cut = !is_whole && (sample.stack.len() * 8) as u64 >= heap.most_stack;
    frames.truncate(last.filter(|last| *last > 0).unwrap_or(frames.len()));
    // What calls `main`, where libc has no names.
    while frames.len() > 1 && frames.last().is_some_and(is_nameless_libc) {
        frames.pop();
    }
    if is_cut || frames.is_empty() {
        frames.push(without_place(BEYOND));
    }
    frames
}

/// Returns a frame that is in no file.
fn without_place(name: &str) -> Frame {
    Frame { address: 0, file: None, functions: vec![Function::named(name)] }
}

/// Leaves out the malloc's functions, which are the innermost ones: all of a library, or by their names in a program
/// that has the malloc inside.
fn without_malloc(frames: &mut Vec<Frame>, own: Option<&Path>) {
    let library = frames.first().and_then(|frame| frame.file.clone());
    if library.is_some() && library.as_deref() != own {
        let inside = frames.iter().take_while(|frame| frame.file == library).count();
        frames.drain(..inside.min(frames.len().saturating_sub(1)));
        if let Some(again) = frames.iter().skip(1).position(|frame| frame.file == library) {
            frames.truncate(again + 1);
            frames.push(without_place(OWN));
        }
        return;
    }
    let is_between = |function: &Function| is_of_malloc(function) || is_of_core(function);
    let nth = frames.iter().position(|frame| !frame.functions.iter().all(is_between));
    // The last of the frames stays, or nothing would be known.
    let Some(nth) = nth.or(frames.len().checked_sub(1)) else { return };
    let in_mixed = frames[nth].functions.iter().take_while(|function| is_between(function)).count();
    let before = frames[..nth].iter().flat_map(|frame| &frame.functions).count();
    let all = frames.iter().flat_map(|frame| &frame.functions).take(before + in_mixed);
    let ours = all.enumerate().filter(|(_, function)| is_of_malloc(function)).last();
    let mut ours = ours.map_or(0, |(last, _)| last + 1);
    while frames.len() > 1 && ours > 0 && ours >= frames[0].functions.len() {
        ours -= frames.remove(0).functions.len();
    }
    if ours < frames[0].functions.len() {
        frames[0].functions.drain(..ours);
    }
}

/// Returns `true` for what core has between functions of the malloc, and calls back: `bool::then`, say.
fn is_of_core(function: &Function) -> bool {
    function.source.as_deref().is_some_and(|source| source.contains("/library/core/src/"))
}

fn is_of_malloc(function: &Function) -> bool {
    const OURS: [&str; 2] = ["corelocal::alloc::", "corelocal::sys::"];
    let name = function.name.as_deref().unwrap_or("").trim_start_matches('<');
    let of_allocator = ["__rust_alloc", "__rust_realloc", "__rg_", "__rdl_", "__rustc::__r"];
    OURS.iter().chain(&of_allocator).any(|prefix| name.starts_with(prefix))
        || function.source.as_deref().is_some_and(|source| {
            ["/corelocal/src/alloc/", "/corelocal/src/sys/"]
                .iter()
                .any(|part| source.contains(part))
        })
}

/// Returns what stands between a program and its malloc: the libraries of languages.
pub fn is_plumbing(call: &Call) -> bool {
    const NAMES: [&str; 14] = [
        "alloc::",
        "core::",
        "std::",
        "hashbrown::",
        "__rust",
        "__rg_",
        "__rdl_",
        "operator new",
        "__gnu_cxx::",
        "malloc",
        "calloc",
        "realloc",
        "__libc_",
        "strdup",
    ];
    const FILES: [&str; 4] =
        ["/library/alloc/src/", "/library/core/src/", "/library/std/src/", "/include/c++/"];
    let name = call.function.trim_start_matches(['<', '&']);
    NAMES.iter().any(|prefix| name.starts_with(prefix))
        || call
            .source
            .as_deref()
            .is_some_and(|source| FILES.iter().any(|part| source.contains(part)))
}

/// Returns what every thread begins with.
fn is_beginning(function: &Function) -> bool {
    let name = function.name.as_deref().unwrap_or("");
    name.contains("__rust_begin_short_backtrace")
        || ["start_thread", "__libc_start_main", "__libc_start_call_main", "clone3", "_start"]
            .contains(&name)
}

fn is_nameless_libc(frame: &Frame) -> bool {
    let name = frame.file.as_deref().and_then(Path::file_name).unwrap_or_default();
    let name = name.to_string_lossy();
    ["libc.so", "libc-2", "ld-musl"].iter().any(|libc| name.starts_with(libc))
        && frame.functions.iter().all(|function| function.name.is_none())
}

#[cfg(test)]
mod tests;
