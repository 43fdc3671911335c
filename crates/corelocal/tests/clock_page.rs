//! Clock pages in files: who may publish, who may read, and what is left when a writer is killed.

mod storm;

use std::ffi::{CStr, CString};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, thread};

use corelocal::clock::page::{
    Bounds, Doubt, Encoding, PublishError, Publisher, Refusal, Status, Subscriber, clockbound,
    pvclock, vmclock,
};

/// A path that no other test has, and that is free again in the end.
struct File(PathBuf, CString);

impl File {
    fn new(name: &str) -> File {
        let path = std::env::temp_dir().join(format!("corelocal-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        let c_path = CString::new(path.to_str().unwrap()).unwrap();
        File(path, c_path)
    }

    fn c(&self) -> &CStr {
        &self.1
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A content whose words are all of one number, so that a mixture shows.
trait Numbered: Encoding {
    fn numbered(n: u64) -> Self::Content;
    /// The number, if all words agree.
    fn number(content: &Self::Content) -> Option<u64>;
}

impl Numbered for pvclock::Page {
    fn numbered(n: u64) -> pvclock::Content {
        let n = n & 0xffff_ffff;
        let flags = pvclock::STABLE;
        pvclock::Content { counter: n, nanoseconds: n, multiplier: n as u32, shift: n as i8, flags }
    }

    fn number(content: &pvclock::Content) -> Option<u64> {
        (*content == Self::numbered(content.counter)).then_some(content.counter)
    }
}

impl Numbered for vmclock::Page {
    fn numbered(n: u64) -> vmclock::Content {
        vmclock::Content {
            counter_kind: vmclock::COUNTER_TSC,
            disruptions: 0,
            flags: vmclock::flags::GENERATION_PRESENT,
            status: Status::Synchronized,
            tai_offset: n as i16,
            counter: n,
            period: n,
            period_estimated_error: n,
            period_max_error: n,
            seconds: n,
            fraction: n,
            estimated_error_ns: n,
            max_error_ns: n,
            generation: n,
            ..vmclock::Content::default()
        }
    }

    fn number(content: &vmclock::Content) -> Option<u64> {
        let content = vmclock::Content { disruptions: 0, ..*content };
        (content == Self::numbered(content.counter)).then_some(content.counter)
    }
}

impl Numbered for clockbound::Page {
    fn numbered(n: u64) -> clockbound::Content {
        let n = n & 0x1fff_ffff;
        let time = Duration::new(n, n as u32);
        clockbound::Content {
            as_of: time,
            void_after: time,
            bound_ns: n,
            drift_ppb: n as u32,
            disruptions: n,
            status: Status::Synchronized,
            marker_counts: true,
        }
    }

    fn number(content: &clockbound::Content) -> Option<u64> {
        (*content == Self::numbered(content.bound_ns)).then_some(content.bound_ns)
    }
}

/// Ends a child.
fn leave(code: i32) -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::_exit(code) }
}

/// Waits for a child; what `waitpid` says of it.
fn reap(child: libc::pid_t) -> i32 {
    let mut status = -1;
    // SAFETY: a child of ours, a writable status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

fn publish_and_read<P: Numbered>(name: &str) {
    let file = File::new(name);
    assert_eq!(
        Subscriber::<P>::open(file.c()).err(),
        Some(Refusal::System(corelocal::sys::Errno::ENOENT))
    );
    let mut publisher = Publisher::<P>::create(file.c()).unwrap();
    assert_eq!((publisher.recoveries(), publisher.has_recovered()), (0, false));
    let mut subscriber = Subscriber::<P>::open(file.c()).unwrap();
    assert!(subscriber.last().is_none());
    for n in 1..100 {
        publisher.publish(&P::numbered(n)).unwrap();
        assert_eq!(subscriber.content(), Ok(&P::numbered(n)));
        assert_eq!(subscriber.content(), Ok(&P::numbered(n)));
        assert_eq!(subscriber.last(), Some(&P::numbered(n)));
    }
    assert_eq!(subscriber.recoveries(), Some(0));
    assert!(format!("{publisher:?} {subscriber:?}").contains(P::NAME));
    // A second writer, in this process and in another.
    let own = Refusal::Held(Some(std::process::id()));
    assert_eq!(Publisher::<P>::create(file.c()).err(), Some(own));
    // SAFETY: the child makes system calls only, and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // Copies of both are here, and the lock is not to be had all the same.
        let is_refused = Publisher::<P>::create(file.c()).err() == Some(own);
        let is_forked = publisher.publish(&P::numbered(1000)) == Err(PublishError::Forked);
        let reads = subscriber.content() == Ok(&P::numbered(99));
        drop(publisher);
        leave(if is_refused && is_forked && reads { 0 } else { 1 });
    }
    assert_eq!(reap(child), 0);
    assert_eq!(Publisher::<P>::create(file.c()).err(), Some(own), "the child let the lock go");
    // The next one goes on where this one was.
    drop(publisher);
    let mut publisher = Publisher::<P>::create(file.c()).unwrap();
    assert_eq!((publisher.last(), publisher.recoveries()), (Some(&P::numbered(99)), 0));
    assert_eq!(subscriber.content(), Ok(&P::numbered(99)));
    publisher.publish(&P::numbered(100)).unwrap();
    assert_eq!(subscriber.content(), Ok(&P::numbered(100)));
    // Remade while readers have the old file.
    fs::remove_file(&file.0).unwrap();
    let mut other = Publisher::<P>::create(file.c()).unwrap();
    other.publish(&P::numbered(7)).unwrap();
    assert_eq!(subscriber.content(), Ok(&P::numbered(100)));
    assert_eq!(Subscriber::<P>::open(file.c()).unwrap().content(), Ok(&P::numbered(7)));
}

#[test]
fn a_page_in_a_file() {
    publish_and_read::<pvclock::Page>("pvclock");
    publish_and_read::<vmclock::Page>("vmclock");
    publish_and_read::<clockbound::Page>("clockbound");
}

/// A child that still has the descriptor does not keep the file from the next writer.
#[test]
fn a_child_does_not_keep_the_lock_of_a_publisher_that_was_dropped() {
    let file = File::new("child");
    let publisher = Publisher::<vmclock::Page>::create(file.c()).unwrap();
    let mut pipe = [0; 2];
    // SAFETY: two descriptors are written to the array.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: the child waits and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: our own descriptors; a byte to write to.
        unsafe {
            libc::close(pipe[1]);
            libc::read(pipe[0], [0u8].as_mut_ptr().cast(), 1);
        }
        leave(0);
    }
    drop(publisher);
    let next = Publisher::<vmclock::Page>::create(file.c());
    // SAFETY: our own descriptors.
    unsafe {
        libc::close(pipe[1]);
        libc::close(pipe[0]);
    }
    assert_eq!(reap(child), 0);
    assert!(next.is_ok(), "{next:?}");
}

#[test]
fn files_that_are_no_pages_are_refused() {
    fn refused<P: Encoding>(file: &File) -> Refusal {
        let refusal = Subscriber::<P>::open(file.c()).expect_err("not a page");
        assert!(refusal.to_string().len() > 10);
        refusal
    }
    let file = File::new("refused");
    fs::create_dir(&file.0).unwrap();
    assert_eq!(refused::<vmclock::Page>(&file), Refusal::NotAFile);
    assert!(Publisher::<vmclock::Page>::create(file.c()).is_err());
    fs::remove_dir(&file.0).unwrap();

    let write = |bytes: &[u8]| {
        fs::write(&file.0, bytes).unwrap();
        fs::set_permissions(&file.0, fs::Permissions::from_mode(0o644)).unwrap();
    };
    write(b"");
    assert_eq!(refused::<vmclock::Page>(&file), Refusal::Short(0));
    assert_eq!(refused::<clockbound::Page>(&file), Refusal::Short(0));
    assert_eq!(refused::<pvclock::Page>(&file), Refusal::Short(0));
    // As a publisher leaves it that is killed before its first write.
    drop(Publisher::<clockbound::Page>::create(file.c()).unwrap());
    let blank = Subscriber::<clockbound::Page>::open(file.c()).unwrap().content().err();
    assert_eq!(blank, Some(Doubt::Blank));
    write(&[b'x'; 5000]);
    for refusal in [
        refused::<vmclock::Page>(&file),
        refused::<clockbound::Page>(&file),
        refused::<pvclock::Page>(&file),
        Publisher::<vmclock::Page>::create(file.c()).err().unwrap(),
        Publisher::<clockbound::Page>::create(file.c()).err().unwrap(),
    ] {
        assert_eq!(refusal, Refusal::Foreign);
    }
    let after = fs::read(&file.0).unwrap();
    assert!(after == [b'x'; 5000], "a file of somebody else was changed");

    // Another encoding, another version, a size that cannot be.
    fs::remove_file(&file.0).unwrap();
    drop(Publisher::<vmclock::Page>::create(file.c()).unwrap());
    assert_eq!(refused::<clockbound::Page>(&file), Refusal::Foreign);
    assert_eq!(refused::<pvclock::Page>(&file), Refusal::Foreign);
    let good = fs::read(&file.0).unwrap();
    assert_eq!(good.len(), 4096);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        write(&bytes);
    };
    with(8, 9);
    assert_eq!(refused::<vmclock::Page>(&file), Refusal::Version(9));
    with(6, 1);
    assert_eq!(refused::<vmclock::Page>(&file), Refusal::Size(4096 + 65536));
    with(5, 0);
    assert_eq!(refused::<vmclock::Page>(&file), Refusal::Size(0));
    write(&good[..200]);
    assert_eq!(refused::<vmclock::Page>(&file), Refusal::Size(4096));
    // Without the annex it is a hypervisor's: read, not written.
    with(4064, 0);
    assert!(Subscriber::<vmclock::Page>::open(file.c()).is_ok());
    assert_eq!(Publisher::<vmclock::Page>::create(file.c()).err(), Some(Refusal::NotOurs));
}

