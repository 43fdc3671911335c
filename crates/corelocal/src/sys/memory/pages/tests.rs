//! Tests of `pages.rs`.

use super::*;

#[test]
fn address_space_is_counted() {
    let Some(before) = address_space() else { return };
    // Far more than other tests give back meanwhile.
    let len = 1 << 40;
    let Some(at) = reserve(len) else { return };
    let with_it = address_space().unwrap();
    // SAFETY: reserved above.
    unsafe { unmap(at, len) };
    assert!(before > 1 << 20 && with_it > before + len / 2, "{before} {with_it}");
}

#[test]
fn where_pages_are() {
    let at = map(3 * page_size()).unwrap();
    // SAFETY: pages just mapped.
    let placed = unsafe { place_locally(at, 3 * page_size()) };
    // SAFETY: a mapped page, accessed by this test only.
    unsafe {
        assert_eq!(at.add(page_size()).read_volatile(), 0);
        at.add(2 * page_size()).write_volatile(1);
    }
    let pages = [0, 1, 2].map(|page| page * page_size()).map(|offset| at.wrapping_add(offset));
    let mut nodes = [7; 3];
    if nodes_of(&pages, &mut nodes) {
        assert!(nodes[0] < 0 && nodes[1] < 0 && nodes[2] >= 0, "{nodes:?}");
        assert!(!may_be_written(pages[1], 1));
        assert!(!may_be_written(at, 2 * page_size()) || nodes[0] != -libc::EFAULT);
        assert!(placed.is_ok() || nodes[2] == 0, "{placed:?} {nodes:?}");
    }
    assert!(may_be_written(pages[2], 1) && may_be_written(at, 3 * page_size()));
    // SAFETY: mapped above.
    unsafe { unmap(at, 3 * page_size()) };
}

/// The state in which the kernel puts pages to observe their users. Some kernels report no node then.
#[test]
fn a_page_that_nobody_may_access_was_written() {
    let at = map(page_size()).unwrap();
    // SAFETY: a page just mapped.
    unsafe { at.write_volatile(1) };
    let access = |protection: i32| {
        let args = [at as usize, page_size(), protection as usize, 0, 0, 0];
        // SAFETY: the page just mapped, which no other thread knows.
        unsafe { syscall(libc::SYS_mprotect, args) }.unwrap();
    };
    access(libc::PROT_NONE);
    assert!(may_be_written(at, 1));
    access(libc::PROT_READ);
    // SAFETY: readable again.
    assert_eq!(unsafe { at.read_volatile() }, 1);
    // SAFETY: mapped above.
    unsafe { unmap(at, page_size()) };
}
