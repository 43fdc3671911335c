//! Robust mutexes, with and without priority inheritance: what they report of threads that end with a lock and
//! of copies that a fork makes, beside libc's own robust mutexes and as those do. Processes that are killed
//! are in `sync_robust_deaths.rs`.

mod forked;
mod leaked;
mod oracle;
mod pthreads;
mod sandbox;
mod storm;

use std::mem::{MaybeUninit, forget};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sync::{
    Inherit, LockError, Orphaned, Plain, Private, Recovered, RobustError, RobustMutex,
    RobustMutexGuard, Scope, Shared, Waiting,
};
use forked::{End, fork, next};
use leaked::forever;

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(20);

type Outcome<'a, T, S, W> = Result<
    RobustMutexGuard<'a, T, S, W>,
    RobustError<Recovered<'a, T, S, W>, Orphaned<RobustMutexGuard<'a, T, S, W>>>,
>;

/// A mutex that stays for ever.
fn leaked<T, S: Scope, W: Waiting>(value: T) -> &'static RobustMutex<T, S, W> {
    // SAFETY: leaked, so neither moved nor freed.
    forever(unsafe { RobustMutex::with_scope(value) })
}

fn dead<T, S: Scope, W: Waiting>(outcome: Outcome<'_, T, S, W>) -> Recovered<'_, T, S, W> {
    match outcome {
        Err(RobustError::OwnerDied(recovered)) => recovered,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("nobody died"),
    }
}

fn failed<T, S: Scope, W: Waiting>(outcome: Outcome<'_, T, S, W>) -> Option<LockError> {
    match outcome {
        Err(RobustError::Failed(error)) => Some(error),
        _ => None,
    }
}

/// A thread that ends with the lock.
fn die_with<T: Send, S: Scope, W: Waiting>(mutex: &'static RobustMutex<T, S, W>) {
    thread::spawn(|| forget(mutex.lock().unwrap())).join().unwrap();
}

macro_rules! of_each_kind {
    ($($name:ident = $body:ident;)*) => {
        $(
            #[test]
            fn $name() {
                $body::<Private, Plain>();
                $body::<Shared, Plain>();
                $body::<Private, Inherit>();
                $body::<Shared, Inherit>();
            }
        )*
    };
}

of_each_kind! {
    one_owner_at_a_time = counting;
    errors_are_told = errors;
    an_owners_death_is_told_once = death;
    what_is_not_made_consistent_is_lost = loss;
    those_who_wait_are_told_too = waiters;
    a_deadline_holds_under_signals = signals;
    a_guard_copied_by_fork_owns_nothing = copies;
    libcs_robust_mutexes_share_the_list = mixture;
    no_more_are_held_than_the_kernel_finds = too_many;
}

fn counting<S: Scope, W: Waiting>() {
    let mutex = leaked::<_, S, W>((0u64, 0u64));
    let each = storm::scaled(20_000);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..each {
                    let mut pair = mutex.lock().unwrap();
                    pair.0 += 1;
                    assert_eq!(pair.0, pair.1 + 1);
                    pair.1 += 1;
                }
            });
        }
    });
    assert_eq!(*mutex.lock().unwrap(), (4 * each, 4 * each));
}

fn errors<S: Scope, W: Waiting>() {
    let mutex = leaked::<_, S, W>(0);
    let guard = mutex.lock().unwrap();
    assert_eq!(failed(mutex.lock()), Some(LockError::Deadlock));
    assert_eq!(failed(mutex.try_lock()), Some(LockError::Busy));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(failed(mutex.try_lock()), Some(LockError::Busy));
            let begin = Instant::now();
            assert_eq!(failed(mutex.try_lock_for(SHORT)), Some(LockError::TimedOut));
            assert!(begin.elapsed() >= SHORT);
        });
    });
    drop(guard);
    drop(mutex.try_lock().unwrap());
    drop(mutex.try_lock_for(SHORT).unwrap());
}

