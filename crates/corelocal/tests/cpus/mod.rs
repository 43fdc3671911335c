//! Threads that choose the cpu they run on.

/// The cpus that the process may use, found once.
fn all() -> &'static [usize] {
    static ALL: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    ALL.get_or_init(|| {
        // SAFETY: all-zero bytes are the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: a valid place for the set of the process's first thread.
        unsafe { libc::sched_getaffinity(libc::getpid(), size_of_val(&set), &mut set) };
        // SAFETY: the index is below the size of the set.
        (0..libc::CPU_SETSIZE as usize)
            .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
            .collect()
    })
}

/// How many there are.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn count() -> u32 {
    all().len() as u32
}

/// Moves the calling thread to some cpu, chosen by a number.
pub fn hop(number: u32) {
    // SAFETY: all-zero bytes are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the cpu comes from a set of this size.
    unsafe { libc::CPU_SET(all()[number as usize % all().len()], &mut set) };
    // SAFETY: a valid set; refused, the thread stays where it is.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
}

/// Keeps the calling thread on one cpu from here on, which has its slot: of two threads that give it one at
/// the same moment the second one gets none, and begins with a shared one.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn stay() {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    hop(0);
    let _alone = ALONE.lock();
    corelocal::cid::current::<corelocal::cid::CpuId>();
}
