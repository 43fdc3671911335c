//! Files with debug information, sections or descriptors beyond what compilers make: limits hold.

#![cfg(target_arch = "x86_64")]

use std::path::Path;
use std::sync::Arc;

use corelocal_lab::check;
use corelocal_symbols::callers::{Files, Frame, Program, Registers};

/// An ELF file of one page of code at 0, with these sections.
fn elf(sections: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut names = vec![0];
    let mut headers = vec![0; 64];
    let mut content = vec![0; 4096];
    let text = (".text", vec![]);
    let all = [&[text][..], sections, &[(".shstrtab", vec![])]].concat();
    for (name, bytes) in &all {
        let name_at = names.len() as u32;
        names.extend(name.as_bytes());
        names.push(0);
        let is_text = *name == ".text";
        let (kind, flags, offset, size) = match *name {
            ".text" => (1, 6, 0, 4096),
            ".shstrtab" => (3, 0, content.len(), names.len()),
            _ => (1, 0, content.len(), bytes.len()),
        };
        content.extend(if *name == ".shstrtab" { &names } else { bytes });
        headers.extend(name_at.to_le_bytes());
        headers.extend(u32::to_le_bytes(kind));
        for number in [flags, 0, offset as u64, size as u64, 0, u64::from(is_text), 0] {
            headers.extend(number.to_le_bytes());
        }
    }
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    header.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    for number in [0, 64, content.len() as u64] {
        header.extend(u64::to_le_bytes(number));
    }
    header.extend([0; 4]);
    let last = all.len() as u16;
    for number in [64, 56, 1, 64, last + 1, last] {
        header.extend(u16::to_le_bytes(number));
    }
    // PT_LOAD of the first page, readable and executable.
    header.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for number in [0, 0, 0, 4096, 4096, 4096] {
        header.extend(u64::to_le_bytes(number));
    }
    content[..header.len()].copy_from_slice(&header);
    [content, headers].concat()
}

/// A function from 0 to 4096, with so many inlined functions in each other.
fn nested(levels: usize) -> Vec<u8> {
    let (abbreviations, entries) = nested_sections(levels);
    elf(&[(".debug_abbrev", abbreviations), (".debug_info", entries)])
}

fn nested_sections(levels: usize) -> (Vec<u8>, Vec<u8>) {
    // Number, tag, whether it has children, attributes with their forms: low_pc as an address, high_pc as 8 bytes, name
    // as bytes.
    let range = [0x11, 0x01, 0x12, 0x07, 0x03, 0x08, 0, 0];
    let (unit, function, inlined) = ([1, 0x11, 1], [2, 0x2e, 1], [3, 0x1d, 1]);
    let abbreviations = [&unit[..], &range, &function, &range, &inlined, &range, &[0]].concat();
    let mut entries = vec![4, 0, 0, 0, 0, 0, 8];
    for number in [1, 2].into_iter().chain(std::iter::repeat_n(3, levels)) {
        entries.push(number);
        entries.extend(0_u64.to_le_bytes());
        entries.extend(4096_u64.to_le_bytes());
        entries.push(0);
    }
    entries.extend(std::iter::repeat_n(0, levels + 2));
    let length = (entries.len() as u32).to_le_bytes();
    (abbreviations, [&length[..], &entries].concat())
}

fn callers(program: &Program<'_>, at: u64) -> Vec<Frame> {
    program.callers(Registers::new([at, 0x7000, 0, 0, 0, 0, 0, 0]), &[])
}

#[test]
fn nested_functions_are_told_as_far_as_there_is_room() {
    let dir = tempfile::tempdir().expect("a folder");
    for (levels, functions) in [(3, 4), (1000, 256)] {
        let path = dir.path().join("program");
        std::fs::write(&path, nested(levels)).expect("room for a file");
        let files = Files::new(&format!("1000-2000 r-xp 0 0:0 0 {}\n", path.display()), None);
        let program = Program::new(&files);
        let frames = callers(&program, 0x1100);
        assert_eq!((frames.len(), frames[0].functions.len()), (1, functions), "{levels}");
        assert_eq!(frames[0].file.as_deref(), Some(&*path));
        assert_eq!(program.complaint(), None);
        let again = callers(&program, 0x1100);
        let name = |frames: &[Frame]| frames[0].functions[1].name.clone().expect("a name");
        assert!(Arc::ptr_eq(&name(&frames), &name(&again)), "stacks share their texts");
    }
}

#[test]
fn check_survives_debug_information_that_overflows_the_stack() {
    // A section from 16 to 32 that goes on at 256.
    let descriptor = [0_u64, 16, 16, 256].iter().flat_map(|number| number.to_le_bytes()).collect();
    let (abbreviations, entries) = nested_sections(1_000_000);
    let sections =
        [(".debug_abbrev", abbreviations), (".debug_info", entries), ("__rseq_cs", descriptor)];
    let checked = check::bytes("a file", &elf(&sections)).expect("an ELF file");
    assert_eq!(checked.reports[0].sections.len(), 1);
}

#[test]
fn sections_that_overlap_are_refused() {
    // Two headers with the same bytes.
    let sections = [("a", vec![0; 60_000]), ("b", vec![0; 60_000])];
    let mut file = elf(&sections);
    assert!(check::bytes("a file", &file).is_ok());
    // The size in the header of `a`, the last but two.
    let at = file.len() - 3 * 64 + 32;
    file[at..at + 8].copy_from_slice(&120_000_u64.to_le_bytes());
    let said = check::bytes("a file", &file).expect_err("overlapping sections").to_string();
    assert!(said.contains("its sections overlap"), "{said}");
}

#[test]
fn many_lines_of_one_file_take_no_long_time() {
    use std::fmt::Write as _;
    let mut maps = String::new();
    for nth in 0..200_000_u64 {
        let _ = writeln!(maps, "{:x}-{:x} r-xp 0 0:0 0 /no/{nth}", nth << 12, (nth + 1) << 12);
        let _ = writeln!(maps, "{:x}-{:x} r-xp 0 0:0 0 /no/one", nth << 12, (nth + 1) << 13);
    }
    // Quadratic, this is hours.
    let files = Files::new(&maps, None);
    assert_eq!(files.program(), Some(Path::new("/no/0")));
}
