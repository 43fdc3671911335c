use super::*;
use crate::alloc::store;
use std::fs;
use std::vec::Vec;

/// Whether the address is in a mapping.
fn is_mapped(address: usize) -> bool {
    let mut state = 0u8;
    // SAFETY: the kernel writes a byte for the one page.
    unsafe { libc::mincore((address & !4095) as *mut _, 1, &mut state) == 0 }
}

fn is_open(range: Range, chunk: usize) -> bool {
    range.next_stretch(chunk..chunk + 1, true).is_some()
}

/// The word of bits that all chunks of a long run lie in, far from what other tests use.
fn claim_far(range: Range, words: usize) -> usize {
    // Longer than any gap that another test leaves.
    let run = store::claim(range, 40_000, 1).expect("room");
    store::release(range, run.first, 40_000);
    run.first + 20_000 / IN_A_WORD * IN_A_WORD + words * IN_A_WORD
}

#[test]
fn what_is_taken_is_mapped_and_what_is_free_for_long_is_not() {
    let range = Range::make().unwrap();
    let run = store::claim(range, 300, 1).unwrap();
    let chunks = run.first..run.first + 300;
    assert!(chunks.clone().all(|chunk| is_open(range, chunk) && is_mapped(range.address(chunk))));
    let last = range.address(chunks.end) - 8;
    // SAFETY: in the run.
    unsafe { (last as *mut u64).write(1) };
    store::release(range, run.first, 300);
    // Other tests may take some of them at once, and purge as well.
    let closed = (0..1000).any(|_| {
        store::purge(range, 0, false);
        chunks.clone().any(|chunk| !is_open(range, chunk))
    });
    assert!(closed);
    let again = store::claim(range, 300, 1).unwrap();
    assert!((again.first..again.first + 300).all(|chunk| is_mapped(range.address(chunk))));
    store::release(range, again.first, 300);
}

/// A mapping of the program's in the midst of the range stays as it is, and its chunks are never given out.
#[test]
fn a_foreign_mapping_in_the_way_is_left_alone() {
    let range = Range::make().unwrap();
    let first = claim_far(range, 0);
    // Where nothing is open.
    while range.next_stretch(first..first + 2 * IN_A_WORD, true).is_some() {
        store::purge(range, 0, false);
    }
    let foreign = first + IN_A_WORD + 7;
    let at = range.address(foreign);
    // SAFETY: whole pages of nobody's.
    let mapped = unsafe { pages::map_at(at + 4096, 8192, true, pages::Ground::Unmapped) };
    if mapped.is_err() {
        std::eprintln!(
            "skipped: a_foreign_mapping_in_the_way_is_left_alone: another test was faster"
        );
        return;
    }
    // SAFETY: just mapped.
    unsafe { ((at + 4096) as *mut u64).write(0x1234) };
    let run = first..first + 2 * IN_A_WORD;
    let words = [first / IN_A_WORD, first / IN_A_WORD + 1];
    if !words.iter().all(|word| range.words(*word).take(u64::MAX)) {
        std::eprintln!(
            "skipped: a_foreign_mapping_in_the_way_is_left_alone: another test was faster"
        );
        return;
    }
    assert_eq!(range.open_run(run.clone()), Opened::Foreign);
    let closed: Vec<usize> = run.clone().filter(|chunk| !is_open(range, *chunk)).collect();
    assert_eq!(closed, [foreign]);
    // SAFETY: mapped above.
    assert_eq!(unsafe { ((at + 4096) as *const u64).read() }, 0x1234);
    for chunk in run.filter(|chunk| *chunk != foreign) {
        store::free_bits(range, chunk, 1);
    }
    // Runs are found around it, and none that it lies in.
    let runs: Vec<usize> = (0..50).map(|_| store::claim(range, 64, 1).unwrap().first).collect();
    assert!(runs.iter().all(|first| !(*first..*first + 64).contains(&foreign)));
    runs.into_iter().for_each(|first| store::release(range, first, 64));
}

/// Neither a small program nor a large one has much more address space than it uses.
#[test]
fn a_step_is_in_proportion() {
    let range = Range::make().unwrap();
    let run = store::claim(range, 1, 1).unwrap();
    let open = range.header().opened.load(R);
    let closed = run.first + 1..run.first + 1;
    let wide = range.widen(&closed, &closed);
    let step = (open / STEP_SHARE).clamp(LEAST_STEP, MOST_STEP);
    assert!(wide.len() <= step + 2 * LEAST_STEP, "{wide:?} of {open}");
    free_bits(range, wide.start, closed.start - wide.start);
    free_bits(range, closed.end, wide.end - closed.end);
    store::release(range, run.first, 1);
}

/// The kernel is asked by page, so a huge page that is whole has its advice however it came to be.
#[test]
fn whole_huge_pages_are_advised_against() {
    if !fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap_or(false) {
        std::eprintln!(
            "skipped: whole_huge_pages_are_advised_against: the kernel has no huge pages"
        );
        return;
    }
    let range = Range::make().unwrap();
    let runs: Vec<usize> = (0..200).map(|_| store::claim(range, 5, 1).unwrap().first).collect();
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
    runs.into_iter().for_each(|first| store::release(range, first, 5));
}
