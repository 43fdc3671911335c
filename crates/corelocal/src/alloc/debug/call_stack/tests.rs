//! Tests of `call_stack.rs`.

use super::*;
use std::boxed::Box;

/// Zeroed memory, as in the pool.
fn zeroed<T>() -> Box<T> {
    let layout = std::alloc::Layout::new::<T>();
    // SAFETY: both types consist of numbers and are not zero-sized.
    unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast()) }
}

#[test]
fn code_of_this_program() {
    let mut maps: Box<Maps> = zeroed();
    maps.read();
    let here = code_of_this_program as fn() as usize;
    let map = maps.of(here).expect("code");
    let path = std::env::current_exe().unwrap();
    assert_eq!(maps.text_of(map.path), path.as_os_str().as_encoded_bytes());
    assert!(map.is_readable && map.base <= map.start && here - map.base < 1 << 32);
    assert!(!maps.is_code(&raw const maps as usize) && !maps.is_code(0));
}

#[test]
fn lines_of_maps() {
    let line = b"55d0c8a00000-55d0c8a21000 r-xp 00002000 fd:01 123      /a path";
    let mapping = Mapping::of_line(line, 100).unwrap();
    assert_eq!((mapping.start, mapping.end), (0x55d0_c8a0_0000, 0x55d0_c8a2_1000));
    assert!(mapping.is_code && mapping.is_readable && mapping.offset == 0x2000);
    assert_eq!(&line[mapping.path.0 - 100..mapping.path.1 - 100], b"/a path");
    let nameless = Mapping::of_line(b"7f00-7f01 rw-p 00000000 00:00 0", 0).unwrap();
    assert!(nameless.path.0 == nameless.path.1 && !nameless.is_code);
    assert!(Mapping::of_line(b"what else", 0).is_none());
}

#[cfg(all(target_arch = "aarch64", not(corelocal_model)))]
#[test]
fn calls() {
    let call = |word: u32| {
        let mut code = [0; 7];
        code[3..].copy_from_slice(&word.to_le_bytes());
        stacks::ends_with_a_call(code)
    };
    let (bl, blr_x8, blraa, b, br_x8, ret) =
        (0x97ff_fff0, 0xd63f_0100, 0xd73f_0909, 0x17ff_fff0, 0xd61f_0100, 0xd65f_03c0);
    assert!(call(bl) && call(blr_x8) && call(blraa));
    assert!(!call(b) && !call(br_x8) && !call(ret));
}

#[cfg(all(target_arch = "x86_64", not(corelocal_model)))]
#[test]
fn calls() {
    let call = |bytes: &[u8]| {
        let mut code = [0x90; 7];
        code[7 - bytes.len()..].copy_from_slice(bytes);
        stacks::ends_with_a_call(code)
    };
    assert!(call(&[0xe8, 1, 2, 3, 4]) && call(&[0xff, 0xd0]) && call(&[0xff, 0x50, 8]));
    assert!(call(&[0xff, 0x15, 1, 2, 3, 4]) && call(&[0xff, 0x94, 0x24, 1, 2, 3, 4]));
    assert!(!call(&[0xc3]) && !call(&[0xff, 0xe0]) && !call(&[0xe8, 1, 2, 3]));
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(corelocal_model)))]
#[test]
fn the_caller_is_among_the_callers() {
    #[inline(never)]
    fn caller(trace: &CallStack) {
        // SAFETY: owned by this test.
        unsafe { trace.take() };
        std::hint::black_box(());
    }
    let (trace, mut maps): (Box<CallStack>, Box<Maps>) = (zeroed(), zeroed());
    maps.read();
    caller(&trace);
    let mut callers = std::vec::Vec::new();
    // SAFETY: owned by this test.
    unsafe { &*trace.0.get() }.for_each_caller(&maps, |address, _| {
        callers.push(address);
        true
    });
    let from = caller as fn(&CallStack) as usize;
    assert!(callers.iter().any(|at| (from..from + 200).contains(at)), "{from:x} {callers:x?}");
}
