//! 500 random futex programs of three threads in two processes: results, and which threads sleep and wake, in what
//! order.
//!
//! ```text
//!   controller            gives one operation to one thread, waits until it has returned or sleeps, and looks at all
//!   T0, T1                threads of this process
//!   T2                    a forked child
//! ```
//! A thread takes its commands from shared memory, and looks for them in a loop: one that sleeps is in futex(2).

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal_lab::sim::Model;
use corelocal_lab::sim::futex::{Age, Answer, Futexes, Kernel, Mapping, Op, Scope, WORDS};
use corelocal_lab::sim::random::{Numbers, run_to_rest};

use crate::common::{Zeroed, agree, scaled, share};

const PROGRAMS: u32 = 500;
const OPERATIONS: usize = 16;
const THREADS: usize = 3;
const PROCESS_OF: [u8; THREADS] = [0, 0, 1];
/// Word 0 is in both processes, the others are not.
const MAPPINGS: [Mapping; WORDS] = [Mapping::File, Mapping::Anonymous, Mapping::Anonymous];
const LONG: Duration = Duration::from_secs(20);

/// What the controller and a thread tell each other.
#[derive(Default)]
struct Desk {
    tid: AtomicU32,
    /// The number of the last command, and of the last one that has returned.
    command: AtomicU32,
    returned: AtomicU32,
    /// Arguments of a system call, or of a store.
    arguments: [AtomicU64; 7],
    result: AtomicI64,
}

#[derive(Default)]
struct Shared {
    desks: [Desk; THREADS],
    /// The word that both processes have.
    word: AtomicU32,
}

// SAFETY: it consists of atomics.
unsafe impl Zeroed for Shared {}

/// The other words, of which each process has its own.
static OWN: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

const STORE: u64 = 1;
const LOAD: u64 = 2;
const QUIT: u64 = 3;
const FUTEX: u64 = 4;

fn word(shared: &Shared, word: u8) -> &AtomicU32 {
    match word {
        0 => &shared.word,
        own => &OWN[usize::from(own) - 1],
    }
}

/// Does what the controller says, until that is to quit.
fn work(shared: &Shared, number: usize) {
    let desk = &shared.desks[number];
    // SAFETY: no preconditions.
    desk.tid.store(unsafe { libc::gettid() } as u32, Ordering::Release);
    loop {
        let command = desk.command.load(Ordering::Acquire);
        if command == desk.returned.load(Ordering::Relaxed) {
            // SAFETY: no preconditions.
            unsafe { libc::sched_yield() };
            continue;
        }
        let [kind, a, b, c, d, e, f] =
            [0, 1, 2, 3, 4, 5, 6].map(|nth| desk.arguments[nth].load(Ordering::Relaxed));
        let result = match kind {
            STORE => {
                word(shared, a as u8).store(b as u32, Ordering::SeqCst);
                0
            }
            LOAD => i64::from(word(shared, a as u8).load(Ordering::SeqCst)),
            FUTEX => {
                // SAFETY: futex(2) on words that live as long as the process.
                let result = unsafe { libc::syscall(libc::SYS_futex, a, b, c, d, e, f) };
                if result < 0 {
                    -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(1))
                } else {
                    result
                }
            }
            _ => return desk.returned.store(command, Ordering::Release),
        };
        desk.result.store(result, Ordering::Relaxed);
        desk.returned.store(command, Ordering::Release);
    }
}

/// The arguments of an operation.
fn arguments(shared: &Shared, op: Op) -> [u64; 7] {
    let at = |of: u8| std::ptr::from_ref(word(shared, of)) as u64;
    let flag = |scope| if scope == Scope::Private { libc::FUTEX_PRIVATE_FLAG as u64 } else { 0 };
    let futex = |a, op: i32, scope, c: u8, d: u64, e, f: u64| {
        [FUTEX, a, op as u64 | flag(scope), c.into(), d, e, f]
    };
    match op {
        Op::Store(of, value) => [STORE, of.into(), value.into(), 0, 0, 0, 0],
        Op::Wait(of, expected, bits, scope) => {
            futex(at(of), libc::FUTEX_WAIT_BITSET, scope, expected, 0, 0, bits.into())
        }
        Op::Wake(of, count, bits, scope) => {
            futex(at(of), libc::FUTEX_WAKE_BITSET, scope, count, 0, 0, bits.into())
        }
        Op::Requeue { word, wake, requeue, target, expected: None, scope } => {
            futex(at(word), libc::FUTEX_REQUEUE, scope, wake, requeue.into(), at(target), 0)
        }
        Op::Requeue { word, wake, requeue, target, expected: Some(expected), scope } => futex(
            at(word),
            libc::FUTEX_CMP_REQUEUE,
            scope,
            wake,
            requeue.into(),
            at(target),
            expected.into(),
        ),
        Op::WakeOp { word, wake, other, set, compare, wake_other, scope } => {
            // FUTEX_OP_SET, FUTEX_OP_CMP_EQ.
            let change = u64::from(set) << 12 | u64::from(compare);
            futex(at(word), libc::FUTEX_WAKE_OP, scope, wake, wake_other.into(), at(other), change)
        }
        _ => unreachable!("not drawn"),
    }
}

