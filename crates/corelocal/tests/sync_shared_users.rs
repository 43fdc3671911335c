//! Shared objects and other users: which files a box opens, and what another user can do to an object that is shared
//! with it.

mod forked;
mod storm;
mod users;

use std::fs;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use corelocal::sync::shared::{self, SharedBox, SharedError, SharedSafe, TamperSafe, layout};
use corelocal::sync::{wait_all_for, wait_any_for};
use corelocal::sys::Errno;
use forked::End;
use users::{ALICE, BOB, as_user, may_change};

/// A name of this test's own, taken away in the end.
struct Name(String);

impl Name {
    fn new(test: &str) -> Name {
        let name = Name(format!("corelocal-users-{test}-{}", std::process::id()));
        let _ = fs::remove_file(name.path());
        name
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/dev/shm").join(&self.0)
    }

    fn set_mode(&self, mode: u32) {
        fs::set_permissions(self.path(), fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.path());
    }
}

/// An object; without a /dev/shm to write to the test is skipped.
fn make<T: SharedSafe + Sync>(test: &str, value: T) -> Option<(Name, SharedBox<T>)> {
    let name = Name::new(test);
    // SAFETY: the name is this test's own; its children keep to the rules where the test does not say so.
    match unsafe { SharedBox::create(&name.0, value) } {
        Ok(made) => Some((name, made)),
        Err(error) => {
            eprintln!("skipped: {test}: /dev/shm: {error}");
            None
        }
    }
}

fn open<T: SharedSafe + Sync>(name: &Name) -> Result<SharedBox<T>, SharedError> {
    // SAFETY: as in `make`.
    unsafe { SharedBox::open(&name.0) }
}

#[test]
fn objects_that_others_may_write_to_are_refused() {
    let Some((name, made)) = make("objects_that_others_may_write_to_are_refused", 7_u64) else {
        return;
    };
    for mode in [0o660, 0o620, 0o602, 0o606, 0o666, 0o777] {
        name.set_mode(mode);
        assert_eq!(open::<u64>(&name).err(), Some(SharedError::Mode { found: mode }));
        // SAFETY: as in `make`.
        let by_descriptor = unsafe { SharedBox::<u64>::from_descriptor(made.descriptor()) };
        assert_eq!(by_descriptor.err(), Some(SharedError::Mode { found: mode }));
    }
    // Others may look.
    for mode in [0o600, 0o640, 0o644] {
        name.set_mode(mode);
        assert_eq!(open::<u64>(&name).map(|object| *object), Ok(7));
    }
    let second = Name::new("objects_of_two_names");
    fs::hard_link(name.path(), second.path()).unwrap();
    for name in [&name, &second] {
        assert_eq!(open::<u64>(name).err(), Some(SharedError::Linked { names: 2 }));
    }
    fs::remove_file(name.path()).unwrap();
    assert_eq!(open::<u64>(&second).map(|object| *object), Ok(7));
}

#[test]
fn objects_of_other_users_are_refused() {
    const TEST: &str = "objects_of_other_users_are_refused";
    type Lock = shared::SharedRobustMutex<u64>;
    if !may_change(TEST) {
        return;
    }
    // SAFETY: no guard of it is forgotten.
    let Some((name, made)) = make(TEST, unsafe { Lock::with_scope(0) }) else { return };
    chown(name.path(), Some(ALICE), Some(ALICE)).unwrap();
    let refused = Some(SharedError::Owner { found: ALICE });
    for mode in [0o600, 0o644, 0o666] {
        name.set_mode(mode);
        assert_eq!(open::<Lock>(&name).err(), refused, "by root");
        // SAFETY: as in `make`.
        let by_descriptor = unsafe { SharedBox::<Lock>::from_descriptor(made.descriptor()) };
        assert_eq!(by_descriptor.err(), refused, "by root");
        let child = as_user(BOB, || {
            // SAFETY: as in `make`.
            let opened = unsafe { SharedBox::open_or_create(&name.0, || Lock::with_scope(0)) };
            i32::from(opened.err() != refused)
        });
        assert_eq!(child.wait(), End::Code(0), "by another user, mode {mode:o}");
    }
    name.set_mode(0o600);
    // Its owner opens it, and root's objects are for everybody that may.
    let child = as_user(ALICE, || i32::from(open::<Lock>(&name).is_err()));
    assert_eq!(child.wait(), End::Code(0));
    drop(made);
    let of_root = make("objects_of_root", AtomicU64::new(7)).unwrap();
    let child = as_user(BOB, || {
        // The descriptor was inherited.
        // SAFETY: as in `make`.
        let mine = unsafe { SharedBox::<AtomicU64>::from_descriptor(of_root.1.descriptor()) };
        mine.map_or(1, |mine| (mine.fetch_add(1, Ordering::Relaxed) != 7).into())
    });
    assert_eq!(child.wait(), End::Code(0));
    assert_eq!(of_root.1.load(Ordering::Relaxed), 8);
}

