//! Clock pages in files: which processes may publish and read, and what is refused.

mod pages;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::clock::page::{
    Bounds, Encoding, PublishError, Publisher, ReadError, Refusal, Status, Subscriber, clockbound,
    pvclock, vmclock,
};
use pages::{File, leave, numbered, reap};

fn publish_and_read<P: Encoding>() {
    let file = File::new();
    assert_eq!(
        Subscriber::<P>::open(file.c()).err(),
        Some(Refusal::System(corelocal::sys::Errno::ENOENT))
    );
    let mut publisher = Publisher::<P>::create(file.c()).unwrap();
    assert_eq!((publisher.recoveries(), publisher.has_recovered()), (0, false));
    let mut subscriber = Subscriber::<P>::open(file.c()).unwrap();
    assert!(subscriber.last().is_none());
    for n in 1..100 {
        publisher.publish(&numbered::<P>(n)).unwrap();
        assert_eq!(subscriber.content(), Ok(&numbered::<P>(n)));
        assert_eq!(subscriber.content(), Ok(&numbered::<P>(n)));
        assert_eq!(subscriber.last(), Some(&numbered::<P>(n)));
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
        let is_forked = publisher.publish(&numbered::<P>(1000)) == Err(PublishError::Forked);
        let reads = subscriber.content() == Ok(&numbered::<P>(99));
        drop(publisher);
        leave(if is_refused && is_forked && reads { 0 } else { 1 });
    }
    assert_eq!(reap(child), 0);
    assert_eq!(Publisher::<P>::create(file.c()).err(), Some(own), "the child let the lock go");
    // The next one goes on where this one was.
    drop(publisher);
    let mut publisher = Publisher::<P>::create(file.c()).unwrap();
    assert_eq!((publisher.last(), publisher.recoveries()), (Some(&numbered::<P>(99)), 0));
    assert_eq!(subscriber.content(), Ok(&numbered::<P>(99)));
    publisher.publish(&numbered::<P>(100)).unwrap();
    assert_eq!(subscriber.content(), Ok(&numbered::<P>(100)));
    // Replaced while readers have the old file. Removing it does not allow a second writer.
    fs::remove_file(&file.0).unwrap();
    assert_eq!(Publisher::<P>::create(file.c()).err(), Some(own));
    drop(publisher);
    let mut other = Publisher::<P>::create(file.c()).unwrap();
    other.publish(&numbered::<P>(7)).unwrap();
    assert_eq!(subscriber.content(), Ok(&numbered::<P>(100)));
    assert_eq!(Subscriber::<P>::open(file.c()).unwrap().content(), Ok(&numbered::<P>(7)));
}

#[test]
fn a_page_in_a_file() {
    publish_and_read::<pvclock::Page>();
    publish_and_read::<vmclock::Page>();
    publish_and_read::<clockbound::Page>();
}

/// A child that still has the descriptor does not keep the file from the next writer.
#[test]
fn a_child_does_not_keep_the_lock_of_a_publisher_that_was_dropped() {
    let file = File::new();
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
    /// A child that another test forks has a copy of the descriptor with the lock for a moment.
    fn create<P: Encoding>(file: &File) -> Result<Publisher<P>, Refusal> {
        let began = Instant::now();
        loop {
            match Publisher::<P>::create(file.c()) {
                Err(Refusal::Held(_)) if began.elapsed() < Duration::from_secs(20) => {
                    thread::sleep(Duration::from_millis(1));
                }
                created => return created,
            }
        }
    }
    fn refused<P: Encoding>(file: &File) -> Refusal {
        let refusal = Subscriber::<P>::open(file.c()).expect_err("not a page");
        assert!(refusal.to_string().len() > 10);
        refusal
    }
    let file = File::new();
    fs::create_dir(&file.0).unwrap();
    assert_eq!(refused::<vmclock::Page>(&file), Refusal::NotAFile);
    assert!(create::<vmclock::Page>(&file).is_err());
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
    drop(create::<clockbound::Page>(&file).unwrap());
    let blank = Subscriber::<clockbound::Page>::open(file.c()).unwrap().content().err();
    assert_eq!(blank, Some(ReadError::Blank));
    write(&[b'x'; 5000]);
    for refusal in [
        refused::<vmclock::Page>(&file),
        refused::<clockbound::Page>(&file),
        refused::<pvclock::Page>(&file),
        create::<vmclock::Page>(&file).err().unwrap(),
        create::<clockbound::Page>(&file).err().unwrap(),
    ] {
        assert_eq!(refusal, Refusal::Foreign);
    }
    let after = fs::read(&file.0).unwrap();
    assert!(after == [b'x'; 5000], "a file of somebody else was changed");

    // Another encoding, another version, a size that cannot be.
    fs::remove_file(&file.0).unwrap();
    drop(create::<vmclock::Page>(&file).unwrap());
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
    assert_eq!(create::<vmclock::Page>(&file).err(), Some(Refusal::NotOurs));
}

