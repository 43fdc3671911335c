//! The walk on this machine's own vDSO, whole, damaged and cut.

use super::*;
use proptest::prelude::*;
use std::vec::Vec;
use std::{eprintln, vec};

use crate::sys::kernel_clock::NAME as CLOCK_GETTIME;

/// A copy of this process's vDSO.
fn own_image() -> Option<Vec<u8>> {
    // SAFETY: as in `symbol`.
    let image = unsafe {
        let base = libc::getauxval(libc::AT_SYSINFO_EHDR) as *const u8;
        if base.is_null() {
            eprintln!("skipped: vdso: this process has no vDSO");
            return None;
        }
        let length = Image(slice::from_raw_parts(base, 4096)).mapped_length().unwrap();
        slice::from_raw_parts(base, length).to_vec()
    };
    Some(image)
}

#[test]
fn clock_gettime_is_found_and_is_a_clock() {
    if own_image().is_none() {
        return;
    }
    let address = symbol(CLOCK_GETTIME).expect("every vDSO has it");
    type ClockGettime = extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;
    // SAFETY: this is the type vdso(7) gives.
    let clock_gettime = unsafe { core::mem::transmute::<*const (), ClockGettime>(address) };
    let read = || {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: -1 };
        assert_eq!(clock_gettime(libc::CLOCK_MONOTONIC, &mut now), 0);
        (now.tv_sec, now.tv_nsec)
    };
    let mut by_libc = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let before = read();
    // SAFETY: `by_libc` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut by_libc) };
    let by_libc = (by_libc.tv_sec, by_libc.tv_nsec);
    assert!(before <= by_libc && by_libc <= read());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn getcpu_is_found_and_names_an_allowed_cpu() {
    if own_image().is_none() {
        return;
    }
    let address = symbol("__vdso_getcpu").expect("every x86-64 vDSO has it");
    type Getcpu = extern "C" fn(*mut u32, *mut u32, *mut ()) -> libc::c_int;
    // SAFETY: this is the type vdso(7) gives.
    let getcpu = unsafe { core::mem::transmute::<*const (), Getcpu>(address) };
    let (mut cpu, mut node) = (u32::MAX, u32::MAX);
    assert_eq!(getcpu(&mut cpu, &mut node, core::ptr::null_mut()), 0);
    let affinity =
        crate::sys::topology::Topology::read(crate::sys::topology::FsRoot::SYSTEM).affinity;
    assert!(affinity.set.contains(cpu as usize), "cpu {cpu} is not in {}", affinity.set);
}

#[test]
fn what_is_not_there_is_none() {
    assert_eq!(symbol("__vdso_no_such_function"), None);
    assert_eq!(symbol(""), None);
    // A prefix of a name is not the name.
    assert_eq!(symbol(&CLOCK_GETTIME[..CLOCK_GETTIME.len() - 1]), None);
    assert_eq!(symbol("\0"), None);
}

#[test]
fn garbage_is_none() {
    for garbage in [vec![], vec![0; 4096], b"\x7fELF".to_vec(), vec![0xff; 8192]] {
        assert_eq!(Image(&garbage).symbol(CLOCK_GETTIME.as_bytes()), None);
        assert_eq!(Image(&garbage).mapped_length(), None);
    }
}

/// Either hash table alone leads to every symbol that both do.
#[test]
fn each_hash_table_suffices() {
    let Some(image) = own_image() else { return };
    let parsed = Image(&image);
    let symbol_count = parsed.tables().unwrap().symbol_count;
    let dynamic = parsed.segments().unwrap().find(|segment| segment.kind == PT_DYNAMIC).unwrap();
    let start = parsed.offset(dynamic.address).unwrap();
    let tag = |entry: usize| parsed.long(entry).unwrap();
    let entry_of = |wanted: u64| {
        let mut entries = (start..).step_by(16).take_while(|&entry| tag(entry) != DT_NULL);
        entries.find(|&entry| tag(entry) == wanted)
    };
    let (Some(hash), Some(gnu_hash)) = (entry_of(DT_HASH), entry_of(DT_GNU_HASH)) else {
        eprintln!("skipped: vdso::each_hash_table_suffices: this vDSO has only one hash table");
        return;
    };
    for hidden in [hash, gnu_hash] {
        let mut copy = image.clone();
        let unknown_tag = 0x6fff_0000u64;
        copy[hidden..hidden + 8].copy_from_slice(&unknown_tag.to_ne_bytes());
        assert_eq!(Image(&copy).tables().unwrap().symbol_count, symbol_count);
    }
}

#[test]
fn a_cut_image_never_yields_an_address_outside_it() {
    let Some(image) = own_image() else { return };
    for length in 0..image.len() {
        if let Some(offset) = Image(&image[..length]).symbol(CLOCK_GETTIME.as_bytes()) {
            assert!(offset < length);
        }
    }
}

proptest! {
    #[test]
    fn a_damaged_image_never_panics(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        in_head in any::<bool>(),
    ) {
        if let Some(mut image) = own_image() {
            // The headers and tables are in the first pages, where damage matters most.
            let reach = if in_head { 1024 } else { image.len() };
            for (index, byte) in damage {
                image[index.index(reach)] = byte;
            }
            if let Some(offset) = Image(&image).symbol(CLOCK_GETTIME.as_bytes()) {
                prop_assert!(offset < image.len());
            }
        }
    }
}
