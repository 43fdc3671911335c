//! Where threads may run: keeps a single-threaded measurement on one cpu, when that is allowed, and
//! confines child processes.
//!
//! Invariant: the thread's own mask is put back when [`Pinned`] goes away, also on an error.

use std::io;

/// Room for 8192 cpus, the largest number a Linux kernel for x86-64 can be built for.
type Mask = [u64; 128];

/// The calling thread runs on one cpu only while this exists.
pub struct Pinned {
    before: Mask,
    cpu: usize,
}

impl Pinned {
    /// Moves the calling thread to the highest cpu it may use: low numbers tend to serve
    /// interrupts.
    ///
    /// # Errors
    ///
    /// What `sched_getaffinity(2)` or `sched_setaffinity(2)` answered, `EPERM` under some seccomp
    /// filters.
    pub fn to_one_cpu() -> io::Result<Self> {
        let before = get()?;
        let highest = before.iter().rposition(|&word| word != 0);
        let Some(word) = highest else { return Err(io::ErrorKind::NotFound.into()) };
        let bit = before[word].ilog2() as usize;
        let mut one: Mask = [0; 128];
        one[word] = 1 << bit;
        set(&one)?;
        Ok(Self { before, cpu: word * 64 + bit })
    }

    /// Returns the cpu.
    pub fn cpu(&self) -> usize {
        self.cpu
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A mask that was in force a moment ago is refused only when its cpus went offline since,
        // and then the kernel has already widened it.
        let _ = set(&self.before);
    }
}

/// Leaves `cpus` to the calling thread and to those it starts.
///
/// # Errors
///
/// As [`Pinned::to_one_cpu`]; `EINVAL` for cpus that there are not.
pub fn confine(cpus: &[usize]) -> io::Result<()> {
    let mut mask: Mask = [0; 128];
    for cpu in cpus {
        let word = mask.get_mut(cpu / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (cpu % 64);
    }
    set(&mask)
}

/// Returns the cpus that the calling thread may use, in their order.
///
/// # Errors
///
/// As [`Pinned::to_one_cpu`].
pub fn allowed() -> io::Result<Vec<usize>> {
    let mask = get()?;
    let is_in = |cpu: &usize| mask[cpu / 64] & 1 << (cpu % 64) != 0;
    Ok((0..mask.len() * 64).filter(is_in).collect())
}

fn get() -> io::Result<Mask> {
    let mut mask: Mask = [0; 128];
    // SAFETY: the mask is valid for writes of the size given, and the kernel writes no more.
    let rc = unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), mask.as_mut_ptr().cast()) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(mask) }
}

fn set(mask: &Mask) -> io::Result<()> {
    // SAFETY: the mask is valid for reads of the size given; the kernel reads no more.
    let rc = unsafe { libc::sched_setaffinity(0, size_of::<Mask>(), mask.as_ptr().cast()) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> Mask {
        let mut mask: Mask = [0; 128];
        // SAFETY: the mask is valid for writes of the size given.
        unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), mask.as_mut_ptr().cast()) };
        mask
    }

    #[test]
    fn confines_to_one() {
        let before = current();
        let word = before.iter().position(|&word| word != 0).unwrap();
        let cpu = word * 64 + before[word].trailing_zeros() as usize;
        std::thread::spawn(move || match confine(&[cpu]) {
            Ok(()) => assert_eq!(current().iter().map(|word| word.count_ones()).sum::<u32>(), 1),
            Err(refused) => eprintln!("skipped: confines_to_one: {refused}"),
        })
        .join()
        .unwrap();
        assert_eq!(current(), before);
        assert!(confine(&[1 << 20]).is_err());
    }

    #[test]
    fn pins_and_restores() {
        let before = current();
        match Pinned::to_one_cpu() {
            Ok(pinned) => {
                let now = current();
                assert_eq!(now.iter().map(|word| word.count_ones()).sum::<u32>(), 1);
                assert_ne!(now[pinned.cpu() / 64] >> (pinned.cpu() % 64) & 1, 0);
            }
            Err(refused) => eprintln!("skipped: pins_and_restores: {refused}"),
        }
        assert_eq!(current(), before);
    }
}