struct Controller<'s> {
    shared: &'s Shared,
    /// The process of each thread, for /proc.
    pids: [u32; THREADS],
}

impl Controller<'_> {
    fn send(&self, thread: usize, arguments: [u64; 7]) {
        let desk = &self.shared.desks[thread];
        for (to, from) in desk.arguments.iter().zip(arguments) {
            to.store(from, Ordering::Relaxed);
        }
        desk.command.fetch_add(1, Ordering::Release);
    }

    fn has_returned(&self, thread: usize) -> bool {
        let desk = &self.shared.desks[thread];
        desk.returned.load(Ordering::Acquire) == desk.command.load(Ordering::Relaxed)
    }

    fn sleeps(&self, thread: usize) -> bool {
        let tid = self.shared.desks[thread].tid.load(Ordering::Relaxed);
        let stat = std::fs::read_to_string(format!("/proc/{}/task/{tid}/stat", self.pids[thread]))
            .unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
    }

    /// Waits until the thread has returned, or sleeps. True: it has returned.
    fn settled(&self, thread: usize) -> bool {
        let began = Instant::now();
        let mut asleep = 0;
        while began.elapsed() < LONG {
            if self.has_returned(thread) {
                return true;
            }
            // Twice, so that a thread which is about to wake is not taken for a sleeping one.
            asleep = if self.sleeps(thread) { asleep + 1 } else { 0 };
            if asleep == 3 {
                return self.has_returned(thread);
            }
            thread::sleep(Duration::from_micros(20));
        }
        panic!("thread {thread} neither returns nor sleeps");
    }

    fn result(&self, thread: usize) -> i64 {
        self.shared.desks[thread].result.load(Ordering::Relaxed)
    }

    fn call(&self, thread: usize, arguments: [u64; 7]) -> i64 {
        self.send(thread, arguments);
        assert!(self.settled(thread), "thread {thread} sleeps in a load or a store");
        self.result(thread)
    }

    /// Ends the sleep of a thread by a signal.
    fn interrupt(&self, thread: usize) {
        let tid = self.shared.desks[thread].tid.load(Ordering::Relaxed);
        while !self.has_returned(thread) {
            // SAFETY: a thread that exists; its handler does nothing.
            unsafe { libc::syscall(libc::SYS_tgkill, self.pids[thread], tid, signal()) };
            thread::sleep(Duration::from_micros(50));
        }
    }
}

fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 3
}

extern "C" fn nothing(_: libc::c_int) {}

#[test]
fn futexes() {
    let shared = share::<Shared>();
    // SAFETY: a handler that does nothing. Without SA_RESTART it ends a wait.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(signal(), &action, std::ptr::null_mut());
    }
    // SAFETY: the child uses shared memory and system calls only.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: no preconditions: it ends with its parent, and runs no destructors of that.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            OWN.iter().for_each(|own| own.store(0, Ordering::SeqCst));
            work(shared, 2);
            libc::_exit(0);
        }
    }
    let threads = [0, 1].map(|number| thread::spawn(move || work(shared, number)));
    let began = Instant::now();
    while shared.desks.iter().any(|desk| desk.tid.load(Ordering::Acquire) == 0) {
        assert!(began.elapsed() < LONG, "a thread does not begin");
        thread::yield_now();
    }
    let pid = std::process::id();
    let controller = Controller { shared, pids: [pid, pid, child as u32] };
    let mut numbers = Numbers(3);
    let programs = scaled(PROGRAMS);
    let mut counts = Counts::default();
    for program in 0..programs {
        compare(&controller, &mut numbers, program, &mut counts);
    }
    (0..THREADS).for_each(|thread| controller.send(thread, [QUIT, 0, 0, 0, 0, 0, 0]));
    threads.into_iter().for_each(|thread| thread.join().expect("a worker"));
    // SAFETY: a child of ours.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    let Counts { sleeps, wakes, moves, mismatches } = counts;
    assert!(
        [sleeps, wakes, moves, mismatches].iter().all(|&count| count > programs / 10),
        "little has happened"
    );
    agree(
        "futexes",
        programs,
        "random program of 16 operations by three threads of two processes",
        format_args!("{sleeps} sleeps, {wakes} wake-ups, {moves} moves, {mismatches} other values"),
    );
}

