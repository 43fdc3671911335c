//! The profile of locks: empty while it is off, and each kind of wait while it is on. Each test has a process of its
//! own, since a profile is of a process.

mod asleep;
mod forked;
mod sandbox;

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sync::profile::{self, Kind, LockProfile, Profile, ProfileError, Stack};
use corelocal::sync::*;
use corelocal::sys::Errno;
use sandbox::{When, refuse, run_in_child, run_with_folder};

const HELD: Duration = Duration::from_millis(20);

fn no_wish(command: &mut Command) {
    command.env_remove("CORELOCAL_LOCKS");
}

fn wish(what: &str) -> impl FnOnce(&mut Command) {
    move |command| {
        command.env("CORELOCAL_LOCKS", what);
    }
}

fn wish_folder(command: &mut Command, folder: &Path) {
    command.env("CORELOCAL_LOCKS", folder);
}

fn profile() -> Profile {
    Profile::of_this_process().expect("a profile")
}

fn of(kind: Kind) -> Option<LockProfile> {
    profile().locks().find(|lock| lock.kind == kind)
}

/// Until it is so; a test that waits for ever is ended by `run_in_child`.
fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::sleep(Duration::from_micros(200));
    }
}

/// A thread waits, and is let go when it has slept for a while. (Before that it looks again, which may take long on
/// a machine with much to do; a holder that lets go then does not know that anybody waited.)
fn one_waits(kind: Kind, wait: impl FnOnce() + Send, let_go: impl FnOnce()) -> LockProfile {
    let waiter = AtomicI32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            waiter.store(this_thread(), Ordering::Relaxed);
            wait();
        });
        until(|| of(kind).is_some_and(|lock| lock.waiting == 1));
        asleep::until_asleep(waiter.load(Ordering::Relaxed));
        thread::sleep(HELD);
        let_go();
    });
    of(kind).expect("it was waited for")
}

fn this_thread() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// A wait of this one thread, which ends by itself.
fn waits_in_vain(lock: &RwLock<u32>) {
    let _read = lock.read();
    assert!(lock.try_write_for(Duration::from_micros(1)).is_none());
}

#[test]
fn nothing_is_recorded_when_nobody_wants_it() {
    run_in_child("nothing_is_recorded_when_nobody_wants_it", no_wish, || {
        waits_in_vain(&RwLock::new(0));
        assert!(Profile::of_this_process().is_none() && !profile::is_on());
        // Nor after it was wanted.
        profile::start().unwrap();
        profile::stop();
        waits_in_vain(&RwLock::new(0));
        assert!(!profile::is_on());
        assert_eq!(profile().locks().count(), 0);
    });
}

