//! Clock pages whose readers are disturbed and whose writers are killed: no reader sees a torn content, and the next
//! writer continues.

mod pages;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, thread};

use corelocal::clock::page::{Publisher, ReadError, Subscriber, clockbound, pvclock, vmclock};
use pages::{File, Numbered, leave, numbered, reap};

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
            Err(ReadError::Odd | ReadError::Changing) => {}
            Err(_) => _ = WRONG.fetch_add(1, Ordering::Relaxed),
        }
    }
    let done = AtomicBool::new(false);
    // A page that nothing was published in says so; no reader comes that early.
    PAGE.write(&numbered::<pvclock::Page>(1));
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 1;
            while !done.load(Ordering::Relaxed) && n < 0xffff_ffff {
                n += 1;
                PAGE.write(&numbered::<pvclock::Page>(n));
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
fn kill<P: Numbered>() {
    let file = File::new();
    let mut subscriber = {
        let mut publisher = Publisher::<P>::create(file.c()).unwrap();
        publisher.publish(&numbered::<P>(1)).unwrap();
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
                            assert!(
                                matches!(doubt, ReadError::Odd | ReadError::Changing),
                                "{doubt}"
                            );
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
                    if publisher.publish(&numbered::<P>(n)).is_err() {
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
                    assert_eq!(doubt, ReadError::Odd, "round {round}");
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
            publisher.publish(&numbered::<P>(round)).unwrap();
            let content = subscriber.content().unwrap();
            assert_eq!(P::number(content), P::number(&numbered::<P>(round)));
        }
        done.store(true, Ordering::Relaxed);
    });
    let whole = whole.load(Ordering::Relaxed);
    println!("{}: {odd} died in a publication, {even} did not; {whole} whole contents", P::NAME);
}

#[test]
fn pvclock_writers_are_killed() {
    kill::<pvclock::Page>();
}

#[test]
fn vmclock_writers_are_killed() {
    kill::<vmclock::Page>();
}

#[test]
fn clockbound_writers_are_killed() {
    kill::<clockbound::Page>();
}

/// The death of a writer is a disruption, in the encodings that count those.
#[test]
fn recoveries_are_disruptions() {
    let file = File::new();
    drop(Publisher::<vmclock::Page>::create(file.c()).unwrap());
    // The writer died at an odd number.
    let mut bytes = fs::read(&file.0).unwrap();
    bytes[12] = 1;
    fs::write(&file.0, &bytes).unwrap();
    let mut subscriber = Subscriber::<vmclock::Page>::open(file.c()).unwrap();
    assert_eq!(subscriber.content(), Err(ReadError::Odd));
    let mut publisher = Publisher::<vmclock::Page>::create(file.c()).unwrap();
    assert!(publisher.has_recovered() && publisher.recoveries() == 1);
    let content = vmclock::Content { disruptions: 40, ..numbered::<vmclock::Page>(5) };
    publisher.publish(&content).unwrap();
    assert_eq!(subscriber.content().unwrap().disruptions, 41);
}