#[test]
fn a_group_shares_an_object_by_name() {
    const TEST: &str = "a_group_shares_an_object_by_name";
    if !may_change(TEST) {
        return;
    }
    let name = Name::new("group");
    // SAFETY: the file is not truncated.
    let made = unsafe { SharedBox::create_for_group(&name.0, ALICE, AtomicU64::new(7)) };
    let made = match made {
        Ok(made) => made,
        Err(error) => return eprintln!("skipped: {TEST}: /dev/shm: {error}"),
    };
    let meta = fs::metadata(name.path()).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o660);
    // SAFETY: the file is not truncated.
    let open_of = |owner| unsafe { SharedBox::<AtomicU64>::open_of_user(&name.0, owner) };
    let member = as_user(ALICE, || {
        let by_default = open::<AtomicU64>(&name).err();
        let Ok(mine) = open_of(0) else { return 1 };
        mine.store(8, Ordering::Relaxed);
        i32::from(by_default != Some(SharedError::Mode { found: 0o660 })) * 2
    });
    assert_eq!(member.wait(), End::Code(0));
    assert_eq!(made.load(Ordering::Relaxed), 8);
    let stranger =
        as_user(BOB, || i32::from(open_of(0).err() != Some(SharedError::Kernel(Errno::EACCES))));
    assert_eq!(stranger.wait(), End::Code(0));
    let third = as_user(ALICE, || {
        // SAFETY: the name exists, so no object is created and no file is mapped.
        let made = unsafe { SharedBox::create_for_group(&name.0, ALICE, AtomicU64::new(1)) };
        if made.err() != Some(SharedError::Exists) {
            return 1;
        }
        // SAFETY: the creation is refused, so no file is mapped.
        let made =
            unsafe { SharedBox::create_for_group("corelocal-users-x", BOB, AtomicU64::new(1)) };
        i32::from(made.err() != Some(SharedError::Kernel(Errno::EPERM))) * 2
    });
    assert_eq!(third.wait(), End::Code(0));
    chown(name.path(), Some(BOB), None).unwrap();
    assert_eq!(open_of(ALICE).err(), Some(SharedError::Owner { found: BOB }));
    assert!(open_of(BOB).is_ok());
}

/// All that another user may get.
#[repr(C)]
struct Everything {
    numbers: [AtomicU64; 4],
    mutex: shared::SharedMutex<()>,
    table: shared::SharedRwLock<()>,
    permits: shared::SharedSemaphore,
    once: shared::SharedAutoEvent,
    open: shared::SharedManualEvent,
    parker: shared::SharedParker,
    latch: shared::SharedLatch,
    group: shared::SharedWaitGroup,
    barrier: shared::SharedBarrier,
    changed: shared::SharedCondvar,
}

// SAFETY: `repr(C)`, and made of such types.
unsafe impl SharedSafe for Everything {
    const LAYOUT: u64 = layout("Everything 1", &[]);
}

// SAFETY: made of such types.
unsafe impl TamperSafe for Everything {}