#[test]
fn each_kind_of_wait_is_counted() {
    run_in_child("each_kind_of_wait_is_counted", no_wish, || {
        profile::start().unwrap();
        let mutex = Mutex::new(0);
        let held = mutex.lock();
        check(&one_waits(Kind::Mutex, || *mutex.lock() = 1, || drop(held)), true);
        let lock = RwLock::new(0);
        let address = &raw const lock as u64;
        let write = lock.write();
        let told = one_waits(Kind::Read, || assert_eq!(*lock.read(), 0), || drop(write));
        check(&told, true);
        assert!(told.address >= address && told.address < address + 16);
        let read = lock.read();
        check(&one_waits(Kind::Write, || *lock.write() = 1, || drop(read)), true);

        // SAFETY: neither moved nor freed while it is locked.
        let robust: RobustMutex<u32> = unsafe { RobustMutex::with_scope(0) };
        let held = robust.lock().unwrap();
        let told = one_waits(Kind::RobustMutex, || drop(robust.lock().unwrap()), || drop(held));
        check(&told, true);
        let inheriting = PiMutex::new(0);
        match inheriting.lock() {
            Ok(held) => {
                let wait = || drop(inheriting.lock().unwrap());
                check(&one_waits(Kind::PiMutex, wait, || drop(held)), true);
            }
            Err(error) => sandbox::skip("each_kind_of_wait_is_counted", &error.to_string()),
        }
        let once = Once::new();
        let (entered, goes_on) = (ManualEvent::new(false), ManualEvent::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                once.call_once(|| {
                    entered.set();
                    until(|| goes_on.is_set());
                })
            });
            until(|| entered.is_set());
            let wait = || once.call_once(|| unreachable!());
            let told = one_waits(Kind::Once, wait, || assert!(!goes_on.set()));
            check_numbers(&told);
            assert!(told.longest_held >= HELD, "{told:?}");
        });

        let semaphore = Semaphore::new(0);
        check(
            &one_waits(Kind::Semaphore, || semaphore.acquire_raw(), || semaphore.release()),
            true,
        );
        let barrier = Barrier::new(2);
        let wait = || assert!(!barrier.wait().is_leader());
        check(&one_waits(Kind::Barrier, wait, || assert!(barrier.wait().is_leader())), true);
        let (mutex, changed) = (Mutex::new(false), Condvar::new());
        let wait = || changed.wait_while(&mut mutex.lock(), |done| !**done);
        let notify = || {
            *mutex.lock() = true;
            changed.notify_one();
        };
        check(&one_waits(Kind::Condvar, wait, notify), false);
        let event = AutoEvent::new(false);
        check(&one_waits(Kind::Event, || event.wait(), || event.set()), false);
        let latch = Latch::new(1);
        check(&one_waits(Kind::Latch, || latch.wait(), || latch.count_down()), false);
        let parker = Parker::new();
        check(&one_waits(Kind::Parker, || parker.park(), || parker.unpark()), false);
        assert_eq!(profile().missed(), 0);
    });
}

/// Waits of one thread that slept.
fn check_numbers(lock: &LockProfile) {
    assert!(lock.waits >= 1 && lock.sleeps >= 1, "{lock:?}");
    assert_eq!((lock.gave_up, lock.waiting), (0, 0), "{lock:?}");
    assert!(lock.longest >= HELD && lock.total >= lock.longest, "{lock:?}");
    assert!(lock.mean() <= lock.longest && lock.quantile(1.0) == lock.longest, "{lock:?}");
    assert_eq!(lock.times.count(), lock.waits, "{lock:?}");
    assert_eq!(lock.since(lock).waits, 0);
}

/// The same; with this thread as the one that let go, if that is told of this kind.
fn check(lock: &LockProfile, has_holder: bool) {
    check_numbers(lock);
    let (profile, mut stack) = (profile(), Box::new(Stack::EMPTY));
    assert!(profile.read_waiter(lock, &mut stack), "{lock:?}");
    assert_eq!(stack.time(), lock.longest);
    assert_eq!(profile.read_holder(lock, &mut stack), has_holder, "{lock:?}");
    if has_holder {
        // The one that waited began after it was held, and goes on after it was let go.
        assert!(lock.longest_held >= HELD && lock.longest_held <= lock.longest, "{lock:?}");
        assert_eq!(stack.time(), lock.longest_held);
        assert_eq!(stack.thread(), this_thread() as u32);
    }
}

#[test]
fn the_worst_holder_is_the_one_that_held_longest() {
    run_in_child("the_worst_holder_is_the_one_that_held_longest", no_wish, || {
        profile::start().unwrap();
        let lock = RwLock::new(());
        let hold = |time| {
            let held = lock.write();
            one_waits(
                Kind::Read,
                || drop(lock.read()),
                || {
                    thread::sleep(time);
                    drop(held);
                },
            );
        };
        thread::scope(|scope| {
            for (name, time) in [("short", 1), ("worst", 600), ("again", 1)] {
                let thread = thread::Builder::new().name(name.into());
                let held = thread.spawn_scoped(scope, move || hold(Duration::from_millis(time)));
                held.unwrap().join().unwrap();
            }
        });
        let told = of(Kind::Read).unwrap();
        assert_eq!((told.waits, told.waiting), (3, 0));
        let mut stack = Box::new(Stack::EMPTY);
        assert!(profile().read_holder(&told, &mut stack));
        assert_eq!(stack.name(), "worst");
        assert!(told.longest_held >= Duration::from_millis(600) + HELD);
    });
}

