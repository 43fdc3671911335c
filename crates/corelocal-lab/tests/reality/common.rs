//! What the comparisons share.

use std::fmt;

/// So many, or as few as a tenth where each takes long, as on an emulated machine.
pub fn scaled(count: u32) -> u32 {
    let scale = std::env::var("CORELOCAL_TEST_SCALE").ok();
    let scale = scale.and_then(|scale| scale.parse::<f64>().ok()).unwrap_or(1.0);
    ((f64::from(count) * scale) as u32).clamp(count / 10, count)
}

/// The version of the running kernel.
pub fn release() -> (u32, u32) {
    let release =
        std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel has a release");
    let mut parts = release.split('.').map(|part| part.parse::<u32>());
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => panic!("{release}"),
    }
}

/// Says that model and kernel agree in so many cases. `ci/kernels --models` makes a table of these lines.
pub fn agree(what: &str, count: u32, of: &str, seen: fmt::Arguments<'_>) {
    println!("agreement: {what} | {count} | {of} | {seen}");
}

/// The cpus that the calling thread may run on.
pub fn allowed() -> Vec<u32> {
    // SAFETY: a set of this size, written by the kernel.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (0..libc::CPU_SETSIZE as u32).filter(|&cpu| libc::CPU_ISSET(cpu as usize, &set)).collect()
    }
}

/// Confines the calling thread to these cpus.
pub fn confine(cpus: &[u32]) {
    // SAFETY: a set of this size; the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu as usize, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Memory that children share, zeroed, for the rest of the process.
pub fn share<T: Zeroed>() -> &'static T {
    // SAFETY: new memory, which is never unmapped; zeros are a `T`.
    unsafe {
        let (read_write, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let memory = libc::mmap(std::ptr::null_mut(), size_of::<T>(), read_write, flags, -1, 0);
        assert!(memory != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        &*memory.cast::<T>()
    }
}

/// A type of atomics.
///
/// # Safety
/// Zeros are a value of the type.
pub unsafe trait Zeroed {}