impl Everything {
    fn new() -> Everything {
        Everything {
            numbers: [const { AtomicU64::new(0) }; 4],
            mutex: shared::SharedMutex::with_scope(()),
            table: shared::SharedRwLock::with_scope(()),
            permits: shared::SharedSemaphore::with_scope(1),
            once: shared::SharedAutoEvent::with_scope(false),
            open: shared::SharedManualEvent::with_scope(false),
            parker: shared::SharedParker::with_scope(),
            latch: shared::SharedLatch::with_scope(1),
            group: shared::SharedWaitGroup::with_scope(),
            barrier: shared::SharedBarrier::with_scope(2),
            changed: shared::SharedCondvar::with_scope(),
        }
    }

    /// What does not wait.
    fn use_all(&self) {
        self.numbers[0].fetch_add(1, Ordering::Relaxed);
        drop(self.mutex.try_lock());
        drop(self.table.try_read());
        drop(self.table.try_write());
        let _ = self.permits.try_acquire_raw();
        self.once.set();
        self.once.try_wait();
        self.open.set();
        self.open.reset();
        self.parker.unpark();
        self.changed.notify_one();
        self.changed.notify_all();
        self.group.add(1);
        self.group.done();
        self.latch.count_down();
    }
}

/// Another mapping of an object's file, every byte of which is written to: the other user.
struct Attacker<'a>(&'a [AtomicU8]);

impl Attacker<'_> {
    fn of(descriptor: i32, len: usize) -> Self {
        let (access, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, which is never unmapped.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, how, descriptor, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: mapped, that long; any byte is a value.
        Attacker(unsafe { std::slice::from_raw_parts(at.cast(), len) })
    }
}

#[test]
fn any_bytes_in_an_object_of_an_untrusted_user_do_no_harm_to_memory() {
    // SAFETY: of this type for all that have it.
    let made = unsafe { SharedBox::create_nameless(Everything::new()) }.unwrap();
    // SAFETY: nothing else uses the descriptor.
    let mine = unsafe { SharedBox::<Everything>::from_untrusted(made.descriptor()) }.unwrap();
    let attacker = Attacker::of(made.descriptor(), 64 + size_of::<Everything>());
    // A panic over a count that cannot be is allowed.
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            while !done.load(Ordering::Relaxed) {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let at = (random >> 33) as usize % attacker.0.len();
                attacker.0[at].store((random >> 25) as u8, Ordering::Relaxed);
            }
        });
        for _ in 0..storm::scaled(20_000) {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| mine.use_all()));
        }
        done.store(true, Ordering::Relaxed);
    });
    std::panic::set_hook(quiet);
    // A file that was changed is not opened again.
    attacker.0[0].store(0, Ordering::Relaxed);
    // SAFETY: nothing else uses the descriptor.
    let again = unsafe { SharedBox::<Everything>::from_untrusted(made.descriptor()) };
    assert_eq!(again.err(), Some(SharedError::Foreign));
}