#[test]
fn who_gives_up_is_counted_so() {
    run_in_child("who_gives_up_is_counted_so", no_wish, || {
        profile::start().unwrap();
        let lock = RwLock::new(0);
        (0..3).for_each(|_| waits_in_vain(&lock));
        let told = of(Kind::Write).unwrap();
        assert_eq!((told.waits, told.gave_up, told.waiting), (3, 3, 0));
    });
}

#[test]
fn off_until_it_is_switched_on() {
    run_in_child("off_until_it_is_switched_on", wish("ready"), || {
        let lock = RwLock::new(0);
        waits_in_vain(&lock);
        let profile = profile();
        assert!(!profile.is_on() && profile.locks().count() == 0);
        profile.switch_on();
        profile::start().unwrap();
        waits_in_vain(&lock);
        profile.switch_off();
        waits_in_vain(&lock);
        let before = of(Kind::Write).unwrap();
        assert_eq!(before.waits, 2);
        profile::stop();
        waits_in_vain(&lock);
        assert_eq!(of(Kind::Write).unwrap().waits, 2);
        // What was longest is looked for anew; counts go on.
        profile.switch_on();
        assert_eq!(of(Kind::Write).unwrap().longest, Duration::ZERO);
        waits_in_vain(&lock);
        let after = of(Kind::Write).unwrap();
        assert_eq!((after.waits, after.since(&before).waits), (3, 1));
        assert!(after.longest > Duration::ZERO && after.longest == after.since(&before).longest);
    });
}

#[test]
fn more_locks_than_there_is_room_for() {
    run_in_child("more_locks_than_there_is_room_for", wish("on"), || {
        let semaphores: Vec<_> = (0..1200).map(|_| Semaphore::new(0)).collect();
        for semaphore in &semaphores {
            assert!(!semaphore.try_acquire_raw_for(Duration::from_nanos(1)));
        }
        let profile = profile();
        let known = profile.locks().count() as u64;
        assert!(known > 900 && known <= 1024, "{known}");
        assert_eq!((known + profile.missed(), profile.missed() > 0), (1200, true));
        assert!(profile.locks().all(|lock| lock.waits == 1));
    });
}

#[test]
fn a_child_has_its_own_if_the_environment_says_so() {
    const TEST: &str = "a_child_has_its_own_if_the_environment_says_so";
    run_in_child(TEST, wish("on"), || {
        waits_in_vain(&RwLock::new(0));
        let mine = std::process::id();
        let child = forked::fork(|| {
            let lock = RwLock::new(0);
            (0..5).for_each(|_| waits_in_vain(&lock));
            let is_own = Profile::of_this_process().is_some_and(|profile| {
                let its = profile.process();
                let waits: u64 = profile.locks().map(|lock| lock.waits).sum();
                its != mine && its == std::process::id() && waits == 5
            });
            i32::from(!is_own)
        });
        assert_eq!(child.wait(), forked::End::Code(0));
        assert_eq!(profile().process(), mine);
        assert_eq!(profile().locks().map(|lock| lock.waits).sum::<u64>(), 1);
    });
}

#[test]
fn a_child_has_none_if_only_the_parent_began_one() {
    run_in_child("a_child_has_none_if_only_the_parent_began_one", no_wish, || {
        profile::start().unwrap();
        let child = forked::fork(|| {
            waits_in_vain(&RwLock::new(0));
            let none = Profile::of_this_process().is_none() && !profile::is_on();
            let started = none && profile::start().is_ok();
            waits_in_vain(&RwLock::new(0));
            let one = profile().locks().count() == 1 && profile().process() == std::process::id();
            i32::from(!(started && one))
        });
        assert_eq!(child.wait(), forked::End::Code(0));
        assert_eq!(profile().locks().count(), 0);
    });
}

