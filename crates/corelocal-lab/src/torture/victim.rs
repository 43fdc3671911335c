//! The process that is disturbed.
//!
//! The *target* thread performs one operation after the other and traps into its tracer in between. A signal makes it
//! react as the board says. The *rival*, the main thread, operates when it receives a byte on standard input. Orders
//! and observations are on a *board* in memory that a forked child shares.
//!
//! ```text
//!   tracer                          target                 rival
//!   orders on the board, resume  →  begin, observe
//!                                   rendezvous
//!   breakpoints, resume          →  operate
//!   byte on standard input       →                         operate, observe
//!                                ←                         byte on standard output
//!                                   rendezvous
//!   resume                       →  end, observe
//!                                   rendezvous
//! ```
//!
//! Invariants:
//! - The words of the board are written by the target while it runs, by the rival while the target is stopped, and by
//!   the tracer while both wait. So no word is read while another thread writes it.
//! - Standard output begins with one line: the address of `rendezvous`, that of the board, and the thread id of the
//!   target.

use std::io::{self, Read as _, Write as _};
use std::mem::offset_of;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};
use std::sync::mpsc;
use std::thread;

use corelocal::cid::{self, Busy, Cid, CpuId, Frozen};
use libc::{c_int, c_void};

use super::machine;
use super::registration::Area;
use super::workload::{Cells, Workload};

/// Orders and observations.
#[repr(C)]
pub struct Board {
    /// Order: the workload.
    workload: AtomicI64,
    /// Order: what the target does on a signal, a [`Reaction`].
    reaction: AtomicI64,
    /// The target's rseq area.
    area: AtomicI64,
    /// The object's content before the target's operation.
    before: Cells,
    /// The operands for this content.
    target: AtomicI64,
    other: AtomicI64,
    /// The observations.
    seen: Account,
    /// The observations of a forked child, and its exit status (waitpid(2)).
    child_seen: Account,
    child_status: AtomicI64,
    /// The address at which the signal interrupted the target.
    interrupted: AtomicI64,
}

/// The observations of a round.
#[repr(C)]
struct Account {
    /// The result of the operation in between, and of the look after it.
    given: AtomicI64,
    look: AtomicI64,
    /// The result of the target's operation.
    result: AtomicI64,
    /// The object's content at the end.
    end: Cells,
}

/// A word of the board, with the same name.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    Workload = offset_of!(Board, workload) as isize,
    Reaction = offset_of!(Board, reaction) as isize,
    Area = offset_of!(Board, area) as isize,
    Target = offset_of!(Board, target) as isize,
    Other = offset_of!(Board, other) as isize,
    Interrupted = offset_of!(Board, interrupted) as isize,
    ChildStatus = offset_of!(Board, child_status) as isize,
}

/// A part of the board with several words, with the same name.
#[derive(Clone, Copy, Debug)]
pub enum Words {
    Before = offset_of!(Board, before) as isize,
    Seen = offset_of!(Board, seen) as isize,
    ChildSeen = offset_of!(Board, child_seen) as isize,
}

impl Words {
    /// The offset of its words in an account.
    pub const GIVEN: usize = offset_of!(Account, given);
    pub const LOOK: usize = offset_of!(Account, look);
    pub const RESULT: usize = offset_of!(Account, result);
    pub const END: usize = offset_of!(Account, end);
}

/// The target's reaction to a signal.
#[derive(Clone, Copy, Debug)]
pub enum Reaction {
    /// The same operation on the same object.
    Operate = 1,
    /// A child performs it. Then both continue where the signal came.
    Fork = 2,
    /// It gives up its registration.
    Unregister = 3,
}

/// The signal that makes the target react.
pub const SIGNAL: c_int = libc::SIGUSR1;

/// The handler's context, since it has no arguments of its own.
struct Scene {
    workloads: Vec<Workload>,
    board: &'static Board,
    area: Option<Area>,
}

/// Set before the first signal, and never changed.
static SCENE: AtomicPtr<Scene> = AtomicPtr::new(std::ptr::null_mut());