fn death<S: Scope, W: Waiting>() {
    let mutex = leaked::<_, S, W>(0);
    for round in 0..3 {
        die_with(mutex);
        let mut recovered = match round {
            0 => dead(mutex.lock()),
            1 => dead(mutex.try_lock()),
            _ => dead(mutex.try_lock_for(LONG)),
        };
        *recovered += 1;
        drop(recovered.make_consistent());
        assert_eq!(*mutex.lock().unwrap(), round + 1);
    }
    // One that dies before it made the data consistent.
    die_with(mutex);
    thread::spawn(|| forget(dead(mutex.lock()))).join().unwrap();
    drop(dead(mutex.lock()).make_consistent());
    assert!(mutex.try_lock().is_ok());
}

fn loss<S: Scope, W: Waiting>() {
    let mutex = leaked::<_, S, W>(0);
    die_with(mutex);
    thread::scope(|scope| {
        let recovered = dead(mutex.lock());
        let waiters = [(); 3].map(|()| scope.spawn(|| failed(mutex.lock())));
        thread::sleep(SHORT);
        drop(recovered);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Some(LockError::NotRecoverable));
        }
    });
    for _ in 0..2 {
        assert_eq!(failed(mutex.lock()), Some(LockError::NotRecoverable));
        assert_eq!(failed(mutex.try_lock()), Some(LockError::NotRecoverable));
        assert_eq!(failed(mutex.try_lock_for(SHORT)), Some(LockError::NotRecoverable));
    }
}

/// Several wait when the owner dies: one is told, and all get the lock in the end.
fn waiters<S: Scope, W: Waiting>() {
    for _ in 0..storm::scaled(20).max(2) {
        let mutex = leaked::<_, S, W>(0);
        let is_owned = AtomicBool::new(false);
        let told = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let guard = mutex.lock().unwrap();
                is_owned.store(true, Ordering::Release);
                thread::sleep(Duration::from_millis(3));
                forget(guard);
            });
            while !is_owned.load(Ordering::Acquire) {
                thread::yield_now();
            }
            for _ in 0..4 {
                scope.spawn(|| match mutex.try_lock_for(LONG) {
                    Ok(mut count) => *count += 1,
                    Err(RobustError::OwnerDied(recovered)) => {
                        told.fetch_add(1, Ordering::Relaxed);
                        *recovered.make_consistent() += 1;
                    }
                    Err(error) => panic!("{error:?}"),
                });
            }
        });
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert_eq!(*mutex.lock().unwrap(), 4);
    }
}

fn signals<S: Scope, W: Waiting>() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as libc::sighandler_t) };
    let mutex = leaked::<_, S, W>(0);
    let guard = mutex.lock().unwrap();
    thread::scope(|scope| {
        let (id, told) = std::sync::mpsc::channel();
        let waiter = scope.spawn(move || {
            // SAFETY: no preconditions.
            id.send(unsafe { libc::gettid() }).unwrap();
            let begin = Instant::now();
            assert_eq!(failed(mutex.try_lock_for(5 * SHORT)), Some(LockError::TimedOut));
            assert!(begin.elapsed() >= 5 * SHORT);
        });
        let waiter_id = told.recv().unwrap();
        let mut sent = 0u64;
        while !waiter.is_finished() {
            // SAFETY: no addresses; a thread that has ended is ESRCH.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), waiter_id, libc::SIGUSR2) };
            sent += 1;
            thread::sleep(Duration::from_micros(50));
        }
        assert!(sent > 0);
        waiter.join().unwrap();
    });
    drop(guard);
    assert!(mutex.lock().is_ok());
}

/// In a child the copy of a guard is good if the memory is private, and owns nothing of what the parent owns. No thread of
/// the child gets a second one.
fn copies<S: Scope, W: Waiting>() {
    let mutex = leaked::<_, S, W>(0);
    let guard = mutex.lock().unwrap();
    let is_refused = || {
        let error = failed(mutex.try_lock());
        matches!(error, Some(LockError::Busy | LockError::OwnerGone | LockError::Deadlock))
    };
    let are_refused = || {
        let refused = std::sync::atomic::AtomicU32::new(0);
        let ask = || {
            refused.fetch_add(is_refused().into(), Ordering::Relaxed);
        };
        pthreads::run::<2, _>(ask) && refused.load(Ordering::Relaxed) == 2
    };
    let child = fork(|| {
        // With `Shared` it looks as any other owner does: the memory might be shared.
        let is_owned = are_refused() && is_refused() && are_refused();
        if !is_shared::<S>() {
            let locked = mutex.lock();
            assert!(matches!(locked, Err(RobustError::Failed(LockError::Deadlock))));
        }
        // A child of the child, too.
        let grandchild = fork(|| i32::from(!(are_refused() && is_refused())));
        let is_owned = is_owned && grandchild.wait() == End::Code(0);
        // SAFETY: the child's copy of the guard, which it forgets.
        drop(unsafe { std::ptr::read(&guard) });
        let is_unlocked = mutex.try_lock().is_ok() && mutex.lock().is_ok();
        i32::from(!is_owned || is_unlocked == is_shared::<S>())
    });
    assert_eq!(child.wait(), End::Code(0));
    drop(guard);
    assert!(mutex.lock().is_ok());
}

