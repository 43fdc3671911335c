//! Tests of `shared_file.rs`.

use super::*;

#[test]
fn descriptors_have_paths() {
    assert_eq!(DescriptorPath::of(0).as_c_str(), c"/proc/thread-self/fd/0");
    assert_eq!(DescriptorPath::of(70).as_c_str(), c"/proc/thread-self/fd/70");
    assert_eq!(DescriptorPath::of(c_int::MAX).as_c_str(), c"/proc/thread-self/fd/2147483647");
}