#[test]
fn files_that_others_may_change_are_refused() {
    let file = File::new();
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
    let link = File::new();
    symlink(&file.0, &link.0).unwrap();
    assert!(Subscriber::<pvclock::Page>::open(link.c()).is_ok());
    let refusal = Publisher::<pvclock::Page>::create(link.c()).err();
    assert_eq!(refusal, Some(Refusal::System(corelocal::sys::Errno::ELOOP)));
}

fn coarse_now() -> Duration {
    let mut coarse = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut coarse) };
    Duration::new(coarse.tv_sec as u64, coarse.tv_nsec as u32)
}

#[test]
fn bounds_through_files() {
    let file = File::new();
    let mut publisher = Publisher::<clockbound::Page>::create(file.c()).unwrap();
    let mut subscriber = Subscriber::<clockbound::Page>::open(file.c()).unwrap();
    assert_eq!(subscriber.bounds(), Err(ReadError::Blank));
    let as_of = coarse_now();
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

    let file = File::new();
    let mut publisher = Publisher::<vmclock::Page>::create(file.c()).unwrap();
    let mut subscriber = Subscriber::<vmclock::Page>::open(file.c()).unwrap();
    assert_eq!(subscriber.bounds(|| 0), Err(ReadError::Untrusted(Status::Unknown)));
    let unbounded = vmclock::Content { flags: 0, ..numbered::<vmclock::Page>(1 << 40) };
    publisher.publish(&unbounded).unwrap();
    assert_eq!(subscriber.bounds(|| unbounded.counter), Err(ReadError::Unbounded));
    assert!(subscriber.now(|| unbounded.counter).is_ok());
}

#[test]
fn readers_of_pvclock_doubt_a_counter_that_was_set_back() {
    let file = File::new();
    let mut publisher = Publisher::<pvclock::Page>::create(file.c()).unwrap();
    let mut subscriber = Subscriber::<pvclock::Page>::open(file.c()).unwrap();
    // Half a nanosecond a tick.
    let content = pvclock::Content {
        counter: 1 << 40,
        nanoseconds: 5,
        multiplier: 1 << 31,
        shift: 0,
        flags: pvclock::STABLE,
    };
    publisher.publish(&content).unwrap();
    let mut at = |counter| subscriber.now(|| counter).map(|reading| reading.nanoseconds);
    assert_eq!(at(content.counter + 4), Ok(7));
    for behind in [0, 1, 1999] {
        assert_eq!(at(content.counter - behind), Ok(5), "{behind} ticks behind");
    }
    for behind in [2000, 1 << 39, 1 << 40] {
        assert_eq!(at(content.counter - behind), Err(ReadError::Range), "{behind} ticks behind");
    }
}