/// Is disturbed until standard input ends. Called in the process that a [`super::Plan`] starts, with the same
/// workloads.
pub fn victim(workloads: &[Workload]) {
    let Some(board) = board() else { return };
    let (tell, told) = mpsc::channel();
    let (begin, begun) = mpsc::channel();
    let of_target = workloads.to_vec();
    thread::spawn(move || {
        let area = Area::of_this_thread();
        board.area.store(area.map_or(0, |area| area.address() as i64), Ordering::Relaxed);
        let scene: &'static Scene =
            Box::leak(Box::new(Scene { workloads: of_target, board, area }));
        // Release: partner is the Acquire in `react`.
        SCENE.store((&raw const *scene).cast_mut(), Ordering::Release);
        react_to_signals();
        // SAFETY: no arguments.
        let _ = tell.send(unsafe { libc::gettid() });
        // The tracer takes control before it sends the first byte.
        if begun.recv().is_ok() {
            target(scene);
        }
    });
    let Ok(thread) = told.recv() else { return };
    let mut out = io::stdout().lock();
    let at = rendezvous as extern "C" fn() as usize;
    let _ = writeln!(out, "{at} {} {thread}", &raw const *board as usize);
    let _ = out.flush();

    let mut input = io::stdin().lock();
    let mut byte = [0];
    let mut revoked = Vec::new();
    while input.read_exact(&mut byte).is_ok() {
        if byte[0] == BEGIN {
            let _ = begin.send(());
            continue;
        }
        let Some(workload) = workloads.get(board.workload.load(Ordering::Relaxed) as usize) else {
            return;
        };
        let done = match byte[0] {
            OPERATE => {
                board.seen.operate(workload, board);
                Ok(())
            }
            REVOKE => revoke(&mut revoked),
            _ => {
                revoked.clear();
                Ok(())
            }
        };
        if done.is_err() {
            revoked.clear();
            byte[0] = REFUSED;
        }
        if out.write_all(&byte).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// Order to the rival: let the target begin.
pub const BEGIN: u8 = b'b';
/// Order to the rival: operate.
pub const OPERATE: u8 = b'o';
/// Order to the rival: take all slots away from their ids, and give them back.
pub const REVOKE: u8 = b'r';
pub const GIVE_BACK: u8 = b'g';
/// The rival's answer in place of the order's own byte, if it was refused.
pub const REFUSED: u8 = b'x';

/// Freezes the slots of all ids.
fn revoke(revoked: &mut Vec<Frozen>) -> Result<(), Busy> {
    for slot in 0..cid::high_water::<Cid>() {
        revoked.push(cid::freeze(slot)?);
    }
    Ok(())
}

impl Account {
    /// Performs the operation in between.
    fn operate(&self, workload: &Workload, board: &Board) {
        let given = (workload.operate)(board.other.load(Ordering::Relaxed));
        self.given.store(given, Ordering::Relaxed);
        self.look.store((workload.look)(), Ordering::Relaxed);
    }
}

/// Performs operations until the process ends.
fn target(scene: &Scene) {
    let Scene { workloads, board, area } = scene;
    let process = std::process::id();
    loop {
        rendezvous();
        let number = board.workload.load(Ordering::Relaxed) as usize;
        let Some(workload) = workloads.get(number) else { return };
        // The operation finds a slot for its id, so that its first attempt can commit.
        cid::current::<Cid>();
        cid::current::<CpuId>();
        let before = (workload.begin)(workload.start);
        let operands = (workload.model.operands)(before.numbers());
        board.before.store(&before);
        board.target.store(operands.target, Ordering::Relaxed);
        board.other.store(operands.other, Ordering::Relaxed);
        rendezvous();
        let result = (workload.operate)(operands.target);
        let is_child = std::process::id() != process;
        let account = if is_child { &board.child_seen } else { &board.seen };
        account.result.store(result, Ordering::Relaxed);
        if !is_child {
            rendezvous();
        }
        account.end.store(&(workload.end)());
        if is_child {
            // SAFETY: ends the forked child, in which no other thread exists, without destructors.
            unsafe { libc::_exit(0) };
        }
        if let Some(area) = area {
            // Refused as long as the thread is registered, as expected.
            let _ = area.register();
        }
    }
}

/// Traps into the tracer.
#[inline(never)]
pub extern "C" fn rendezvous() {
    machine::trap();
}

fn react_to_signals() {
    // SAFETY: all-zero bytes are an action without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = react as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: `react` makes async-signal-safe calls only.
    unsafe { libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) };
}

extern "C" fn react(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // Acquire: partner is the Release in `victim`.
    // SAFETY: null, or a scene that is never freed.
    let Some(scene) = (unsafe { SCENE.load(Ordering::Acquire).as_ref() }) else { return };
    let board = scene.board;
    // SAFETY: the kernel passes a handler with SA_SIGINFO the context that it interrupted.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    board.interrupted.store(machine::interrupted(context), Ordering::Relaxed);
    let number = board.workload.load(Ordering::Relaxed) as usize;
    let Some(workload) = scene.workloads.get(number) else { return };
    match board.reaction.load(Ordering::Relaxed) {
        order if order == Reaction::Operate as i64 => board.seen.operate(workload, board),
        order if order == Reaction::Fork as i64 => {
            // SAFETY: no arguments; the child makes async-signal-safe calls only until it ends.
            match unsafe { libc::fork() } {
                0 => board.child_seen.operate(workload, board),
                child => {
                    let mut status = 0;
                    // SAFETY: a valid place for the status.
                    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
                    let status = if waited == child { i64::from(status) } else { -1 };
                    board.child_status.store(status, Ordering::Relaxed);
                }
            }
        }
        order if order == Reaction::Unregister as i64 => {
            if let Some(area) = scene.area {
                let _ = area.unregister();
            }
        }
        _ => {}
    }
}

/// Returns a board in memory that a forked child shares.
fn board() -> Option<&'static Board> {
    // SAFETY: a new mapping, at an address the kernel chooses.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Board>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    // SAFETY: the mapping is large enough, aligned to a page, zeroed, and never unmapped; zeroes
    // are valid atomics.
    (at != libc::MAP_FAILED).then(|| unsafe { &*at.cast::<Board>() })
}
