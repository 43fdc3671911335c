//! Clock pages and other users: whose pages are believed, what their owners can do to readers, and what keeps a publisher
//! from its file.

mod forked;
mod pages;
mod users;

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelocal::clock::page::{
    Encoding, Publisher, ReadError, Refusal, Subscriber, clockbound, pvclock, vmclock,
};
use forked::End;
use pages::{File, Numbered, numbered};
use users::{ALICE, BOB, as_user, may_change};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// With a publication of number 7.
fn published<P: Encoding>(file: &File) -> Publisher<P> {
    let mut publisher = Publisher::<P>::create(file.c()).unwrap();
    publisher.publish(&numbered::<P>(7)).unwrap();
    publisher
}

fn pages_of<P: Encoding>() {
    let file = File::new();
    drop(published::<P>(&file));
    // One of root is believed by all.
    let believed = || match Subscriber::<P>::open(file.c()) {
        Ok(mut subscriber) => i32::from(subscriber.content() != Ok(&numbered::<P>(7))),
        // The folder for such files is this user's own: nothing is shown.
        Err(Refusal::System(corelocal::sys::Errno::EACCES)) => 0,
        Err(_) => 2,
    };
    assert_eq!(as_user(ALICE, believed).wait(), End::Code(0));
    chown(&file.0, Some(ALICE), Some(ALICE)).unwrap();
    assert_eq!(as_user(ALICE, believed).wait(), End::Code(0), "its own");
    let refusal = Refusal::Unsafe { owner: ALICE, mode: 0o644 };
    assert!(refusal.to_string().contains("user 65534"));
    let refused = Some(refusal);
    assert_eq!(Subscriber::<P>::open(file.c()).err(), refused);
    assert_eq!(Publisher::<P>::create(file.c()).err(), refused);
    let by_another = as_user(BOB, || match Subscriber::<P>::open(file.c()).err() {
        Some(Refusal::Unsafe { owner: ALICE, .. }) => 0,
        Some(Refusal::System(corelocal::sys::Errno::EACCES)) => 0,
        _ => 1,
    });
    assert_eq!(by_another.wait(), End::Code(0));
    // Unless it is asked for, or the user is named.
    let mut named = Subscriber::<P>::open_of_user(file.c(), ALICE).unwrap();
    assert_eq!(named.content(), Ok(&numbered::<P>(7)));
    assert!(!named.is_trusted());
    assert_eq!(Subscriber::<P>::open_of_user(file.c(), BOB).err(), refused);
    let mut subscriber = Subscriber::<P>::open_untrusted(file.c()).unwrap();
    assert_eq!((subscriber.owner(), subscriber.is_trusted()), (ALICE, false));
    assert_eq!(subscriber.content(), Ok(&numbered::<P>(7)));
    set_mode(&file.0, 0o666);
    let refused = Some(Refusal::Unsafe { owner: ALICE, mode: 0o666 });
    assert_eq!(Subscriber::<P>::open_untrusted(file.c()).err(), refused);
}

#[test]
fn pages_of_other_users_are_refused() {
    if may_change("pages_of_other_users_are_refused") {
        pages_of::<pvclock::Page>();
        pages_of::<vmclock::Page>();
        pages_of::<clockbound::Page>();
    }
}

fn cut<P: Encoding>() {
    let file = File::new();
    drop(published::<P>(&file));
    let whole = fs::read(&file.0).unwrap();
    let mut subscriber = Subscriber::<P>::open_untrusted(file.c()).unwrap();
    assert!(subscriber.is_trusted() && subscriber.last().is_none());
    assert_eq!(subscriber.recoveries(), Some(0));
    for len in [0, 1, 8, size_of::<P>() - 1] {
        assert_eq!(subscriber.content(), Ok(&numbered::<P>(7)));
        fs::write(&file.0, &whole[..len]).unwrap();
        assert_eq!(subscriber.content().err(), Some(ReadError::Cut), "{len} bytes");
        assert_eq!((subscriber.last(), subscriber.recoveries()), (Some(&numbered::<P>(7)), None));
        assert!(format!("{subscriber:?}").contains("Cut"));
        fs::write(&file.0, &whole).unwrap();
    }
    // One that was emptied is filled by the next writer, for those that read it already.
    fs::write(&file.0, "").unwrap();
    let mut publisher = published::<P>(&file);
    publisher.publish(&numbered::<P>(8)).unwrap();
    assert_eq!(subscriber.content(), Ok(&numbered::<P>(8)));
}