/// How many locks the kernel finds when a thread ends.
const MOST: usize = 2048;

/// As many as there may be beside so many mutexes of libc's that are held, and no more.
fn too_many<S: Scope, W: Waiting>() {
    for libcs in [0, 1, 1000, MOST - 1] {
        let holder = thread::spawn(move || {
            let theirs: Vec<_> = (0..libcs).map(|_| robust_pthread(false)).collect();
            // SAFETY: initialised mutexes, unlocked below by this thread.
            theirs
                .iter()
                .for_each(|it| assert_eq!(unsafe { libc::pthread_mutex_lock(it.get()) }, 0));
            let ours: Vec<_> = (0..MOST - libcs).map(|_| leaked::<_, S, W>(0)).collect();
            let mut held: Vec<_> = ours.iter().map(|it| it.lock().expect("a lock")).collect();
            let more = leaked::<_, S, W>(0);
            for _ in 0..3 {
                assert_eq!(failed(more.lock()), Some(LockError::TooManyHeld));
                assert_eq!(failed(more.try_lock()), Some(LockError::TooManyHeld));
                assert_eq!(failed(more.try_lock_for(SHORT)), Some(LockError::TooManyHeld));
                // Nothing was taken.
                thread::scope(|scope| {
                    scope.spawn(|| *more.try_lock().expect("a lock that is free") += 1);
                });
                held.pop();
                drop(more.lock().expect("room for one"));
                held.push(ours.last().expect("one").lock().expect("room for one"));
            }
            drop(held);
            // SAFETY: locked above.
            theirs
                .iter()
                .for_each(|it| assert_eq!(unsafe { libc::pthread_mutex_unlock(it.get()) }, 0));
            assert!(more.lock().is_ok());
        });
        assert!(holder.join().is_ok(), "{libcs} of libc's");
    }
}

fn is_shared<S: Scope>() -> bool {
    std::any::type_name::<S>() == std::any::type_name::<Shared>()
}

fn robust_pthread(inherits: bool) -> &'static std::cell::UnsafeCell<libc::pthread_mutex_t> {
    let mutex = forever(std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    let mut kind = MaybeUninit::uninit();
    // SAFETY: initialised by the first call; the mutex is leaked.
    unsafe {
        libc::pthread_mutexattr_init(kind.as_mut_ptr());
        libc::pthread_mutexattr_setrobust(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST);
        if inherits {
            libc::pthread_mutexattr_setprotocol(kind.as_mut_ptr(), libc::PTHREAD_PRIO_INHERIT);
        }
        assert_eq!(libc::pthread_mutex_init(mutex.get(), kind.as_ptr()), 0);
    }
    mutex
}