#[test]
fn files_that_others_may_change_are_refused() {
    let file = File::new("modes");
    drop(Publisher::<pvclock::Page>::create(file.c()).unwrap());
    let mode = fs::metadata(&file.0).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o644);
    for mode in [0o666, 0o664, 0o646] {
        fs::set_permissions(&file.0, fs::Permissions::from_mode(mode)).unwrap();
        for refusal in [
            Subscriber::<pvclock::Page>::open(file.c()).err(),
            Publisher::<pvclock::Page>::create(file.c()).err(),
        ] {
            assert!(matches!(refusal, Some(Refusal::Unsafe { mode: m, .. }) if m == mode));
        }
    }
    fs::set_permissions(&file.0, fs::Permissions::from_mode(0o644)).unwrap();
    let link = File::new("link");
    symlink(&file.0, &link.0).unwrap();
    assert!(Subscriber::<pvclock::Page>::open(link.c()).is_ok());
    let refusal = Publisher::<pvclock::Page>::create(link.c()).err();
    assert_eq!(refusal, Some(Refusal::System(corelocal::sys::Errno::ELOOP)));
}

#[test]
fn bounds_through_files() {
    let file = File::new("bounds");
    let mut publisher = Publisher::<clockbound::Page>::create(file.c()).unwrap();
    let mut subscriber = Subscriber::<clockbound::Page>::open(file.c()).unwrap();
    assert_eq!(subscriber.bounds(), Err(Doubt::Blank));
    let mut coarse = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut coarse) };
    let as_of = Duration::new(coarse.tv_sec as u64, coarse.tv_nsec as u32);
    let content = clockbound::Content {
        as_of,
        void_after: as_of + Duration::from_secs(1000),
        bound_ns: 1_000_000,
        drift_ppb: 1,
        status: Status::Synchronized,
        ..clockbound::Content::default()
    };
    publisher.publish(&content).unwrap();
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap();
    let (before, bounds, after) = (now(), subscriber.bounds().unwrap(), now());
    let Bounds { earliest, latest, .. } = bounds;
    let bound = Duration::from_millis(1);
    assert!(before - bound <= earliest + Duration::from_nanos(100) && latest <= after + bound * 2);
    assert!(latest - earliest >= bound * 2);

    let file = File::new("bounds-vm");
    let mut publisher = Publisher::<vmclock::Page>::create(file.c()).unwrap();
    let mut subscriber = Subscriber::<vmclock::Page>::open(file.c()).unwrap();
    assert_eq!(subscriber.bounds(|| 0), Err(Doubt::Untrusted(Status::Unknown)));
    publisher.publish(&vmclock::Page::numbered(1 << 40)).unwrap();
    assert_eq!(subscriber.bounds(|| 0), Err(Doubt::Unbounded));
    assert!(subscriber.now(|| 0).is_ok());
}

