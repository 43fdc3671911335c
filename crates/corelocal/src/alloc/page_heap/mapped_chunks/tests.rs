use super::*;
use crate::alloc::layout::chunk::HUGE_PAGE;
use crate::alloc::page_heap;
use std::cell::Cell;
use std::fs;
use std::vec::Vec;

std::thread_local! {
    /// How often this thread tried to map chunks.
    pub(in crate::alloc) static OPENINGS: Cell<usize> = const { Cell::new(0) };
    /// The most chunks that this thread has unmapped in one call.
    pub(in crate::alloc) static CLOSED: Cell<usize> = const { Cell::new(0) };
}

/// Whether the address is mapped.
fn is_mapped(address: usize) -> bool {
    let mut state = 0u8;
    // SAFETY: the kernel writes a byte for the one page.
    unsafe { libc::mincore((address & !4095) as *mut _, 1, &mut state) == 0 }
}

fn is_open(range: Range, chunk: usize) -> bool {
    range.next_stretch(chunk..chunk + 1, true).is_some()
}

/// The first word of a long run of chunks, far from those that other tests use.
fn claim_far(range: Range, words: usize) -> usize {
    // Longer than any gap that another test leaves.
    let run = page_heap::claim(range, 40_000, 1).expect("room");
    page_heap::release(range, run.first, 40_000);
    run.first + 20_000 / IN_A_WORD * IN_A_WORD + words * IN_A_WORD
}

#[test]
fn what_is_taken_is_mapped_and_what_is_free_for_long_is_not() {
    let range = Range::make().unwrap();
    let run = page_heap::claim(range, 300, 1).unwrap();
    let chunks = run.first..run.first + 300;
    assert!(chunks.clone().all(|chunk| is_open(range, chunk) && is_mapped(range.address(chunk))));
    let last = range.address(chunks.end) - 8;
    // SAFETY: within the run.
    unsafe { (last as *mut u64).write(1) };
    page_heap::release(range, run.first, 300);
    // Other tests may claim some of them at once, and purge as well.
    let closed = (0..1000).any(|_| {
        page_heap::purge(range, 0, false);
        chunks.clone().any(|chunk| !is_open(range, chunk))
    });
    assert!(closed);
    let again = page_heap::claim(range, 300, 1).unwrap();
    assert!((again.first..again.first + 300).all(|chunk| is_mapped(range.address(chunk))));
    page_heap::release(range, again.first, 300);
}

/// Maps pages of the test's own, far from what other tests use and where nothing is mapped. Returns the first chunk
/// of the word, and the address of the pages. `None` if another test was faster.
fn foreign(range: Range, words: usize, from: usize, len: usize) -> Option<(usize, usize)> {
    let first = claim_far(range, words);
    let is_closed = (0..1000).any(|_| {
        page_heap::purge(range, 0, false);
        range.next_stretch(first..first + 40 * IN_A_WORD, true).is_none()
    });
    if !is_closed {
        return None;
    }
    let at = range.address(first) + from;
    // SAFETY: whole pages; the call fails if anything is mapped there.
    unsafe { pages::map_at(at, len, true, pages::Ground::Unmapped) }.ok()?;
    Some((first, at))
}

/// Claims words of chunks; false if another test has some.
fn take_words(range: Range, run: &ops::Range<usize>) -> bool {
    (run.start / IN_A_WORD..run.end / IN_A_WORD).all(|word| range.words(word).take(u64::MAX))
}

fn is_used(range: Range, chunk: usize) -> bool {
    range.words(chunk / IN_A_WORD).used.load(R) & mask(chunk % IN_A_WORD, 1) != 0
}

/// A mapping of the program in the middle of the range is left alone: its chunks are never allocated, and those
/// beside it are.
#[test]
fn a_foreign_mapping_in_the_way_is_left_alone() {
    let test = "a_foreign_mapping_in_the_way_is_left_alone";
    let range = Range::make().unwrap();
    let skip = || std::eprintln!("skipped: {test}: another test was faster");
    let Some((first, at)) = foreign(range, 0, (IN_A_WORD + 7) * CHUNK + 4096, 8192) else {
        return skip();
    };
    let foreign = first + IN_A_WORD + 7;
    // SAFETY: just mapped.
    unsafe { (at as *mut u64).write(0x1234) };
    let run = first..first + 2 * IN_A_WORD;
    if !take_words(range, &run) {
        return skip();
    }
    assert_eq!(range.open_run(run.clone()), Opened::Foreign);
    assert!(is_used(range, foreign) && !is_open(range, foreign));
    // SAFETY: mapped above.
    assert_eq!(unsafe { (at as *const u64).read() }, 0x1234);
    // Runs are found around it, and none that overlaps it.
    let runs: Vec<usize> = (0..50).map(|_| page_heap::claim(range, 64, 1).unwrap().first).collect();
    assert!(runs.iter().all(|first| !(*first..*first + 64).contains(&foreign)));
    runs.into_iter().for_each(|first| page_heap::release(range, first, 64));
    // The chunks beside it can be claimed.
    let beside = [foreign - 1, foreign + 1];
    let had = beside.map(|chunk| {
        (0..1000).any(|_| {
            let words = range.words(chunk / IN_A_WORD);
            let had = words.take(mask(chunk % IN_A_WORD, 1));
            if had {
                assert_eq!(range.open_run(chunk..chunk + 1), Opened::All);
                free_bits(range, chunk, 1);
            }
            had
        })
    });
    assert_eq!(had, [true; 2]);
}

