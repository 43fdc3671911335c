//! Processes made while other threads are in the middle of taking and giving back.
//!
//! A child of fork has one thread, and whatever the others had half done. It must be able to use the malloc
//! and to give back what its parent took. A child that shares its parent's memory, as vfork's does, uses
//! the parent's malloc while the parent's other threads run.
//!
//! Invariant: a child ends by `_exit`, and by an alarm if it waits for a thread that is not there.

use std::ffi::{CString, c_int, c_void};
use std::ptr;

use crate::Outcome;
use crate::cross::{on_threads, under_load};
use crate::object::{Object, Random};

/// Seconds until a child that waits is ended.
const PATIENCE: u32 = 30;

/// So many children, one after the other, while so many threads work.
pub fn run(children: u64, threads: u64) -> Outcome {
    under_load(threads, || {
        let mut random = Random::new(5);
        let inherited = objects(&mut random, 100)?;
        for nth in 0..children {
            // SAFETY: the child does what the module's text says and ends by `_exit`.
            match unsafe { libc::fork() } {
                -1 => return Err("no process can be forked".to_owned()),
                0 => end(child(nth, &inherited)),
                process => ended_well(process, nth)?,
            }
        }
        given(inherited)?;
        Ok(format!("{children} children"))
    })
}

/// In a child of fork.
fn child(nth: u64, inherited: &[Object]) -> Result<(), String> {
    // SAFETY: takes a number.
    unsafe { libc::alarm(PATIENCE) };
    let mut random = Random::new(nth);
    let own = objects(&mut random, 300)?;
    // What the parent took is the child's as well.
    given(inherited.to_vec())?;
    if nth % 8 == 1 {
        on_a_thread()?;
    }
    if nth % 8 == 2 {
        // SAFETY: as in `run`.
        match unsafe { libc::fork() } {
            -1 => return Err("no process can be forked".to_owned()),
            0 => end(given(own.clone())),
            process => ended_well(process, nth)?,
        }
    }
    given(own)
}

/// Takes and gives back on a thread of the child's. By libc's function: a thread of the standard library takes a lock of it,
/// which a starting thread of the parent may have held at the fork.
fn on_a_thread() -> Result<(), String> {
    extern "C" fn work(_: *mut c_void) -> *mut c_void {
        let outcome = objects(&mut Random::new(7), 200).and_then(given);
        outcome.err().map_or(ptr::null_mut(), |wrong| Box::into_raw(Box::new(wrong)).cast())
    }
    let (mut thread, mut wrong) = (0, ptr::null_mut());
    // SAFETY: places for results; the thread is joined, and its result is one of the two above.
    unsafe {
        if libc::pthread_create(&mut thread, ptr::null(), work, ptr::null_mut()) != 0 {
            return Err("no thread can be made".to_owned());
        }
        libc::pthread_join(thread, &mut wrong);
        match wrong.is_null() {
            true => Ok(()),
            false => Err(*Box::from_raw(wrong.cast::<String>())),
        }
    }
}

/// So many children on each of so many threads, which share the memory of the thread that makes them.
/// With `takes` they take and give back, which POSIX does not allow; else they use what is there.
pub fn shared(children: u64, threads: u64, takes: bool) -> Outcome {
    let work =
        |nth: u64| (0..children).try_for_each(|child| in_shared_memory(nth * 1000 + child, takes));
    if threads == 0 {
        return work(0).map(|()| format!("{children} children of one thread"));
    }
    under_load(2, || on_threads(threads, work).map(|()| format!("{} children", children * threads)))
}

struct Errand {
    seed: u64,
    takes: bool,
    /// The parent's, and then what the child left.
    objects: Vec<Object>,
    /// Nothing that was allocated, before: the child would give it back.
    outcome: Option<Result<(), String>>,
}

impl Errand {
    /// In the child.
    fn run(&mut self) -> Result<(), String> {
        let mut random = Random::new(self.seed);
        if !self.takes {
            for object in &mut self.objects {
                object.check(object.size)?;
                *object = Object::fill(object.at.cast(), object.size, random.next());
            }
            return Ok(());
        }
        objects(&mut random, 50).and_then(given)?;
        self.objects.extend(objects(&mut random, 20)?);
        Ok(())
    }
}

