//! Concurrency ids of pinned threads that hand a cpu on by futexes, in a scripted order.
//!
//! ```text
//!   child     thread 0 starts the others, one by one, then sleeps; each other one is pinned to a cpu, and sleeps until
//!             it has its turn. The one that runs on a cpu reads its id in a loop, without system calls.
//!   parent    after each event all ids are those of the model
//! ```
//! Kernels from 6.4 to 6.18 look for unused ids every 100 ms. So each event is given time for that, and each thread
//! sleeps for a moment afterwards. The model does the same: it clears the ids of idle cpus, marks those that are not
//! below the number in use, which is one at most, and switches. A thread that was off its cpu for so long that its id
//! may have been cleared meanwhile makes the script void: it is begun again.

use std::io::Write as _;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal_lab::sim::cid::{BEGIN, Cids, EXIT, FORK, Policy, SWITCH, State, V6_3, V6_4, V7_0};
use corelocal_lab::sim::plan;
use corelocal_lab::sim::random::{Numbers, run_to_rest};
use corelocal_lab::sim::{Costs, Model, Step};

use crate::common::{Zeroed, agree, allowed, confine, release, scaled, share};

const EVENTS: u32 = 20;
/// Unused ids are found within two periods of 100 ms.
const COMPACTION: Duration = Duration::from_millis(350);
/// Off a cpu for longer, a thread may find its id cleared.
const LATE: Duration = Duration::from_millis(60);
const ATTEMPTS: u32 = 10;
const LONG: Duration = Duration::from_secs(20);
/// Threads, and cpus: on machines with more it makes no difference how many more.
const MOST: usize = 9;
const CPUS: usize = 8;
const IDLE: u8 = u8::MAX;

// Commands.
const SLEEP: u32 = 1;
const QUIT: u32 = 2;
/// To sleep for a moment: the switch gives a marked id back.
const NAP: u32 = 3;
/// Plus the number of a thread, which has its turn.
const HAND_ON: u32 = 100;

struct Desk {
    /// 1: it runs. A futex.
    turn: AtomicU32,
    command: AtomicU32,
    /// Counts its readings.
    beat: AtomicU32,
    id: AtomicU32,
    is_ready: AtomicU32,
    tid: AtomicU32,
}

/// What the two processes share.
struct Shared {
    desks: [Desk; MOST],
    /// The cpu of each thread.
    pins: [AtomicU32; MOST],
    threads: AtomicU32,
    /// A thread was off its cpu for long.
    is_late: AtomicU32,
}

// SAFETY: it consists of atomics.
unsafe impl Zeroed for Shared {}

fn wait(word: &AtomicU32, value: u32) {
    while word.load(Ordering::Acquire) == value {
        // SAFETY: futex(2) on a word that lives as long as the process.
        unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, null_mut::<u8>())
        };
    }
}