/// The ends are found by halving: a long mapping takes as many calls as a short one.
#[test]
fn a_long_foreign_mapping_is_found_in_a_few_calls() {
    let test = "a_long_foreign_mapping_is_found_in_a_few_calls";
    let range = Range::make().unwrap();
    let skip = || std::eprintln!("skipped: {test}: another test was faster");
    let foreign_len = 30 * IN_A_WORD;
    let Some((first, _)) = foreign(range, 60, 70 * CHUNK, foreign_len * CHUNK) else {
        return skip();
    };
    let run = first..first + 40 * IN_A_WORD;
    if !take_words(range, &run) {
        return skip();
    }
    let before = OPENINGS.with(Cell::get);
    assert_eq!(range.open_run(run.clone()), Opened::Foreign);
    let calls = OPENINGS.with(Cell::get) - before;
    assert!(calls < 60, "{calls}");
    let foreign = first + 70..first + 70 + foreign_len;
    assert!(
        foreign.clone().all(|chunk| is_used(range, chunk) && range.has_foreign(chunk..chunk + 1))
    );
    assert!(
        run.filter(|chunk| !foreign.contains(chunk))
            .all(|chunk| !range.has_foreign(chunk..chunk + 1))
    );
}

#[test]
fn neighbours_are_closed_in_one_call() {
    let range = Range::make().unwrap();
    for most in [usize::MAX, 0] {
        // Other threads may claim or unmap some of them meanwhile.
        let is_long = (0..100).any(|_| {
            let run = page_heap::claim(range, 32 * IN_A_WORD, 1).expect("room");
            page_heap::release(range, run.first, 32 * IN_A_WORD);
            CLOSED.with(|closed| closed.set(0));
            match most {
                // As before an allocation fails.
                0 => _ = crate::alloc::page_heap::release::close_free(range, 1),
                _ => _ = page_heap::purge(range, 0, false),
            }
            CLOSED.with(Cell::get) > 2 * IN_A_WORD
        });
        assert!(is_long, "{most}");
    }
}

/// Neither a small program nor a large one has much more address space than it uses.
#[test]
fn a_step_is_in_proportion() {
    let range = Range::make().unwrap();
    let run = page_heap::claim(range, 1, 1).unwrap();
    let open = range.header().opened.load(R);
    let closed = run.first + 1..run.first + 1;
    let wide = range.widen(&closed, &closed);
    let step = (open / STEP_SHARE).clamp(LEAST_STEP, MOST_STEP);
    assert!(wide.len() <= step + 2 * LEAST_STEP, "{wide:?} of {open}");
    free_bits(range, wide.start, closed.start - wide.start);
    free_bits(range, closed.end, wide.end - closed.end);
    page_heap::release(range, run.first, 1);
}

/// The kernel is advised by page, so a complete huge page has its advice however it was completed.
#[test]
fn whole_huge_pages_are_advised_against() {
    if !fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap_or(false) {
        std::eprintln!(
            "skipped: whole_huge_pages_are_advised_against: the kernel has no huge pages"
        );
        return;
    }
    let range = Range::make().unwrap();
    let runs: Vec<usize> = (0..200).map(|_| page_heap::claim(range, 5, 1).unwrap().first).collect();
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut here = 0..0;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let [from, to] = [from, to].map(|end| usize::from_str_radix(end, 16).unwrap());
            here = from..to;
        } else if first == "VmFlags:" && !words.any(|flag| flag == "nh") {
            let is_whole = |page: usize| here.start <= page && page + HUGE_PAGE <= here.end;
            for first in &runs {
                let page = range.address(*first) & !(HUGE_PAGE - 1);
                assert!(!is_whole(page), "{page:x} in {here:x?}");
            }
        }
    }
    runs.into_iter().for_each(|first| page_heap::release(range, first, 5));
}