/// As vfork, on a stack of its own: the calling thread waits until the child has ended.
fn in_shared_memory(seed: u64, takes: bool) -> Result<(), String> {
    const STACK: usize = 256 << 10;
    extern "C" fn begin(errand: *mut c_void) -> c_int {
        // SAFETY: the errand below, whose thread waits.
        let errand = unsafe { &mut *errand.cast::<Errand>() };
        errand.outcome = Some(errand.run());
        // SAFETY: ends the child alone.
        unsafe { libc::_exit(0) }
    }
    let mut stack = vec![0_u128; STACK / 16];
    let objects = objects(&mut Random::new(seed + 7), 30)?;
    let mut errand = Errand { seed, takes, objects, outcome: None };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    // SAFETY: a stack of its own, and an errand that outlives the child, since CLONE_VFORK waits for it.
    let process = unsafe { libc::clone(begin, top, flags, ptr::from_mut(&mut errand).cast()) };
    if process < 0 {
        return Err("no process can be made".to_owned());
    }
    ended_well(process, seed)?;
    errand.outcome.unwrap_or_else(|| Err("it did nothing".to_owned()))?;
    // What the child took is the parent's.
    given(errand.objects)
}

/// So many programs, started by posix_spawn while threads work.
pub fn spawned(programs: u64, threads: u64) -> Outcome {
    let program = CString::new("/bin/true").map_err(|error| error.to_string())?;
    under_load(threads, || {
        for nth in 0..programs {
            let mut process = 0;
            let args = [program.as_ptr().cast_mut(), ptr::null_mut()];
            // SAFETY: a program, its arguments and environment, each list with its null at the end.
            let code = unsafe {
                libc::posix_spawn(
                    &mut process,
                    program.as_ptr(),
                    ptr::null(),
                    ptr::null(),
                    args.as_ptr(),
                    libc::environ.cast(),
                )
            };
            if code != 0 {
                return Err(format!("posix_spawn gave {code}"));
            }
            ended_well(process, nth)?;
        }
        Ok(format!("{programs} programs"))
    })
}

fn end(outcome: Result<(), String>) -> ! {
    let code = match outcome {
        Ok(()) => 0,
        Err(wrong) => {
            eprintln!("in a child: {wrong}");
            1
        }
    };
    // SAFETY: ends this process.
    unsafe { libc::_exit(code) }
}

fn ended_well(process: libc::pid_t, nth: u64) -> Result<(), String> {
    let mut status = 0;
    loop {
        // SAFETY: our child; the status is valid for writes.
        if unsafe { libc::waitpid(process, &mut status, 0) } == process {
            break;
        }
        if crate::api::errno() != libc::EINTR {
            return Err(format!("child {nth} cannot be waited for"));
        }
    }
    if libc::WIFSIGNALED(status) {
        return Err(match libc::WTERMSIG(status) {
            libc::SIGALRM => format!("child {nth} waits for ever"),
            signal => format!("child {nth} was ended by signal {signal}"),
        });
    }
    match libc::WEXITSTATUS(status) {
        0 => Ok(()),
        code => Err(format!("child {nth} ended with {code}")),
    }
}

/// So many new objects.
fn objects(random: &mut Random, count: usize) -> Result<Vec<Object>, String> {
    (0..count)
        .map(|_| {
            let size = random.size() % 200_000 + 1;
            // SAFETY: takes a number.
            let at = unsafe { libc::malloc(size) };
            if at.is_null() {
                return Err(format!("nothing for {size} bytes"));
            }
            Ok(Object::fill(at, size, random.next()))
        })
        .collect()
}

fn given(objects: Vec<Object>) -> Result<(), String> {
    for object in objects {
        object.check(object.size)?;
        // SAFETY: from `objects`, each once in each process.
        unsafe { libc::free(object.at.cast()) };
    }
    Ok(())
}
