//! Objects in shared memory: made once, whichever process comes first; refused if they are not what they should be;
//! used at two addresses and by two programs, one of which knows only the oldest futex calls.

mod forked;
mod sandbox;
mod storm;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corelocal::sync::shared::{SharedBox, SharedError, SharedSafe, layout};
use corelocal::sync::{
    Mutex, PiCondvar, PiMutex, RobustMutex, RobustPiMutex, RwLock, Shared, WaitGroup,
};
use corelocal::sys::futex;
use forked::{End, fork};

/// A name of this test's own, taken away in the end.
struct Name(String);

impl Name {
    fn new(test: &str) -> Name {
        let name = Name(format!("corelocal-test-{test}-{}", std::process::id()));
        let _ = fs::remove_file(name.path());
        name
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/dev/shm").join(&self.0)
    }

    fn drafts(&self) -> usize {
        let start = format!(".{}.", self.0);
        let files = fs::read_dir("/dev/shm").unwrap();
        files
            .filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with(&start))
            .count()
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.path());
    }
}

/// Whether there is a /dev/shm to write to; else the test is skipped.
fn has_directory(test: &str) -> bool {
    let probe = PathBuf::from(format!("/dev/shm/.corelocal-probe-{}", std::process::id()));
    let works = fs::write(&probe, b"").is_ok();
    let _ = fs::remove_file(probe);
    if !works {
        sandbox::skip(test, "nothing can be written to /dev/shm");
    }
    works
}

// In these tests: the names and the files are this process's own, its children keep to the rules, and no
// guard is forgotten.
fn create<T: SharedSafe + Sync>(name: &Name, value: T) -> Result<SharedBox<T>, SharedError> {
    // SAFETY: as said above.
    unsafe { SharedBox::create(&name.0, value) }
}

fn open<T: SharedSafe + Sync>(name: &Name) -> Result<SharedBox<T>, SharedError> {
    // SAFETY: as said above.
    unsafe { SharedBox::open(&name.0) }
}

#[test]
fn what_one_makes_others_open() {
    if !has_directory("what_one_makes_others_open") {
        return;
    }
    let name = Name::new("open");
    assert_eq!(open::<AtomicU64>(&name).err(), Some(SharedError::NotFound));
    let made = create(&name, AtomicU64::new(7)).unwrap();
    assert_eq!(create(&name, AtomicU64::new(8)).err(), Some(SharedError::Exists));
    // Another address, the same object.
    let opened = open::<AtomicU64>(&name).unwrap();
    assert!(!std::ptr::eq(&*made, &*opened));
    opened.store(9, Ordering::Relaxed);
    assert_eq!(made.load(Ordering::Relaxed), 9);
    SharedBox::<AtomicU64>::unlink(&name.0).unwrap();
    assert_eq!(SharedBox::<AtomicU64>::unlink(&name.0), Err(SharedError::NotFound));
    assert_eq!(open::<AtomicU64>(&name).err(), Some(SharedError::NotFound));
    // It stays for processes that have it open.
    opened.store(10, Ordering::Relaxed);
    assert_eq!(made.load(Ordering::Relaxed), 10);
    assert_eq!(name.drafts(), 0);
    use std::os::unix::fs::PermissionsExt;
    let again = create(&name, AtomicU64::new(0)).unwrap();
    assert_eq!(fs::metadata(name.path()).unwrap().permissions().mode() & 0o777, 0o600);
    drop(again);
}

#[repr(C, align(256))]
struct Wide([u64; 3]);

// SAFETY: `repr(C)`, numbers.
unsafe impl SharedSafe for Wide {
    const LAYOUT: u64 = layout("Wide 1", &[]);
}

#[test]
fn alignment_is_kept() {
    if !has_directory("alignment_is_kept") {
        return;
    }
    let name = Name::new("wide");
    let made = create(&name, Wide([1, 2, 3])).unwrap();
    let opened = open::<Wide>(&name).unwrap();
    assert_eq!(std::ptr::from_ref(&*opened).addr() % 256, 0);
    assert_eq!(opened.0, made.0);
}