fn open(path: &Path) -> Result<Profile, ProfileError> {
    Profile::open(&CString::new(path.as_os_str().as_bytes()).unwrap())
}

#[test]
fn what_a_process_leaves_in_a_folder() {
    const TEST: &str = "what_a_process_leaves_in_a_folder";
    let folder = run_with_folder(TEST, wish_folder, || {
        let lock = RwLock::new(0);
        (0..7).for_each(|_| waits_in_vain(&lock));
    });
    let left: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let profile = open(&left[0]).expect("a profile");
    let name = format!("corelocal-locks.{}", profile.process());
    assert_eq!(left[0].file_name().unwrap().to_str(), Some(name.as_str()));
    let told = profile.locks().find(|lock| lock.kind == Kind::Write).expect("a lock");
    assert_eq!((told.waits, profile.is_on()), (7, true));
    // The files of the program, of which this is one.
    let mut files = Box::new([0; Profile::FILES_BYTES]);
    let len = profile.read_files(&mut files);
    let this = std::env::current_exe().unwrap();
    let files = String::from_utf8_lossy(&files[..len]);
    assert!(files.lines().any(|line| line.ends_with(this.to_str().unwrap())), "{files}");
    // Other users may not read it.
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(fs::metadata(&left[0]).unwrap().permissions().mode() & 0o777, 0o600);

    // Nor may others write to it, unless it is refused.
    for (mode, is_refused) in [(0o620, true), (0o602, true), (0o644, false), (0o600, false)] {
        fs::set_permissions(&left[0], fs::Permissions::from_mode(mode)).unwrap();
        let refused = is_refused.then_some(ProfileError::WritableByOthers { mode });
        assert_eq!(open(&left[0]).err(), refused);
    }

    // Another user, which could cut its file short, is not relied on, also by root.
    match std::os::unix::fs::chown(&left[0], Some(65534), None) {
        Ok(()) => {
            assert_eq!(open(&left[0]).err(), Some(ProfileError::Untrusted { owner: 65534 }));
            std::os::unix::fs::chown(&left[0], Some(0), None).unwrap();
        }
        Err(error) => eprintln!("skipped: {TEST}: another user's profile: chown: {error}"),
    }

    let other = folder.path().join("other");
    assert_eq!(open(&other).err(), Some(ProfileError::System(Errno::ENOENT)));
    fs::write(&other, "short").unwrap();
    // Whatever the umask is.
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(open(&other).err(), Some(ProfileError::Foreign));
    let mut damaged = fs::read(&left[0]).unwrap();
    damaged[7] ^= 1;
    fs::write(&other, &damaged).unwrap();
    assert_eq!(open(&other).err(), Some(ProfileError::Foreign));
    // Anything else may be in it.
    damaged[7] ^= 1;
    damaged[8..].fill(0xff);
    fs::write(&other, &damaged).unwrap();
    let nonsense = open(&other).unwrap();
    let mut stack = Box::new(Stack::EMPTY);
    for lock in nonsense.locks() {
        nonsense.read_holder(&lock, &mut stack);
        let _ = (lock.mean(), lock.quantile(0.5));
    }
    assert_eq!(nonsense.read_files(&mut Box::new([0; Profile::FILES_BYTES])), Profile::FILES_BYTES);
}

/// Files of earlier processes of this number, as a container has them whose server is always process 7.
#[test]
fn names_that_are_taken() {
    const TEST: &str = "names_that_are_taken";
    run_with_folder(TEST, wish_folder, || {
        let folder = PathBuf::from(std::env::var_os("CORELOCAL_LOCKS").unwrap());
        let name = format!("corelocal-locks.{}", std::process::id());
        fs::write(folder.join(&name), "").unwrap();
        (1..=11).for_each(|nth| fs::write(folder.join(format!("{name}.{nth}")), "").unwrap());
        waits_in_vain(&RwLock::new(0));
        let profile = open(&folder.join(format!("{name}.12"))).expect("a profile");
        assert_eq!(profile.locks().count(), 1);
    });
}

