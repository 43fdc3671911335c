//! The figures of the malloc, in a program that has it.
#![cfg(target_os = "linux")]

mod text;

use corelocal::alloc::CoreLocal;
use corelocal_metrics::{Recorder, record_malloc};
use metrics::with_local_recorder;

#[global_allocator]
static MEMORY: CoreLocal = CoreLocal;

fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
}

#[test]
fn the_gauges_follow_the_malloc() {
    let recorder = Recorder::builder().build().expect("a recorder");
    let render = || {
        with_local_recorder(&recorder, record_malloc);
        let text = recorder.handle().render();
        text::parse(&text);
        text
    };
    let before = render();
    let small: Vec<Box<[u8; 1000]>> = (0..10_000).map(|_| Box::new([1; 1000])).collect();
    let large = vec![1_u8; 40 << 20];
    let with = render();
    let more = |name: &str| value(&with, name) - value(&before, name);
    assert!((50e6..70e6).contains(&more("malloc_in_use_bytes")), "{with}");
    assert_eq!(more("malloc_large_objects"), 1.0);
    assert!(value(&with, "malloc_mapped_bytes") >= value(&with, "malloc_used_bytes"));
    drop((small, large));
    let after = render();
    assert!(value(&after, "malloc_in_use_bytes") < value(&with, "malloc_in_use_bytes") - 40e6);
    assert!(value(&after, "malloc_idle_bytes") + value(&after, "malloc_released_bytes") > 30e6);
    assert!(after.contains("# HELP malloc_idle_bytes"), "{after}");
}
