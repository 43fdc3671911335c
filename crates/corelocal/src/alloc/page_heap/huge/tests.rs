use super::*;
use crate::alloc::page_heap;
use std::format;
use std::fs;
use std::string::String;

/// The kernel's flags for the mapping of an address, from `/proc/self/smaps`.
fn flags(address: usize) -> String {
    let (smaps, mut is_here) = (fs::read_to_string("/proc/self/smaps").unwrap(), false);
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap();
        if let Some((from, to)) = first.split_once('-') {
            let [from, to] = [from, to].map(|end| usize::from_str_radix(end, 16).unwrap());
            is_here = (from..to).contains(&address);
        } else if is_here && first == "VmFlags:" {
            return format!("{line} ");
        }
    }
    panic!("nothing is mapped at {address:x}");
}

/// As before Linux 6.1: the kernel may make a dense page huge, and no more once a part of it was given back.
#[test]
fn what_the_kernel_may_make_huge() {
    if cfg!(miri) || !fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap_or(false) {
        std::eprintln!("skipped: what_the_kernel_may_make_huge: the kernel has no huge pages");
        return;
    }
    let mut place = 0_u64;
    if !pages::nodes_of(&[(&raw mut place).cast()], &mut [0]) {
        std::eprintln!("skipped: what_the_kernel_may_make_huge: the kernel tells no page's node");
        return;
    }
    let range = Range::make().unwrap();
    let chunks = 3 * IN_A_HUGE_PAGE;
    let run = page_heap::claim(range, chunks, IN_A_HUGE_PAGE).unwrap();
    let page = run.first / IN_A_HUGE_PAGE;
    for chunk in 0..chunks {
        let at = range.address(run.first + chunk) as *mut u8;
        // SAFETY: chunks that this test has claimed.
        unsafe { at.write_bytes(chunk as u8, CHUNK) };
    }
    assert!(flags(address(range, page) as usize).contains(" nh "));
    // All but one page is dense; that one is as if it had never been scanned.
    for page in page..page + 3 {
        Bit::dense(range, page).set();
        assert!(is_used(range, page) && is_there(range, page));
        let mut look = Look { range, way: Way::Allow, areas: 0, found: 0..0, made: 0 };
        assert!(look.find(page) && look.make_found() && look.made == 1);
        assert!(Bit::huge(range, page).is_set());
        assert!(flags(address(range, page) as usize).contains(" hg "));
    }
    assert!(areas(range) >= 1);
    assert!(!is_new_area(range, &(page + 3..page + 4)));
    // A part of the second page is given back.
    let before = Way::known();
    Way::Allow.set();
    let part = address(range, page + 1) as usize + CHUNK;
    // SAFETY: chunks that this test has claimed, whose content is not needed.
    unsafe { break_up(range, part, CHUNK) };
    before.set();
    assert!(!Bit::huge(range, page + 1).is_set());
    assert!(flags(address(range, page + 1) as usize).contains(" nh "));
    for chunk in (0..chunks).filter(|chunk| *chunk != IN_A_HUGE_PAGE + 1) {
        let at = range.address(run.first + chunk) as *const u8;
        // SAFETY: chunks that this test has claimed.
        assert!(unsafe { at.read() == chunk as u8 && at.add(CHUNK - 1).read() == chunk as u8 });
    }
    // SAFETY: chunks that this test has claimed.
    unsafe {
        for page in [page, page + 2] {
            assert!(unset(range, &Bit::huge(range, page)));
            huge_pages::forbid(address(range, page), HUGE_PAGE);
        }
    }
    assert!(!is_there(range, range.known_part(0).end / IN_A_HUGE_PAGE - 1));
    page_heap::release(range, run.first, chunks);
}
