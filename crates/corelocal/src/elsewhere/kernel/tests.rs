//! Tests of `kernel.rs`.

use super::*;

fn futex(word: &AtomicU32, command: c_int, value: u32, deadline: Option<timespec>) -> isize {
    let deadline = deadline.as_ref().map_or(0, |time| &raw const *time as usize);
    let args = [word.as_ptr() as usize, command as usize, value as usize, deadline, 0, 0];
    // SAFETY: a word and a deadline of this function's caller, which outlive the call.
    unsafe { call(SYS_futex, args) }
}

#[test]
fn a_waiter_is_woken_or_times_out() {
    let word = AtomicU32::new(1);
    assert_eq!(futex(&word, FUTEX_WAIT_BITSET, 0, None), -(EAGAIN as isize));
    let past = timespec { tv_sec: 0, tv_nsec: 1 };
    assert_eq!(futex(&word, FUTEX_WAIT_BITSET, 1, Some(past)), -(ETIMEDOUT as isize));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while word.load(Ordering::SeqCst) == 1 {
                futex(&word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 1, None);
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        word.store(2, Ordering::SeqCst);
        futex(&word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, u32::MAX, None);
    });
}

#[test]
fn memory_is_zero_and_other_calls_are_refused() {
    // SAFETY: a mapping of this test's.
    unsafe {
        let at = call(SYS_mmap, [0, 1 << 20, 0, 0, 0, 0]);
        assert!(at > 0 && at as usize % PAGE == 0);
        let bytes = core::slice::from_raw_parts_mut(at as *mut u8, 1 << 20);
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(1);
        let len = bytes.len();
        assert_eq!(call(SYS_madvise, [at as usize, len, MADV_DONTNEED as usize, 0, 0, 0]), 0);
        assert_eq!((at as *const u8).add(4096).read(), 0);
        // In parts: the memory is there until the last one.
        let at = at as usize;
        for part in [at..at + PAGE, at + 5 * PAGE..at + len, at + PAGE..at + 5 * PAGE] {
            assert!(MAPPINGS.lock().unwrap().iter().any(|mapping| mapping.at == at));
            assert_eq!(call(SYS_munmap, [part.start, part.len(), 0, 0, 0, 0]), 0);
        }
        assert!(MAPPINGS.lock().unwrap().iter().all(|mapping| mapping.at != at));
        assert_eq!(call(SYS_munmap, [at, PAGE, 0, 0, 0, 0]), -(EINVAL as isize));
        assert_eq!(call(SYS_membarrier, [0; 6]), -(ENOSYS as isize));
        assert_eq!(call(SYS_mmap, [0, usize::MAX / 2, 0, 0, 0, 0]), -(ENOMEM as isize));
    }
}

#[test]
fn clocks_go_on() {
    let read = |clock| {
        let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a place for a time.
        assert_eq!(unsafe { clock_gettime(clock, &raw mut time) }, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let first = read(CLOCK_MONOTONIC);
    assert!(read(CLOCK_MONOTONIC) >= first);
    assert!(read(CLOCK_REALTIME) > Duration::from_secs(1_600_000_000));
}