/// The hypervisor disrupts the counter while a page's writer is dead.
#[test]
fn readers_compare_the_disruption_marker() {
    let device = File::new();
    let mut hypervisor = Publisher::<vmclock::Page>::create(device.c()).unwrap();
    let mut disrupt = |disruptions| {
        hypervisor.publish(&vmclock::Content { disruptions, ..Default::default() }).unwrap();
    };
    disrupt(7);
    let disrupted = ReadError::Untrusted(Status::Disrupted);

    let file = File::new();
    let mut publisher = Publisher::<vmclock::Page>::create(file.c()).unwrap();
    let mut subscriber = Subscriber::<vmclock::Page>::open(file.c()).unwrap();
    subscriber.watch(device.c()).unwrap();
    let content = numbered::<vmclock::Page>(1 << 40);
    let now = || content.counter;
    publisher.publish_under(Some(7), &content).unwrap();
    assert!(subscriber.now(now).is_ok());
    disrupt(8);
    assert_eq!(subscriber.now(now), Err(disrupted));
    assert_eq!(subscriber.bounds(now), Err(disrupted));
    assert!(subscriber.content().is_ok(), "what was published can be looked at");
    publisher.publish_under(Some(8), &content).unwrap();
    assert!(subscriber.now(now).is_ok());
    // A writer that has seen no hypervisor's page.
    publisher.publish(&content).unwrap();
    disrupt(9);
    assert!(subscriber.now(now).is_ok());
    assert!(subscriber.watch(file.c()).is_ok() && subscriber.watch(c"/dev/null").is_err());

    let file = File::new();
    let mut publisher = Publisher::<pvclock::Page>::create(file.c()).unwrap();
    let mut subscriber = Subscriber::<pvclock::Page>::open(file.c()).unwrap();
    let mut copying = Subscriber::<pvclock::Page>::open_untrusted(file.c()).unwrap();
    let content = pvclock::Content {
        counter: 1 << 40,
        nanoseconds: 5,
        multiplier: 1 << 31,
        shift: 0,
        flags: pvclock::STABLE,
    };
    for subscriber in [&mut subscriber, &mut copying] {
        subscriber.watch(device.c()).unwrap();
        publisher.publish_under(Some(9), &content).unwrap();
        assert!(subscriber.now(|| content.counter).is_ok());
        disrupt(10);
        assert_eq!(subscriber.now(|| content.counter), Err(disrupted));
        assert!(subscriber.content().is_ok());
        publisher.publish_under(Some(10), &content).unwrap();
        assert!(subscriber.now(|| content.counter).is_ok());
        disrupt(9);
    }

    let file = File::new();
    let mut publisher = Publisher::<clockbound::Page>::create(file.c()).unwrap();
    let mut subscriber = Subscriber::<clockbound::Page>::open(file.c()).unwrap();
    let as_of = coarse_now();
    let content = clockbound::Content {
        as_of,
        void_after: as_of + Duration::from_secs(1000),
        bound_ns: 1_000,
        disruptions: 9,
        status: Status::Synchronized,
        marker_counts: true,
        ..clockbound::Content::default()
    };
    publisher.publish(&content).unwrap();
    if subscriber.watch(c"/dev/null").is_err() {
        assert_eq!(subscriber.bounds(), Err(ReadError::Unwatched));
    }
    subscriber.watch(device.c()).unwrap();
    assert!(subscriber.bounds().is_ok());
    disrupt(10);
    assert_eq!(subscriber.bounds(), Err(disrupted));
    let unmarked = clockbound::Content { marker_counts: false, ..content };
    publisher.publish(&unmarked).unwrap();
    assert!(subscriber.bounds().is_ok());
}

/// A hypervisor's own page, where there is one.
#[test]
fn the_hypervisors_page() {
    match Subscriber::<vmclock::Page>::open(c"/dev/vmclock0") {
        Ok(mut subscriber) => println!("{:?}", subscriber.content()),
        Err(refusal) => eprintln!("skipped: the_hypervisors_page: /dev/vmclock0: {refusal}"),
    }
}