fn set(word: &AtomicU32) {
    word.store(1, Ordering::Release);
    // SAFETY: futex(2) on a word that lives as long as the process.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Notes if much time has passed since `last`, which is now.
fn note_delay(shared: &Shared, last: &mut Instant) {
    let now = Instant::now();
    if now - *last > LATE {
        shared.is_late.store(1, Ordering::Relaxed);
    }
    *last = now;
}

/// Reads the id of the thread until it is told to do something else. False: to end.
fn has_turn(shared: &Shared, number: usize) -> bool {
    let desk = &shared.desks[number];
    let mut last = Instant::now();
    loop {
        note_delay(shared, &mut last);
        desk.id.store(corelocal::rseq::cid(), Ordering::Relaxed);
        desk.beat.fetch_add(1, Ordering::Release);
        match desk.command.load(Ordering::Acquire) {
            0 => std::hint::spin_loop(),
            QUIT => return false,
            NAP => {
                desk.command.store(0, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
            command => {
                desk.command.store(0, Ordering::Relaxed);
                desk.turn.store(0, Ordering::Release);
                if command >= HAND_ON {
                    set(&shared.desks[(command - HAND_ON) as usize].turn);
                }
                return true;
            }
        }
    }
}

/// Whether a thread of this process sleeps. Without a heap: also in a forked child.
fn is_asleep(process: &str, desk: &Desk) -> bool {
    let mut path = [0_u8; 64];
    let tid = desk.tid.load(Ordering::Acquire);
    if write!(&mut path[..63], "/proc/{process}/task/{tid}/stat").is_err() {
        return false;
    }
    let mut stat = [0_u8; 256];
    // SAFETY: a path that ends in a zero byte; room for as many bytes.
    let len = unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        let len = libc::read(file, stat.as_mut_ptr().cast(), stat.len());
        libc::close(file);
        len
    };
    // The state follows the name, which ends with the last parenthesis.
    let stat = &stat[..len.max(0) as usize];
    let end = stat.iter().rposition(|&byte| byte == b')');
    end.is_some_and(|end| stat.get(end + 2) == Some(&b'S'))
}

struct Begin {
    shared: &'static Shared,
    number: usize,
}

extern "C" fn worker(begin: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: a `Begin` that the first thread keeps until this one is ready.
    let Begin { shared, number } = unsafe { begin.cast::<Begin>().read() };
    confine(&[shared.pins[number].load(Ordering::Relaxed)]);
    let desk = &shared.desks[number];
    // SAFETY: no preconditions.
    desk.tid.store(unsafe { libc::gettid() } as u32, Ordering::Release);
    set(&desk.is_ready);
    loop {
        wait(&desk.turn, 0);
        if !has_turn(shared, number) {
            return null_mut();
        }
    }
}

/// The child's first thread.
fn first(shared: &'static Shared, cpus: &[u32]) {
    // The map may use them all.
    confine(cpus);
    confine(&cpus[..1]);
    let mut last = Instant::now();
    for number in 1..shared.threads.load(Ordering::Relaxed) as usize {
        let mut begin = Begin { shared, number };
        let mut id = 0;
        // SAFETY: `begin` lives until the thread is ready.
        let error = unsafe {
            libc::pthread_create(&mut id, std::ptr::null(), worker, (&raw mut begin).cast())
        };
        if error != 0 {
            return;
        }
        wait(&shared.desks[number].is_ready, 0);
        while !is_asleep("self", &shared.desks[number]) {
            thread::sleep(Duration::from_micros(200));
        }
    }
    note_delay(shared, &mut last);
    set(&shared.desks[0].is_ready);
    has_turn(shared, 0);
    wait(&shared.desks[0].turn, 0);
}

/// The model, driven by the same events.
trait Replay {
    fn switch(&mut self, cpu: usize, task: Option<usize>);
    fn fork(&mut self, task: usize);
    fn exit(&mut self, cpu: usize);
    fn compact(&mut self);
    fn ids(&self, cpus: usize) -> Vec<Option<(usize, Option<u16>)>>;
}

struct Cpus<P: Policy<MOST, CPUS>> {
    model: Cids<P, MOST, CPUS>,
    state: State<MOST, CPUS>,
}

impl<P: Policy<MOST, CPUS>> Cpus<P> {
    fn take(&mut self, cpu: usize, what: u8, with: u8) {
        let step = Step::may(cpu as u8, what).with(with);
        self.model.take(&mut self.state, step, &mut Costs::default()).expect("a correct model");
        run_to_rest(&self.model, &mut self.state, cpu as u8).expect("a correct model");
    }

    /// Lets a task that runs on another cpu, or on this one, look at the id of this cpu.
    fn look(&mut self, cpu: usize) {
        let looks =
            |step: &Step| (BEGIN..SWITCH).contains(&step.what) && usize::from(step.with) == cpu;
        let mut steps = Vec::new();
        (0..CPUS).for_each(|scanner| self.model.steps_of(&self.state, scanner as u8, &mut steps));
        if let Some(step) = steps.into_iter().find(looks) {
            self.take(step.actor.into(), step.what, step.with);
        }
    }
}

impl<P: Policy<MOST, CPUS>> Replay for Cpus<P> {
    fn switch(&mut self, cpu: usize, task: Option<usize>) {
        self.take(cpu, SWITCH, task.map_or(IDLE, |task| task as u8));
    }

    fn fork(&mut self, task: usize) {
        self.take(0, FORK, task as u8);
    }

    fn exit(&mut self, cpu: usize) {
        self.take(cpu, EXIT, 0);
    }

    fn compact(&mut self) {
        let running = self.model.running(&self.state);
        (0..CPUS).filter(|&cpu| running[cpu].is_none()).for_each(|cpu| self.look(cpu));
        let count = self.state.ids_in_use(0);
        for cpu in 0..CPUS {
            if self.state.id_of_cpu(0, cpu).is_some_and(|id| u32::from(id) >= count) {
                self.look(cpu);
            }
        }
        for (cpu, running) in running.into_iter().enumerate() {
            if let Some((task, _)) = running {
                self.switch(cpu, None);
                self.switch(cpu, Some(task));
            }
        }
    }

    fn ids(&self, cpus: usize) -> Vec<Option<(usize, Option<u16>)>> {
        self.model.running(&self.state)[..cpus].to_vec()
    }
}

fn of<P: Policy<MOST, CPUS> + 'static>(policy: P, cpus: u8, possible: u8) -> Box<dyn Replay> {
    let model = Cids::<P, MOST, CPUS> {
        policy,
        maps: [0; MOST],
        tasks: 1,
        exits: true,
        running: true,
        allowed: cpus,
        confined: cpus,
        possible,
    };
    Box::new(Cpus { state: model.initial(), model })
}

#[test]
fn ids_handed_on() {
    let told = "ids_handed_on";
    if corelocal::cid::policy() != corelocal::cid::Policy::MmCid {
        return eprintln!(
            "skipped: {told}: this kernel has no concurrency ids, or they are not used"
        );
    }
    let possible = corelocal::sys::Caps::get().topology.possible.set.count().min(CPUS) as u8;
    let mut cpus = allowed();
    cpus.truncate(if cpus.len() >= 4 { 4 } else { 2 });
    if cpus.len() < 2 {
        return eprintln!("skipped: {told}: needs 2 cpus");
    }
    let (major, minor) = release();
    let policy = plan::Policy::of(major, minor);
    let lazy = V6_4 { prefers_recent: false, waits: true, fault: None };
    let cpu_count = cpus.len() as u8;
    let new = || match policy {
        plan::Policy::LowestFree => of(V6_3 { keeps_twice: false }, cpu_count, possible),
        plan::Policy::Lazy => of(lazy, cpu_count, possible),
        plan::Policy::Recent => of(V6_4 { prefers_recent: true, ..lazy }, cpu_count, possible),
        _ => of(V7_0 { threshold: None, fault: None }, cpu_count, possible),
    };
    let mut totals = [0; 2];
    // As many threads as cpus, besides the first one, and twice as many.
    for times in [1, 2] {
        let run = || {
            let model = new();
            let is_timed = matches!(policy, plan::Policy::Lazy | plan::Policy::Recent);
            let mut script = Script::begin(model, &cpus, times * cpus.len(), is_timed)?;
            let mut numbers = Numbers(11 + times as u64);
            (0..scaled(EVENTS)).try_for_each(|_| script.event(&mut numbers))?;
            Ok::<_, Late>([script.history.len(), script.changes])
        };
        let Some([events, changes]) = (0..ATTEMPTS).find_map(|_| run().ok()) else {
            return eprintln!(
                "skipped: {told}: threads were kept off their cpus for over {LATE:?}"
            );
        };
        totals = [totals[0] + events, totals[1] + changes];
    }
    agree(
        "ids of pinned threads, handed on",
        totals[0] as u32,
        "random event: a thread wakes, sleeps, hands its cpu on, or exits",
        format_args!("{} changes of ids on {} cpus", totals[1], cpus.len()),
    );
}

/// A thread was off its cpu for long: ids may have changed meanwhile.
struct Late;

struct Script {
    shared: &'static Shared,
    child: libc::pid_t,
    model: Box<dyn Replay>,
    /// The thread that runs on each cpu, and those that sleep.
    running: Vec<Option<usize>>,
    asleep: Vec<Vec<usize>>,
    history: Vec<String>,
    ids: Vec<Option<u32>>,
    changes: usize,
    /// Unused ids are cleared after a time.
    is_timed: bool,
}

impl Script {
    /// Starts the child, and the model beside it.
    fn begin(
        mut model: Box<dyn Replay>,
        cpus: &[u32],
        workers: usize,
        is_timed: bool,
    ) -> Result<Script, Late> {
        let shared = share::<Shared>();
        shared.threads.store(workers as u32 + 1, Ordering::Relaxed);
        let cpu_of = |thread: usize| (thread - 1) % cpus.len();
        (1..=workers).for_each(|thread| {
            shared.pins[thread].store(cpus[cpu_of(thread)], Ordering::Relaxed);
        });
        // Where the child begins.
        let before = allowed();
        confine(&cpus[..1]);
        // SAFETY: the child makes system calls, starts threads, and uses shared memory.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
        if child == 0 {
            // SAFETY: no preconditions: it ends with its parent.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                first(shared, cpus);
                libc::_exit(1);
            }
        }
        confine(&before);
        for thread in 1..=workers {
            let cpu = cpu_of(thread);
            model.fork(thread);
            model.switch(0, Some(thread));
            if cpu != 0 {
                model.switch(0, None);
                model.switch(cpu, Some(thread));
                model.switch(cpu, None);
            }
            model.switch(0, Some(0));
        }
        let asleep = (0..cpus.len())
            .map(|cpu| (1..=workers).filter(|&thread| cpu_of(thread) == cpu).collect())
            .collect();
        let mut running = vec![None; cpus.len()];
        running[0] = Some(0);
        let (history, ids) = (Vec::new(), vec![None; cpus.len()]);
        let mut script =
            Script { shared, child, model, running, asleep, history, ids, changes: 0, is_timed };
        script.wait_for(|shared| shared.desks[0].is_ready.load(Ordering::Acquire) == 1);
        script.compare("the start".into())?;
        // The first thread sleeps for ever, and another one has its turn.
        let next = script.asleep[0].remove(0);
        script.hand_on(0, next)?;
        Ok(script)
    }

    fn wait_for(&self, is_so: impl Fn(&Shared) -> bool) {
        let began = Instant::now();
        while !is_so(self.shared) {
            assert!(began.elapsed() < LONG, "the child hangs after {:?}", self.history);
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Waits until ids have settled: then all are those of the model.
    fn compare(&mut self, event: String) -> Result<(), Late> {
        self.history.push(event);
        let child = self.child.to_string();
        for &sleeper in self.asleep.iter().flatten() {
            self.wait_for(|shared| is_asleep(&child, &shared.desks[sleeper]));
        }
        thread::sleep(COMPACTION);
        self.model.compact();
        for &thread in self.running.iter().flatten() {
            let Desk { command, beat, .. } = &self.shared.desks[thread];
            command.store(NAP, Ordering::Release);
            self.wait_for(|_| command.load(Ordering::Acquire) == 0);
            let settled = beat.load(Ordering::Acquire).wrapping_add(2);
            self.wait_for(|_| beat.load(Ordering::Acquire).wrapping_sub(settled) < u32::MAX / 2);
        }
        let ids = self.running.iter().map(|thread| {
            thread.map(|thread| (thread, self.shared.desks[thread].id.load(Ordering::Relaxed)))
        });
        let kernel: Vec<_> = ids.collect();
        let model = self.model.ids(self.running.len());
        let model: Vec<_> = model
            .into_iter()
            .map(|running| running.map(|(task, id)| (task, id.map_or(u32::MAX, u32::from))))
            .collect();
        if self.is_timed && self.shared.is_late.load(Ordering::Relaxed) != 0 {
            return Err(Late);
        }
        assert_eq!(
            kernel, model,
            "thread and id of each cpu, kernel and model, after {:?}",
            self.history
        );
        for (cpu, running) in kernel.into_iter().enumerate() {
            let id = running.map(|(_, id)| id);
            self.changes += usize::from(id.is_some() && id != self.ids[cpu]);
            self.ids[cpu] = id.or(self.ids[cpu]);
        }
        Ok(())
    }

    fn hand_on(&mut self, cpu: usize, next: usize) -> Result<(), Late> {
        let now = self.running[cpu].replace(next).expect("a thread runs on this cpu");
        if now != 0 {
            self.asleep[cpu].push(now);
        }
        self.shared.desks[now].command.store(HAND_ON + next as u32, Ordering::Release);
        self.model.switch(cpu, Some(next));
        self.compare(format!("cpu {cpu}: {now} to {next}"))
    }

    fn event(&mut self, numbers: &mut Numbers) -> Result<(), Late> {
        let busy: Vec<usize> =
            (0..self.running.len()).filter(|&cpu| self.running[cpu].is_some()).collect();
        let cpu = numbers.below(self.running.len());
        let sleeper = (!self.asleep[cpu].is_empty()).then(|| numbers.below(self.asleep[cpu].len()));
        match (self.running[cpu], sleeper) {
            (Some(now), _) if busy.len() > 1 && numbers.below(3) == 0 => {
                self.running[cpu] = None;
                let quits = numbers.below(4) == 0;
                let command = if quits { QUIT } else { SLEEP };
                self.shared.desks[now].command.store(command, Ordering::Release);
                if quits {
                    self.model.exit(cpu);
                } else {
                    self.asleep[cpu].push(now);
                    self.model.switch(cpu, None);
                }
                self.compare(format!("cpu {cpu}: {now} {}", if quits { "exits" } else { "sleeps" }))
            }
            (Some(_), Some(nth)) => {
                let next = self.asleep[cpu].remove(nth);
                self.hand_on(cpu, next)
            }
            (None, Some(nth)) => {
                let next = self.asleep[cpu].remove(nth);
                self.running[cpu] = Some(next);
                set(&self.shared.desks[next].turn);
                self.model.switch(cpu, Some(next));
                self.compare(format!("cpu {cpu}: {next} wakes"))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // SAFETY: a child of ours, which has not been waited for.
        unsafe {
            libc::kill(self.child, libc::SIGKILL);
            libc::waitpid(self.child, null_mut(), 0);
        }
    }
}