/// A page that threads and signal handlers read while another thread publishes, moved from cpu to cpu.
#[test]
fn a_storm_of_readers_sees_no_torn_content() {
    static PAGE: pvclock::Page = pvclock::Page::new();
    static LAST: AtomicU64 = AtomicU64::new(0);
    static READ: AtomicU64 = AtomicU64::new(0);
    static WRONG: AtomicU64 = AtomicU64::new(0);
    fn read() {
        let floor = LAST.load(Ordering::Acquire);
        match PAGE.content() {
            Ok((_, content)) => {
                let number = pvclock::Page::number(&content);
                // What was whole before the reading began is the least that it may see.
                if number.is_none_or(|number| number < floor) {
                    WRONG.fetch_add(1, Ordering::Relaxed);
                }
                READ.fetch_add(1, Ordering::Relaxed);
            }
            Err(Doubt::Odd | Doubt::Changing) => {}
            Err(_) => _ = WRONG.fetch_add(1, Ordering::Relaxed),
        }
    }
    let done = AtomicBool::new(false);
    // A page that nothing was published in says so; no reader comes that early.
    PAGE.write(&pvclock::Page::numbered(1));
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 1;
            while !done.load(Ordering::Relaxed) && n < 0xffff_ffff {
                n += 1;
                PAGE.write(&pvclock::Page::numbered(n));
                LAST.store(n, Ordering::Release);
            }
            n
        });
        storm::rage_doing(8, storm::scaled(4_000_000) / 8, read);
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    let read = READ.load(Ordering::Relaxed);
    println!("{written} publications, {read} readings");
    assert_eq!(WRONG.load(Ordering::Relaxed), 0);
    assert!(written > 0 && read > 0);
}