/// Every byte of the header, and every length of the file.
#[test]
fn damage_is_refused() {
    if !has_directory("damage_is_refused") {
        return;
    }
    let name = Name::new("damage");
    drop(create(&name, [5u64; 4]).unwrap());
    let whole = fs::read(name.path()).unwrap();
    let opened = |content: &[u8]| {
        fs::write(name.path(), content).unwrap();
        open::<[u64; 4]>(&name).map(|object| *object)
    };
    assert_eq!(opened(&whole), Ok([5; 4]));
    for at in 0..64 {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        let refused = opened(&damaged).expect_err("a damaged header was taken");
        let right = match at {
            0..8 => refused == SharedError::Foreign,
            8..12 => matches!(refused, SharedError::Version { .. }),
            16..24 => matches!(refused, SharedError::Size { expected: 32, .. }),
            24..32 => matches!(refused, SharedError::Alignment { expected: 8, .. }),
            32..40 => matches!(refused, SharedError::Layout { .. }),
            _ => refused == SharedError::Damaged,
        };
        assert!(right, "byte {at}: {refused:?}");
    }
    for len in 0..whole.len() {
        let refused = opened(&whole[..len]).expect_err("a cut file was taken");
        let found = len as u64;
        match len {
            0..8 => assert_eq!(refused, SharedError::Foreign),
            _ => assert_eq!(refused, SharedError::Length { found, expected: 96 }),
        }
    }
    let longer = [&whole[..], &[0]].concat();
    assert_eq!(opened(&longer), Err(SharedError::Length { found: 97, expected: 96 }));
    assert_eq!(opened(&whole), Ok([5; 4]));
}

#[test]
fn what_is_something_else_is_refused() {
    if !has_directory("what_is_something_else_is_refused") {
        return;
    }
    let name = Name::new("else");
    let made = create(&name, PiMutex::<u64, Shared>::with_scope(1)).unwrap();
    assert!(matches!(open::<[u64; 2]>(&name), Err(SharedError::Layout { .. })));
    assert!(matches!(open::<PiMutex<i64, Shared>>(&name), Err(SharedError::Layout { .. })));
    assert!(open::<PiMutex<u64, Shared>>(&name).is_ok());
    drop(made);
    fs::write(name.path(), [b'x'; 4096]).unwrap();
    assert_eq!(open::<u64>(&name).err(), Some(SharedError::Foreign));
    fs::remove_file(name.path()).unwrap();
    // A name that leads elsewhere is not followed; a directory is not a file.
    std::os::unix::fs::symlink("/etc/passwd", name.path()).unwrap();
    assert!(matches!(open::<u64>(&name), Err(SharedError::Kernel(_))));
    assert_eq!(create(&name, 1u64).err(), Some(SharedError::Exists));
    fs::remove_file(name.path()).unwrap();
    fs::create_dir(name.path()).unwrap();
    assert!(matches!(open::<u64>(&name), Err(SharedError::Kernel(_) | SharedError::NotAFile)));
    fs::remove_dir(name.path()).unwrap();
    let fifo = std::ffi::CString::new(name.path().to_str().unwrap()).unwrap();
    // SAFETY: a path that ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    assert_eq!(open::<u64>(&name).err(), Some(SharedError::NotAFile));
    // SAFETY: a number that is no descriptor.
    let bad = unsafe { SharedBox::<u64>::from_descriptor(-1) };
    assert_eq!(bad.err(), Some(SharedError::Kernel(corelocal::sys::Errno::EBADF)));
    // SAFETY: refused before anything is done.
    let bad = unsafe { SharedBox::<u64>::open("../x") };
    assert_eq!(bad.err(), Some(SharedError::BadName));
}

/// As large as several pages, so that being made takes time.
type Large = [u64; 4096];