/// A mapping would end this process by SIGBUS.
#[test]
fn a_file_that_is_cut_ends_no_reader_of_an_untrusted_page() {
    cut::<pvclock::Page>();
    cut::<vmclock::Page>();
    cut::<clockbound::Page>();
}

fn copies<P: Numbered>() {
    let file = File::new();
    let mut publisher = published::<P>(&file);
    let done = AtomicBool::new(false);
    let (mut whole, mut refused) = (0, 0);
    let mut subscriber = Subscriber::<P>::open_untrusted(file.c()).unwrap();
    let last = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 7;
            while !done.load(Ordering::Relaxed) {
                n += 1;
                publisher.publish(&numbered::<P>(n)).unwrap();
                if n % 16 == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            n
        });
        for _ in 0..20_000 {
            match subscriber.content() {
                Ok(content) => {
                    assert!(P::number(content).is_some(), "torn: {content:?}");
                    whole += 1;
                }
                Err(ReadError::Odd | ReadError::Changing) => refused += 1,
                Err(doubt) => panic!("{doubt}"),
            }
        }
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    println!("{}: {whole} whole contents, {refused} times none", P::NAME);
    assert_eq!(subscriber.content(), Ok(&numbered::<P>(last)));
}

#[test]
fn copies_of_a_page_are_never_torn() {
    copies::<pvclock::Page>();
    copies::<vmclock::Page>();
    copies::<clockbound::Page>();
}

/// A lock for reading on the whole file, as every user that may read it can have it.
fn lock_for_reading(path: &Path) -> fs::File {
    use std::os::fd::AsRawFd;
    let file = fs::File::open(path).unwrap();
    // SAFETY: integers, of which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as libc::c_short;
    // SAFETY: an open descriptor, a valid record.
    let locked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    assert_eq!(locked, 0);
    file
}

#[test]
fn no_lock_on_the_page_keeps_a_publisher_out() {
    let file = File::new();
    drop(published::<vmclock::Page>(&file));
    let _locked = lock_for_reading(&file.0);
    let mut next = Publisher::<vmclock::Page>::create(file.c()).unwrap();
    next.publish(&numbered::<vmclock::Page>(8)).unwrap();
    // The lock that counts is on a file that other users cannot even open.
    let lock = fs::metadata(file.lock()).unwrap();
    assert_eq!((lock.mode() & 0o7777, lock.len()), (0o600, 0));
    let own = Some(Refusal::Held(Some(std::process::id())));
    assert_eq!(Publisher::<vmclock::Page>::create(file.c()).err(), own);
    if may_change("no_lock_on_the_page_keeps_a_publisher_out") {
        let lock = std::ffi::CString::new(file.lock().to_str().unwrap()).unwrap();
        let child = as_user(ALICE, || {
            // SAFETY: a path that ends with NUL.
            i32::from(unsafe { libc::open(lock.as_ptr(), libc::O_RDONLY) } >= 0)
        });
        assert_eq!(child.wait(), End::Code(0));
    }
}

#[test]
fn lock_files_that_others_may_open_are_refused() {
    let file = File::new();
    let refused = || match Publisher::<pvclock::Page>::create(file.c()).err() {
        Some(Refusal::Lock { mode, .. }) => Some(mode),
        _ => None,
    };
    drop(published::<pvclock::Page>(&file));
    for mode in [0o644, 0o660, 0o606] {
        set_mode(&file.lock(), mode);
        assert_eq!(refused(), Some(mode));
    }
    set_mode(&file.lock(), 0o600);
    assert!(Publisher::<pvclock::Page>::create(file.c()).is_ok());
    let other = file.folder().join("other");
    fs::hard_link(file.lock(), &other).unwrap();
    assert_eq!(refused(), Some(0o600));
    fs::remove_file(file.lock()).unwrap();
    symlink(&other, file.lock()).unwrap();
    assert!(refused().is_some());
    fs::remove_file(file.lock()).unwrap();
    fs::create_dir(file.lock()).unwrap();
    assert!(refused().is_some());
    fs::remove_dir(file.lock()).unwrap();
    if may_change("lock_files_that_others_may_open_are_refused") {
        fs::write(file.lock(), "").unwrap();
        set_mode(&file.lock(), 0o600);
        chown(file.lock(), Some(ALICE), Some(ALICE)).unwrap();
        assert_eq!(refused(), Some(0o600));
        fs::remove_file(file.lock()).unwrap();
    }
    assert!(Publisher::<pvclock::Page>::create(file.c()).is_ok());
}

