//! Tests of `sites.rs`.

use super::*;

fn frame(file: &str, functions: &[&str]) -> Frame {
    let function = |name: &&str| Function::named(name);
    Frame {
        address: 1,
        file: Some(Path::new(file).into()),
        functions: functions.iter().map(function).collect(),
    }
}

fn names(frames: &[Frame]) -> Vec<&str> {
    let functions = frames.iter().flat_map(|frame| &frame.functions);
    functions.filter_map(|function| function.name.as_deref()).collect()
}

#[test]
fn the_malloc_is_left_out() {
    let own = Some(Path::new("/program"));
    let mut frames = vec![
        frame("/malloc.so", &["copy"]),
        frame("/malloc.so", &["malloc"]),
        frame("/program", &["f"]),
    ];
    without_malloc(&mut frames, own);
    assert_eq!(names(&frames), ["f"]);
    // For its own thread.
    let mut frames = vec![
        frame("/malloc.so", &["calloc"]),
        frame("/libc.so", &["pthread_create"]),
        frame("/malloc.so", &["begin"]),
        frame("/malloc.so", &["malloc"]),
        frame("/program", &["f"]),
    ];
    without_malloc(&mut frames, own);
    assert_eq!(names(&frames), ["pthread_create", OWN]);
    // Inside the program, and inlined.
    let mut frames = vec![
        frame("/program", &["corelocal::sys::stack::copy"]),
        frame(
            "/program",
            &["corelocal::alloc::front::pop", "__rust_alloc", "alloc::alloc::alloc", "f"],
        ),
        frame("/program", &["corelocal::alloc::lab::x"]),
    ];
    without_malloc(&mut frames, own);
    assert_eq!(names(&frames), ["alloc::alloc::alloc", "f", "corelocal::alloc::lab::x"]);
    // Something is left.
    let mut frames = vec![frame("/malloc.so", &["malloc"])];
    without_malloc(&mut frames, own);
    assert_eq!(names(&frames), ["malloc"]);
    without_malloc(&mut Vec::new(), own);
}

#[test]
fn a_deleted_library_keeps_its_name() {
    let mut heap = super::super::file::parse(&super::super::file::tests::file(&[100])).unwrap();
    heap.samples[0].registers = [0x7f01, 0, 0, 0, 0, 0, 0, 0];
    heap.samples[0].stack = vec![0; 2];
    heap.maps = "7f00-8f00 r-xp 00001000 fe:00 12 /usr/lib/plug in.so (deleted)\n".to_owned();
    let told = told(&heap, false);
    let names: Vec<_> = told.calls(&told.stacks[0]).map(|call| &*call.function).collect();
    assert!(names[0].starts_with("plug in.so (deleted), 0x7f0"), "{names:?}");
}

#[test]
fn sites_are_the_programs() {
    let call = |function: &str, source: Option<&str>| Call {
        function: function.into(),
        source: source.map(Arc::from),
    };
    for (function, source, is) in [
        ("<alloc::vec::Vec<T> as core::clone::Clone>::clone", None, true),
        ("with_capacity_in<u8>", Some("/rustc/0123/library/alloc/src/raw_vec.rs:1"), true),
        ("operator new(unsigned long)", None, true),
        ("program::alloc::make", None, false),
        ("coreutils::main", None, false),
    ] {
        assert_eq!(is_plumbing(&call(function, source)), is, "{function}");
    }
}

#[test]
fn a_sample_that_tells_nothing_has_a_place() {
    let heap = super::super::file::parse(&super::super::file::tests::file(&[100, 100])).unwrap();
    let told = told(&heap, false);
    assert_eq!((told.samples, told.stacks.len()), (2, 1));
    assert!(told.calls(&told.stacks[0]).next().is_some());
    assert!(told.bytes() > 1e6);
    assert!(super::told(&heap, true).stacks.is_empty());
}