/// Processes that make one object at once: all end up with the same one, and all of it.
#[test]
fn the_first_to_make_it_wins() {
    if !has_directory("the_first_to_make_it_wins") {
        return;
    }
    for round in 0..storm::scaled(50).max(3) {
        let name = Name::new(&format!("race{round}"));
        // SAFETY: as said above.
        let results =
            unsafe { SharedBox::create_nameless([const { AtomicU64::new(0) }; 6]) }.unwrap();
        let start = Instant::now() + Duration::from_millis(2);
        let children: Vec<_> = (1..=6u64)
            .map(|child| {
                let (results, name) = (&results, &name);
                fork(move || {
                    while Instant::now() < start {}
                    // SAFETY: as said above.
                    let object =
                        unsafe { SharedBox::<Large>::open_or_create(&name.0, || [child; 4096]) };
                    let Ok(object) = object else { return 1 };
                    results[child as usize - 1].store(object[0], Ordering::Relaxed);
                    i32::from(object.iter().any(|&word| word != object[0])) * 2
                })
            })
            .collect();
        for child in children {
            assert_eq!(child.wait(), End::Code(0));
        }
        let first = results[0].load(Ordering::Relaxed);
        assert!((1..=6).contains(&first));
        assert!(results.iter().all(|result| result.load(Ordering::Relaxed) == first));
        assert_eq!(name.drafts(), 0);
    }
}

/// A process that is killed while it makes an object leaves none, or a whole one.
#[test]
fn no_half_object_is_left_by_the_dead() {
    if !has_directory("no_half_object_is_left_by_the_dead") {
        return;
    }
    let name = Name::new("dead");
    let (mut whole, mut none) = (0, 0);
    for round in 0..storm::scaled(200).max(10) {
        let _ = fs::remove_file(name.path());
        let child = fork(|| {
            // SAFETY: as said above.
            let made = unsafe { SharedBox::<Large>::create(&name.0, [round; 4096]) };
            i32::from(made.is_err())
        });
        std::thread::sleep(Duration::from_micros(round * 7 % 700));
        child.kill();
        assert!(matches!(child.wait(), End::Code(0) | End::Signal(libc::SIGKILL)));
        match open::<Large>(&name) {
            Ok(object) => {
                assert!(object.iter().all(|&word| word == round));
                whole += 1;
            }
            Err(SharedError::NotFound) => none += 1,
            Err(error) => panic!("{error}"),
        }
    }
    eprintln!("{whole} whole objects, {none} times none");
    assert_eq!(name.drafts(), 0);
}

#[repr(C)]
struct Several {
    robust: RobustMutex<u64, Shared>,
    inherits: PiMutex<u64, Shared>,
    both: RobustPiMutex<u64, Shared>,
    changed: PiCondvar<Shared>,
}

// SAFETY: `repr(C)` and made of such types.
unsafe impl SharedSafe for Several {
    const LAYOUT: u64 = layout(
        "Several 1",
        &[
            RobustMutex::<u64, Shared>::LAYOUT,
            PiMutex::<u64, Shared>::LAYOUT,
            RobustPiMutex::<u64, Shared>::LAYOUT,
            PiCondvar::<Shared>::LAYOUT,
        ],
    );
}

impl Several {
    fn new() -> Several {
        // SAFETY: in these tests no guard is forgotten.
        unsafe {
            Several {
                robust: RobustMutex::with_scope(0),
                inherits: PiMutex::with_scope(0),
                both: RobustMutex::with_scope(0),
                changed: PiCondvar::with_scope(),
            }
        }
    }
}