/// Writers are killed wherever they are; readers see whole contents or none, and the next writer goes on.
fn kill<P: Numbered>(name: &str) {
    let file = File::new(name);
    let mut subscriber = {
        let mut publisher = Publisher::<P>::create(file.c()).unwrap();
        publisher.publish(&P::numbered(1)).unwrap();
        Subscriber::<P>::open(file.c()).unwrap()
    };
    let done = AtomicBool::new(false);
    let whole = AtomicU64::new(0);
    let (mut odd, mut even) = (0, 0);
    thread::scope(|scope| {
        // Readers all the while.
        for _ in 0..2 {
            scope.spawn(|| {
                let mut subscriber = Subscriber::<P>::open(file.c()).unwrap();
                while !done.load(Ordering::Relaxed) {
                    match subscriber.content() {
                        Ok(content) => {
                            assert!(P::number(content).is_some(), "torn: {content:?}");
                            whole.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(doubt) => {
                            assert!(matches!(doubt, Doubt::Odd | Doubt::Changing), "{doubt}");
                            let last = subscriber.last().map(P::number);
                            assert!(last.is_none_or(|last| last.is_some()));
                            thread::yield_now();
                        }
                    }
                }
            });
        }
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..storm::scaled(300).max(10) {
            // SAFETY: the child makes system calls and stores, until it is killed.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let Ok(mut publisher) = Publisher::<P>::create(file.c()) else { leave(3) };
                for n in 1.. {
                    if publisher.publish(&P::numbered(n)).is_err() {
                        leave(4);
                    }
                }
            }
            assert!(child > 0);
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            thread::sleep(Duration::from_micros(200 + (random >> 33) % 1500));
            // SAFETY: a child of ours that was not waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            let status = reap(child);
            assert!(libc::WIFSIGNALED(status), "round {round}: the writer ended with {status:#x}");
            let died_within = match subscriber.content() {
                Ok(content) => {
                    assert!(P::number(content).is_some(), "round {round}, torn: {content:?}");
                    false
                }
                Err(doubt) => {
                    assert_eq!(doubt, Doubt::Odd, "round {round}");
                    true
                }
            };
            *(if died_within { &mut odd } else { &mut even }) += 1;
            let before = subscriber.recoveries();
            let mut publisher = Publisher::<P>::create(file.c()).unwrap();
            assert_eq!(publisher.has_recovered(), died_within);
            assert_eq!(publisher.last().is_none(), died_within);
            assert_eq!(subscriber.recoveries(), before.map(|n| n + u64::from(died_within)));
            // Until it has published, readers keep away.
            assert_eq!(subscriber.content().is_err(), died_within);
            publisher.publish(&P::numbered(round)).unwrap();
            let content = subscriber.content().unwrap();
            assert_eq!(P::number(content), P::number(&P::numbered(round)));
        }
        done.store(true, Ordering::Relaxed);
    });
    let whole = whole.load(Ordering::Relaxed);
    println!("{}: {odd} died in a publication, {even} did not; {whole} whole contents", P::NAME);
}