/// Whatever another user has written, and does not change any more.
#[test]
fn waits_end_at_their_deadline_whatever_another_user_has_written() {
    // SAFETY: of this type for all that have it.
    let made = unsafe { SharedBox::create_nameless(Everything::new()) }.unwrap();
    let attacker = Attacker::of(made.descriptor(), 64 + size_of::<Everything>());
    let own = shared::SharedMutex::with_scope(());
    let (all, span) = (&*made, Duration::from_micros(200));
    let waits: [(&str, &(dyn Fn() + Sync)); 13] = [
        ("Mutex", &|| drop(all.mutex.try_lock_for(span))),
        ("RwLock, read", &|| drop(all.table.try_read_for(span))),
        ("RwLock, write", &|| drop(all.table.try_write_for(span))),
        ("Semaphore", &|| _ = all.permits.try_acquire_raw_for(span)),
        ("AutoEvent", &|| _ = all.once.wait_for(span)),
        ("ManualEvent", &|| _ = all.open.wait_for(span)),
        ("Parker", &|| _ = all.parker.park_for(span)),
        ("Latch", &|| _ = all.latch.wait_for(span)),
        ("WaitGroup", &|| _ = all.group.wait_for(span)),
        ("Barrier", &|| _ = all.barrier.wait_for(span)),
        ("Condvar", &|| _ = all.changed.wait_for(&mut own.lock(), span)),
        ("wait_any", &|| _ = wait_any_for(&[&all.parker, &all.once, &all.latch], span)),
        ("wait_all", &|| _ = wait_all_for(&[&all.parker, &all.once, &all.latch], span)),
    ];
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (began, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            for round in 0..storm::scaled(60) {
                for (name, wait) in waits {
                    for byte in &attacker.0[64..] {
                        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                        // The same in all words, few bits, and anything.
                        let written = match round % 3 {
                            0 => (round / 3) as u8,
                            1 => 1 << (random >> 61),
                            _ => (random >> 40) as u8,
                        };
                        byte.store(written, Ordering::Relaxed);
                    }
                    began.send((round, name)).unwrap();
                    // A panic over a count that cannot be is allowed.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait));
                }
            }
        });
        let mut last = None;
        loop {
            match ended.recv_timeout(Duration::from_secs(60)) {
                Ok(next) => last = Some(next),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    eprintln!("a wait does not end: {last:?}");
                    // The thread cannot be ended.
                    std::process::exit(1);
                }
            }
        }
    });
    std::panic::set_hook(quiet);
}

#[test]
fn untrusted_objects_are_sealed() {
    // SAFETY: of this type for all that have it.
    let made = unsafe { SharedBox::create_nameless(AtomicU64::new(7)) }.unwrap();
    // SAFETY: a descriptor of ours.
    assert_eq!(unsafe { libc::ftruncate(made.descriptor(), 0) }, -1, "it was cut short");
    let Some((_name, named)) = make("untrusted_objects_are_sealed", AtomicU64::new(7)) else {
        return;
    };
    // SAFETY: nothing else uses the descriptor.
    let refused = unsafe { SharedBox::<AtomicU64>::from_untrusted(named.descriptor()) };
    assert_eq!(refused.err(), Some(SharedError::Unsealed));
    if !may_change("untrusted_objects_are_sealed") {
        return;
    }
    // SAFETY: a descriptor of ours, given to another user, as if that one had made it.
    assert_eq!(unsafe { libc::fchown(made.descriptor(), ALICE, ALICE) }, 0);
    // SAFETY: a descriptor of this process, which no other process uses.
    let opened = unsafe {
        (
            SharedBox::<AtomicU64>::from_descriptor(made.descriptor()).err(),
            SharedBox::<AtomicU64>::from_untrusted(made.descriptor())
                .map(|object| object.load(Ordering::Relaxed)),
        )
    };
    assert_eq!(opened, (Some(SharedError::Owner { found: ALICE }), Ok(7)));
}

/// Access to such memory is SIGBUS when the kernel has no huge page left.
#[test]
fn untrusted_objects_of_huge_pages_are_refused() {
    const TEST: &str = "untrusted_objects_of_huge_pages_are_refused";
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB;
    // SAFETY: the name ends with NUL.
    let huge = unsafe { libc::memfd_create(c"huge".as_ptr(), flags) };
    if huge < 0 {
        eprintln!("skipped: {TEST}: memfd_create: {}", std::io::Error::last_os_error());
        return;
    }
    // SAFETY: just opened, and owned by nothing else.
    let huge = unsafe { std::os::fd::OwnedFd::from_raw_fd(huge) };
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    // SAFETY: a descriptor of ours. A file of 1 GiB holds a page of any size that is the usual one.
    unsafe {
        assert_eq!(libc::ftruncate(huge.as_raw_fd(), 1 << 30), 0);
        assert_eq!(libc::fcntl(huge.as_raw_fd(), libc::F_ADD_SEALS, seals), 0);
    }
    // SAFETY: nothing else uses the descriptor.
    let refused = unsafe { SharedBox::<AtomicU64>::from_untrusted(huge.as_raw_fd()) };
    assert_eq!(refused.err(), Some(SharedError::Unsealed));
}