/// Processes at different addresses count under one lock, and wait for one another.
#[test]
fn locks_work_between_processes_and_addresses() {
    let each = storm::scaled(5_000);
    // SAFETY: as said above.
    let object = unsafe { SharedBox::create_nameless(Several::new()) }.unwrap();
    let children: Vec<_> = (0..3)
        .map(|_| {
            fork(|| {
                // A second mapping: another address than the parent's.
                // SAFETY: as said above.
                let Ok(mine) =
                    (unsafe { SharedBox::<Several>::from_descriptor(object.descriptor()) })
                else {
                    return 1;
                };
                for _ in 0..each {
                    let (Ok(mut a), Ok(mut b)) = (mine.robust.lock(), mine.both.lock()) else {
                        return 2;
                    };
                    *a += 1;
                    *b += 1;
                    drop((a, b));
                    let Ok(mut count) = mine.inherits.lock() else { return 3 };
                    *count += 1;
                    mine.changed.notify_one(&count);
                }
                0
            })
        })
        .collect();
    let count = object.inherits.lock().unwrap();
    let count = object.changed.wait_while(count, |count| *count < 3 * each).unwrap();
    drop(count);
    for child in children {
        assert_eq!(child.wait(), End::Code(0));
    }
    assert_eq!(*object.robust.lock().unwrap(), 3 * each);
    assert_eq!(*object.both.lock().unwrap(), 3 * each);
}

/// The oldest form of the calls, as an old program has it.
const OLD_PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int file = open(argv[1], O_RDWR);
    char *memory = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (argc != 3 || memory == MAP_FAILED) return 1;
    uint32_t *ball = (uint32_t *)(memory + 64);
    uint32_t rounds = atoi(argv[2]);
    alarm(60);
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t seen;
        while ((seen = __atomic_load_n(ball, __ATOMIC_ACQUIRE)) != 2 * round + 1)
            syscall(SYS_futex, ball, 0 /* FUTEX_WAIT */, seen, 0, 0, 0);
        __atomic_store_n(ball, 2 * round + 2, __ATOMIC_RELEASE);
        syscall(SYS_futex, ball, 1 /* FUTEX_WAKE */, 1, 0, 0, 0);
    }
    return 0;
}
"#;

/// Two programs throw a ball: one waits with the old command, the other with ours.
#[test]
fn an_old_program_and_a_new_one_meet() {
    const NAME: &str = "an_old_program_and_a_new_one_meet";
    if !has_directory(NAME) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("old");
    let compiler = Command::new("cc")
        .args(["-x", "c", "-", "-o"])
        .arg(&program)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let compiled = compiler.and_then(|mut compiler| {
        compiler.stdin.take().unwrap().write_all(OLD_PROGRAM.as_bytes())?;
        compiler.wait()
    });
    if !compiled.is_ok_and(|status| status.success()) {
        return sandbox::skip(NAME, "no C compiler");
    }
    let name = Name::new("ball");
    let ball = create(&name, AtomicU32::new(0)).unwrap();
    let rounds = storm::scaled(2_000) as u32;
    let mut old = Command::new(&program).arg(name.path()).arg(rounds.to_string()).spawn().unwrap();
    let deadline = futex::Deadline::after(Duration::from_secs(60));
    for round in 0..rounds {
        ball.store(2 * round + 1, Ordering::Release);
        futex::wake(&*ball, 1, futex::Scope::Shared).unwrap();
        while ball.load(Ordering::Acquire) != 2 * round + 2 {
            let seen = 2 * round + 1;
            let outcome = futex::wait(&ball, seen, Some(deadline), futex::Scope::Shared).unwrap();
            assert!(
                outcome != futex::Wake::TimedOut,
                "the old program was not woken, or does not wake"
            );
        }
    }
    assert!(old.wait().unwrap().success());
}

/// A process that has no memory when it locks for the first time has a name for good, under which it unlocks, too.
#[test]
fn a_first_lock_without_memory_is_unlocked_with_memory() {
    sandbox::run_in_child(
        "a_first_lock_without_memory_is_unlocked_with_memory",
        |_| (),
        || {
            let limit = |bytes| {
                let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
                // SAFETY: reads the limit.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
            };
            let mutex = Mutex::<u64, Shared>::with_scope(1);
            let lock = RwLock::<u64, Shared>::with_scope(1);
            let group = WaitGroup::<Shared>::with_scope();
            limit(0);
            let held = (mutex.lock(), lock.write(), group.enter());
            limit(libc::RLIM_INFINITY);
            drop(held);
            assert!(mutex.try_lock().is_some() && lock.try_write().is_some());
            assert_eq!(group.tasks(), 0);
        },
    );
}