#[derive(Default)]
struct Counts {
    sleeps: u32,
    wakes: u32,
    moves: u32,
    mismatches: u32,
}

fn compare(controller: &Controller<'_>, numbers: &mut Numbers, program: u32, counts: &mut Counts) {
    let kernel = Kernel::of(Age::Private);
    let mut model = Futexes::<THREADS> {
        kernel,
        processes: PROCESS_OF,
        programs: [const { Vec::new() }; THREADS],
        mappings: MAPPINGS,
        store_buffers: false,
        timeouts: false,
    };
    let mut state = model.initial();
    for word in 0..WORDS as u64 {
        controller.call(0, [STORE, word, 0, 0, 0, 0, 0]);
        controller.call(2, [STORE, word, 0, 0, 0, 0, 0]);
    }
    let mut script = Vec::new();
    for _ in 0..OPERATIONS {
        let awake: Vec<usize> = (0..THREADS).filter(|&thread| !state.sleeps(thread)).collect();
        // One thread stays awake: it goes on with the program.
        let Some(&thread) = awake.get(numbers.below(awake.len().max(1))) else { break };
        let op = draw(numbers, awake.len() > 1);
        script.push((thread, op));
        let slept = [0, 1, 2].map(|thread| state.sleeps(thread));
        model.programs[thread].push(op);
        run_to_rest(&model, &mut state, thread as u8).expect("a correct model");
        controller.send(thread, arguments(controller.shared, op));
        // What it does to others is done when it has returned.
        controller.settled(thread);
        let told = || format!("program {program}: {script:?}");
        for (of, slept) in slept.into_iter().enumerate() {
            if !slept && of != thread {
                continue;
            }
            let returned = controller.settled(of);
            assert_eq!(
                returned,
                !state.sleeps(of),
                "T{of} sleeps in one of the two after {}",
                told()
            );
            if !returned {
                counts.sleeps += u32::from(of == thread);
                continue;
            }
            let expected = match state.answer(of) {
                Answer::None => 0,
                Answer::Count(count) => count.into(),
                Answer::Differs => -i64::from(libc::EAGAIN),
                other => panic!("{other:?}"),
            };
            if !matches!(op, Op::Store(..)) || of != thread {
                assert_eq!(controller.result(of), expected, "T{of}'s result after {}", told());
                counts.mismatches += u32::from(expected < 0);
            }
            counts.wakes += u32::from(slept);
        }
        counts.moves +=
            u32::from(matches!(op, Op::Requeue { .. }) && controller.result(thread) > 0);
    }
    // Sleeping threads are interrupted; their words are compared after that.
    (0..THREADS)
        .filter(|&thread| state.sleeps(thread))
        .for_each(|thread| controller.interrupt(thread));
    for (thread, process) in [(0, 0), (2, 1)] {
        for word in 0..WORDS {
            let value = controller.call(thread, [LOAD, word as u64, 0, 0, 0, 0, 0]);
            assert_eq!(
                value,
                i64::from(state.word(process, word)),
                "word {word} after program {program}: {script:?}"
            );
        }
    }
}

fn draw(numbers: &mut Numbers, may_wait: bool) -> Op {
    let mut below = |end| numbers.below(end) as u8;
    let scope = if below(3) == 0 { Scope::Shared } else { Scope::Private };
    let scope = if below(4) == 0 { Scope::Shared } else { scope };
    let bits = [0xff, 0xff, 0b01, 0b10][usize::from(below(4))];
    let (word, other, value) = (below(3), below(3), below(2));
    match below(12) {
        0..6 if may_wait => Op::Wait(word, if below(4) == 0 { value } else { 0 }, bits, scope),
        6 => Op::Store(word, value),
        7 => {
            let expected = if below(2) == 0 { Some(value) } else { None };
            Op::Requeue { word, wake: below(2), requeue: below(3), target: other, expected, scope }
        }
        8 => Op::Requeue {
            word,
            wake: below(2),
            requeue: 1 + below(2),
            target: other,
            expected: None,
            scope,
        },
        9 => Op::WakeOp {
            word,
            wake: below(3),
            other,
            set: value,
            compare: below(2),
            wake_other: below(3),
            scope,
        },
        _ => Op::Wake(word, below(3), bits, scope),
    }
}