/// Locks of both kinds in one thread's hands, some let go in between; then it ends.
fn mixture<S: Scope, W: Waiting>() {
    const EACH: usize = 4;
    for seed in 1..=storm::scaled(50).max(5) {
        let ours: [_; EACH] = std::array::from_fn(|_| leaked::<_, S, W>(0));
        let theirs: [_; EACH] = std::array::from_fn(|i| Both(robust_pthread(i % 2 == 1)));
        let held = thread::spawn(move || {
            let mut random = seed;
            let mut guards: [Option<_>; EACH] = Default::default();
            let mut held = [false; EACH];
            for _ in 0..100 {
                let which = next(&mut random) as usize % EACH;
                if next(&mut random) % 2 == 0 {
                    guards[which] = match guards[which].take() {
                        Some(_) => None,
                        None => Some(ours[which].lock().unwrap()),
                    };
                } else {
                    let mutex = theirs[which].0.get();
                    // SAFETY: valid mutexes that are leaked.
                    let code = unsafe {
                        match held[which] {
                            true => libc::pthread_mutex_unlock(mutex),
                            false => libc::pthread_mutex_lock(mutex),
                        }
                    };
                    assert_eq!(code, 0);
                    held[which] = !held[which];
                }
            }
            let ours_held = guards.map(|guard| guard.map(forget).is_some());
            (ours_held, held)
        });
        let (ours_held, theirs_held) = held.join().unwrap();
        for which in 0..EACH {
            match ours[which].try_lock() {
                Ok(_) => assert!(!ours_held[which]),
                Err(RobustError::OwnerDied(_)) => assert!(ours_held[which]),
                Err(error) => panic!("{error:?}"),
            }
            // SAFETY: a valid mutex that is leaked.
            let code = unsafe { libc::pthread_mutex_trylock(theirs[which].0.get()) };
            assert_eq!(code, if theirs_held[which] { libc::EOWNERDEAD } else { 0 });
            // SAFETY: a valid mutex that is leaked.
            unsafe { libc::pthread_mutex_unlock(theirs[which].0.get()) };
        }
    }
}

#[derive(Clone, Copy)]
struct Both(&'static std::cell::UnsafeCell<libc::pthread_mutex_t>);
// SAFETY: a mutex is for threads.
unsafe impl Send for Both {}
// SAFETY: a mutex is for threads.
unsafe impl Sync for Both {}

struct Mutex<W: Waiting>(RobustMutex<(), Private, W>);

enum Held<W: Waiting> {
    Clean(#[allow(dead_code, reason = "held")] RobustMutexGuard<'static, (), Private, W>),
    Dead(Recovered<'static, (), Private, W>),
}

fn told<W: Waiting>(outcome: Outcome<'static, (), Private, W>) -> (i32, Option<Held<W>>) {
    match outcome {
        Ok(guard) => (0, Some(Held::Clean(guard))),
        Err(RobustError::OwnerDied(recovered)) => (libc::EOWNERDEAD, Some(Held::Dead(recovered))),
        Err(error) => (error.errno().0, None),
    }
}

impl<W: Waiting> oracle::Ours for Mutex<W> {
    type Held = Held<W>;

    fn try_lock(&'static self) -> (i32, Option<Held<W>>) {
        told(self.0.try_lock())
    }

    fn lock(&'static self) -> (i32, Option<Held<W>>) {
        told(self.0.lock())
    }

    fn lock_for(&'static self, span: Duration) -> (i32, Option<Held<W>>) {
        told(self.0.try_lock_for(span))
    }

    fn make_consistent(held: Held<W>) -> Held<W> {
        match held {
            Held::Clean(guard) => Held::Clean(guard),
            Held::Dead(recovered) => Held::Clean(recovered.make_consistent()),
        }
    }
}

fn scripts<W: Waiting>(inherits: bool) {
    for seed in 1..=storm::scaled(60).max(3) {
        // SAFETY: leaked, so neither moved nor freed.
        let mutex = forever(Mutex::<W>(unsafe { RobustMutex::with_scope(()) }));
        let kind = oracle::Kind { robust: true, inherits };
        if !oracle::agree(mutex, kind, 200, seed * 0x9e37_79b9) {
            return sandbox::skip("libc_agrees", "libc has no robust mutexes of this kind here");
        }
    }
}

#[test]
fn libc_agrees() {
    scripts::<Plain>(false);
}

#[test]
fn libc_agrees_on_inheritance() {
    scripts::<Inherit>(true);
}

#[test]
fn without_robust_lists() {
    let call = libc::SYS_get_robust_list;
    let when = sandbox::When::Always;
    sandbox::run_refusing("without_robust_lists", call, when, libc::ENOSYS, || {
        let mutex = leaked::<_, Private, Plain>(0);
        let refused = LockError::Refused(corelocal::sys::Errno::ENOSYS);
        // In a thread that has never locked one.
        let outcome = thread::spawn(|| failed(mutex.lock())).join().unwrap();
        assert_eq!(outcome, Some(refused));
        assert_eq!(failed(mutex.try_lock()), Some(refused));
    });
}
