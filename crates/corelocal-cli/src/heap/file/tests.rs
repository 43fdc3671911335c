//! Tests of `file.rs`.

use proptest::prelude::*;

use super::super::{diff, diff_text, flame, pprof, sites, summary, text};
use super::*;

/// A piece of a file.
pub fn made(kind: u32, numbers: &[u64], text: &[u8]) -> Vec<u8> {
    let len = (numbers.len() * 8 + text.len()) as u32;
    let mut bytes = [kind.to_le_bytes(), len.to_le_bytes()].concat();
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes.extend(text);
    bytes
}

/// A file with a sample of each of these sizes, all of one stack.
pub fn file(sizes: &[u64]) -> Vec<u8> {
    let samples: Vec<(u64, u64)> = sizes.iter().map(|size| (*size, 1)).collect();
    file_of_stacks(&samples)
}

/// A file with a sample of each of these sizes and program counters.
pub fn file_of_stacks(samples: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(made(INFO, &[512 << 10, 4711, 0, 9, 2, 100, 60, 80, 5, 3, 8064, 99], b""));
    bytes.extend(made(MAP, &[], b"1000-2000 r-xp 00001000 fe:00 12 /usr/bin/program"));
    bytes.extend(made(77, &[1, 2], b"later"));
    for (size, at) in samples {
        let name = u64::from_le_bytes(*b"worker-3");
        bytes.extend(made(
            SAMPLE,
            &[*size, 7, 8, 1, name, 0, *at, 2, 3, 4, 5, 6, 7, 8, 9, 10],
            b"",
        ));
    }
    bytes.extend(made(END, &[], b""));
    bytes
}

#[test]
fn what_is_written_is_read() {
    let heap = parse(&file(&[100, 200])).expect("a profile");
    assert_eq!((heap.rate, heap.process, heap.missed, heap.most_stack), (512 << 10, 4711, 3, 8064));
    assert!(heap.is_whole && heap.maps.contains("/usr/bin/program\n"));
    let [first, second] = &heap.samples[..] else { panic!("two samples") };
    assert_eq!((first.size, second.size), (100, 200));
    assert_eq!(
        (first.name.as_str(), first.thread, &first.stack[..]),
        ("worker-3", 8, &[9, 10][..])
    );
    assert!(first.is_in_use && !first.was_at_peak && first.registers == [1, 2, 3, 4, 5, 6, 7, 8]);
    let bytes = first.bytes(heap.rate);
    assert!((bytes / (f64::from(512 << 10) + 50.0) - 1.0).abs() < 1e-6, "{bytes}");
    assert!(first.objects(100) == 1.0 && first.objects(1) == 1.0);
}

#[test]
fn what_is_no_profile_is_refused() {
    let said = |bytes: &[u8]| parse(bytes).expect_err("no profile").to_string();
    assert!(said(b"").contains("not a heap profile"));
    assert!(said(b"CLHEAP2\n").contains("another version"));
    assert!(said(MAGIC).contains("truncated"));
    let whole = file(&[1]);
    let cut = parse(&whole[..whole.len() - 1]).expect("most of it");
    assert!(!cut.is_whole && cut.samples.len() == 1);
    assert!(!is_meant(Path::new("/proc/self/exe")) && is_meant(Path::new("no/such.heap")));
}

/// A FIFO with this name.
pub fn make_pipe(path: &Path) {
    use std::os::unix::ffi::OsStrExt as _;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no zero byte");
    // SAFETY: a path that ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

#[test]
fn a_pipe_without_a_writer_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let [named, unnamed] = ["a.heap", "a"].map(|name| dir.path().join(name));
    make_pipe(&named);
    make_pipe(&unnamed);
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        done.send((is_meant(&unnamed), read(&named).map(|_| ()).map_err(|e| format!("{e:#}"))))
    });
    let (is_meant, read) =
        is_done.recv_timeout(std::time::Duration::from_secs(60)).expect("no wait");
    assert!(!is_meant);
    assert!(read.as_ref().is_err_and(|why| why.contains("not a heap profile")), "{read:?}");
}

proptest! {
    #[test]
    fn mangled_bytes_do_no_harm(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        len in any::<prop::sample::Index>(),
    ) {
        let mut bytes = file(&[1, 1000, 1 << 20]);
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(len.index(bytes.len()) + 1);
        if let Ok(heap) = parse(&bytes) {
            show(heap);
        }
    }

    /// As where bits of the sizes have flipped.
    #[test]
    fn sizes_that_no_object_has_do_no_harm(
        sizes in proptest::collection::vec(prop_oneof![Just(u64::MAX), any::<u64>(), 0_u64..4096], 4),
    ) {
        let samples: Vec<(u64, u64)> = sizes.into_iter().zip((0x1100..).step_by(16)).collect();
        let heap = parse(&file_of_stacks(&samples)).expect("a profile");
        assert_eq!(show(heap), samples.len());
    }
}

/// In every way there is; how many stacks there are.
fn show(heap: Heap) -> usize {
    let told = sites::told(&heap, false);
    let process = summary::Process::of(&heap, &told, 10, false);
    let _ = text::all(&[process], &[], 80);
    let lines = flame::collapsed([&told]);
    let _ = flame::svg(&lines, "");
    let stacks = told.stacks.len();
    let after = (heap, told);
    assert!(pprof::file(std::slice::from_ref(&after)).is_ok());

    let heap = parse(&file(&[100])).expect("a profile");
    let told = sites::told(&heap, false);
    let before = (heap, told);
    let lines = diff::collapsed(&before.1, &after.1);
    let _ = flame::svg(&lines, "");
    let _ = pprof::difference(&before, &after);
    if let Ok(difference) = diff::Difference::of(&before, &after, 10, false) {
        let _ = diff_text::all(&difference, 80);
    }
    stacks
}