/// Where `fs.protected_hardlinks` is off, every user may link to a file that it can find.
#[test]
fn files_of_several_names_are_refused() {
    let (file, foreign) = (File::new(), File::new());
    let create = || Publisher::<pvclock::Page>::create(file.c()).err();
    drop(published::<pvclock::Page>(&file));
    let again = &foreign.0;
    fs::hard_link(file.lock(), again).unwrap();
    assert!(matches!(create(), Some(Refusal::Lock { mode: 0o600, .. })));
    fs::remove_file(again).unwrap();
    fs::hard_link(&file.0, again).unwrap();
    assert_eq!(create(), Some(Refusal::Linked(2)));
    let read = Subscriber::<pvclock::Page>::open(file.c()).err();
    assert_eq!(read, Some(Refusal::Linked(2)));
    fs::remove_file(again).unwrap();
    assert_eq!(create(), None);
}

#[test]
fn a_page_that_was_renamed_has_one_publisher() {
    let file = File::new();
    let publisher = published::<pvclock::Page>(&file);
    let renamed = file.folder().join("renamed");
    fs::rename(&file.0, &renamed).unwrap();
    let renamed = CString::new(renamed.to_str().unwrap()).unwrap();
    let held = Some(Refusal::Held(Some(std::process::id())));
    assert_eq!(Publisher::<pvclock::Page>::create(&renamed).err(), held);
    drop(publisher);
    assert!(Publisher::<pvclock::Page>::create(&renamed).is_ok());
}

/// The file of a writer that has ended can be taken over.
#[test]
fn a_new_page_is_whole_from_the_first_moment() {
    let file = File::new();
    // A writer was killed before the page had its name.
    fs::write(file.draft(), "half").unwrap();
    drop(Publisher::<vmclock::Page>::create(file.c()).unwrap());
    assert!(!file.draft().exists());
    let mut names: Vec<_> =
        fs::read_dir(file.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["page", "page.lock"]);
    let page = fs::metadata(&file.0).unwrap();
    assert_eq!((page.mode() & 0o7777, page.len(), page.nlink()), (0o644, 4096, 1));
    // A link in its place is neither followed nor replaced.
    fs::remove_file(&file.0).unwrap();
    symlink("/dev/null", &file.0).unwrap();
    let refused = Publisher::<vmclock::Page>::create(file.c()).err();
    assert_eq!(refused, Some(Refusal::System(corelocal::sys::Errno::ELOOP)));
    assert!(file.0.is_symlink() && !file.draft().exists());
}

#[test]
fn what_is_no_file_is_no_page() {
    let file = File::new();
    // SAFETY: a path that ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(file.c().as_ptr(), 0o600) }, 0);
    assert_eq!(Subscriber::<vmclock::Page>::open(file.c()).err(), Some(Refusal::NotAFile));
    assert_eq!(Publisher::<vmclock::Page>::create(file.c()).err(), Some(Refusal::NotAFile));
    let profile = corelocal::sync::profile::Profile::open(file.c()).err();
    assert_eq!(profile, Some(corelocal::sync::profile::ProfileError::Foreign));
    assert_eq!(Subscriber::<vmclock::Page>::open(c"/").err(), Some(Refusal::NotAFile));
    // Files of procfs have no length.
    for other in [c"/dev/null", c"/dev/zero", c"/proc/self/status"] {
        assert!(Subscriber::<pvclock::Page>::open(other).is_err(), "{other:?}");
        assert!(Subscriber::<pvclock::Page>::open_untrusted(other).is_err(), "{other:?}");
    }
    assert!(Refusal::NotAFile.to_string().contains("name one of them"));
}