#[test]
fn a_folder_that_is_missing_is_reported_once() {
    const TEST: &str = "a_folder_that_is_missing_is_reported_once";
    let both = |command: &mut Command, folder: &Path| {
        command.stderr(fs::File::create(folder.join("said")).unwrap());
        command.envs(["CORELOCAL_LOCKS", "CORELOCAL_LOCK_ORDER"].map(|name| (name, "/no/folder")));
    };
    if !sandbox::in_child() {
        let folder = run_with_folder(TEST, both, || ());
        let line = |name| format!("corelocal: cannot make a file for {name}: ENOENT: no such file");
        let text = fs::read_to_string(folder.path().join("said")).unwrap();
        for name in ["CORELOCAL_LOCKS", "CORELOCAL_LOCK_ORDER"] {
            assert_eq!(text.matches(&line(name)).count(), 1, "{text}");
        }
        return assert_eq!(text.matches("(/no/folder)\n").count(), 2, "{text}");
    }
    run_in_child(
        TEST,
        |_| (),
        || {
            (0..2).for_each(|_| drop(Mutex::new(0).lock()));
            (0..2).for_each(|_| waits_in_vain(&RwLock::new(0)));
            assert!(Profile::of_this_process().is_none());
        },
    );
}

#[test]
fn where_there_is_no_memory_for_it_the_program_goes_on() {
    const TEST: &str = "where_there_is_no_memory_for_it_the_program_goes_on";
    run_in_child(TEST, wish("on"), || {
        refuse(libc::SYS_memfd_create, When::Always, libc::ENOSYS);
        waits_in_vain(&RwLock::new(0));
        assert!(Profile::of_this_process().is_none());
        assert_eq!(profile::start(), Err(Errno::ENOSYS));
        waits_in_vain(&RwLock::new(0));
    });
}

#[test]
fn where_the_kernel_copies_no_stacks_a_part_is_kept() {
    const TEST: &str = "where_the_kernel_copies_no_stacks_a_part_is_kept";
    run_in_child(TEST, wish("on"), || {
        refuse(libc::SYS_process_vm_readv, When::Always, libc::EPERM);
        let lock = RwLock::new(0);
        let _read = lock.read();
        assert!(lock.try_write_for(Duration::from_millis(5)).is_none());
        let told = of(Kind::Write).unwrap();
        let mut stack = Box::new(Stack::EMPTY);
        assert!(profile().read_waiter(&told, &mut stack));
        if cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(corelocal_model))) {
            let words = stack.words().len();
            assert!((1..=512).contains(&words), "{words}");
        }
    });
}

/// Threads wait while it is switched on and off, and others look.
#[test]
fn it_may_be_switched_and_read_at_any_time() {
    const THREADS: u64 = 4;
    run_in_child("it_may_be_switched_and_read_at_any_time", wish("ready"), || {
        let lock = RwLock::new(0_u64);
        let end = Instant::now() + Duration::from_millis(500);
        waits_in_vain(&RwLock::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while Instant::now() < end {
                        *lock.write() += 1;
                        thread::yield_now();
                    }
                });
            }
            let mut stack = Box::new(Stack::EMPTY);
            while Instant::now() < end {
                let profile = profile();
                profile.switch_on();
                thread::sleep(Duration::from_millis(2));
                for told in profile.locks() {
                    // Each thread may be in the middle of ending a wait.
                    assert!(told.times.count() + THREADS >= told.waits, "{told:?}");
                    if profile.read_holder(&told, &mut stack) {
                        assert!(stack.thread() != 0);
                    }
                }
                profile.switch_off();
            }
        });
        assert!(profile().locks().all(|told| told.waiting == 0));
    });
}
