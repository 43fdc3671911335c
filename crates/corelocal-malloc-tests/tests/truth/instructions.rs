//! The instructions of a hit in `malloc` and in `free`, counted in the built file.
//!
//! The hot path is laid out in a row, from the entry to the first `ret`: jumps lead to cold code, but for one that leaves
//! out a load. So its length is the number of instructions in between, and at most that many are executed.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::run::only_ours;
use crate::skip;

/// The instructions that a pair may take: 31 in `malloc` and 35 in `free`.
const MOST: usize = 66;

/// Returns the instructions from a function's entry to its first `ret`, without those that pad.
fn to_first_return(file: &object::File<'_>, function: &str) -> usize {
    let symbol = file
        .dynamic_symbols()
        .find(|symbol| symbol.name() == Ok(function))
        .unwrap_or_else(|| panic!("no {function}"));
    let text = file.section_by_name(".text").expect("code");
    let from = (symbol.address() - text.address()) as usize;
    let bytes = &text.data().expect("code")[from..];
    let mut count = 0;
    for instruction in Decoder::with_ip(64, bytes, symbol.address(), DecoderOptions::NONE) {
        match instruction.flow_control() {
            FlowControl::Return => return count + 1,
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            other => {
                panic!("{function} has no hot path in a row: {other:?} at {:x}", instruction.ip())
            }
        }
        count += usize::from(instruction.mnemonic() != Mnemonic::Nop);
    }
    panic!("{function} has no end")
}

#[test]
fn a_pair_takes_few_instructions() {
    const TEST: &str = "a_pair_takes_few_instructions";
    if !cfg!(target_arch = "x86_64") {
        return skip(TEST, "instructions of x86-64 are counted");
    }
    if cfg!(debug_assertions) {
        return skip(TEST, "the malloc is not optimised here; ci/malloc.sh counts");
    }
    let Some(ours) = only_ours(TEST) else { return };
    let library = std::fs::read(ours.library.expect("a file")).expect("the library");
    let file = object::File::parse(&*library).expect("an ELF file");
    let counts = ["malloc", "free"].map(|function| to_first_return(&file, function));
    println!("malloc {}, free {}", counts[0], counts[1]);
    assert!(counts.iter().sum::<usize>() <= MOST, "{counts:?}");
    // A path in a row that is much shorter is not the hot one.
    assert!(counts.iter().all(|count| *count >= 15), "{counts:?}");
}