#[test]
fn pvclock_writers_are_killed() {
    kill::<pvclock::Page>("kill-pvclock");
}

#[test]
fn vmclock_writers_are_killed() {
    kill::<vmclock::Page>("kill-vmclock");
}

#[test]
fn clockbound_writers_are_killed() {
    kill::<clockbound::Page>("kill-clockbound");
}

/// The death of a writer is a disruption, in the encodings that count those.
#[test]
fn recoveries_are_disruptions() {
    let file = File::new("disruptions");
    drop(Publisher::<vmclock::Page>::create(file.c()).unwrap());
    // The writer died at an odd number.
    let mut bytes = fs::read(&file.0).unwrap();
    bytes[12] = 1;
    fs::write(&file.0, &bytes).unwrap();
    let mut subscriber = Subscriber::<vmclock::Page>::open(file.c()).unwrap();
    assert_eq!(subscriber.content(), Err(Doubt::Odd));
    let mut publisher = Publisher::<vmclock::Page>::create(file.c()).unwrap();
    assert!(publisher.has_recovered() && publisher.recoveries() == 1);
    let content = vmclock::Content { disruptions: 40, ..vmclock::Page::numbered(5) };
    publisher.publish(&content).unwrap();
    assert_eq!(subscriber.content().unwrap().disruptions, 41);
}

/// A hypervisor's own page, where there is one.
#[test]
fn the_hypervisors_page() {
    match Subscriber::<vmclock::Page>::open(c"/dev/vmclock0") {
        Ok(mut subscriber) => println!("{:?}", subscriber.content()),
        Err(refusal) => eprintln!("skipped: the_hypervisors_page: /dev/vmclock0: {refusal}"),
    }
}
