//! A victim under control, and what must be known about it before it is disturbed: the sections that a workload
//! passes, and the addresses to which they store on each cpu.
//!
//! Invariants:
//! - Between rounds the target is at its last rendezvous, on the first of `cpus`, without any breakpoint. Between
//!   `begin` and `end` it is before, in or after its operation.
//! - The rival is confined to the first of `cpus`, and idle.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::history::{self, Away, Other, Seen};
use super::program::{Code, Program};
use super::tracee::{Lost, Stop, Tracee};
use super::victim::{self, Word, Words};
use super::workload::{Cells, Operands, Workload};
use super::{Obstacle, Plan, confine};

/// The maximum time to wait for an answer of the rival.
const LIMIT: Duration = Duration::from_secs(10);

/// Smaller numbers are not addresses: a section that does not commit leaves them in its register.
const LOWEST_ADDRESS: u64 = 4096;

/// A victim under control.
pub struct Session {
    child: Child,
    orders: ChildStdin,
    answers: mpsc::Receiver<u8>,
    /// The target thread.
    pub tracee: Tracee,
    thread: libc::pid_t,
    board: u64,
    distance: u64,
    cpus: Vec<usize>,
}

impl Session {
    /// Starts a victim that may use `cpus`.
    ///
    /// # Errors
    /// It cannot be started or controlled here.
    pub fn start(plan: &Plan<'_>, cpus: &[usize]) -> Result<Session, Obstacle> {
        let unable = |what: &str| Obstacle::Unable(format!("the process to be disturbed {what}"));
        let mut command = (plan.victim)();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn();
        let mut child = child.map_err(|error| unable(&format!("could not be started: {error}")))?;
        let (Some(orders), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(unable("has no standard input and output"));
        };
        let mut output = BufReader::new(output);
        let (at, board, thread) = match hello(&mut output) {
            Some(hello) => hello,
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(unable("ended before it began; is it the same program?"));
            }
        };
        let here = victim::rendezvous as extern "C" fn() as usize as u64;
        let distance = at.wrapping_sub(here);
        let process = child.id() as libc::pid_t;
        let tracee = Tracee::seize(thread, distance).map_err(|error| {
            let _ = child.kill();
            let _ = child.wait();
            Obstacle::Unable(format!(
                "ptrace is refused here ({error}): run it outside the container or under no other \
                 tracer, or allow it (docker run --cap-add SYS_PTRACE; \
                 sysctl kernel.yama.ptrace_scope=1)"
            ))
        })?;
        confine(process, &cpus[..1]);
        let answers = listen(output);
        let mut session = Session {
            child,
            orders,
            answers,
            tracee,
            thread,
            board,
            distance,
            cpus: cpus.to_vec(),
        };
        session.place(0);
        match session.start_target() {
            Ok(()) => Ok(session),
            Err(Lost(why)) => Err(unable(&why)),
        }
    }

    fn start_target(&mut self) -> Result<(), Lost> {
        self.orders.write_all(&[victim::BEGIN])?;
        self.rendezvous()
    }

    fn rendezvous(&mut self) -> Result<(), Lost> {
        match self.tracee.wait()? {
            Stop::Rendezvous => Ok(()),
            Stop::Breakpoint(_) => Err(Lost("stopped where nothing was planted".to_owned())),
        }
    }

    /// Begins a round. Afterwards the target is about to operate.
    pub fn begin(&mut self, workload: usize) -> Result<(), Lost> {
        self.write(Word::Workload, workload as i64)?;
        self.tracee.resume(0)?;
        self.rendezvous()
    }

    /// Ends the round, once the target has operated.
    pub fn end(&mut self) -> Result<(), Lost> {
        self.tracee.lift_all()?;
        self.tracee.resume(0)?;
        self.rendezvous()
    }

    /// Confines the target to one of the cpus. It moves when it continues.
    pub fn place(&self, cpu: usize) {
        confine(self.thread, &self.cpus[cpu..=cpu]);
    }

    /// Returns a word of the board.
    pub fn read(&self, word: Word) -> Result<i64, Lost> {
        self.tracee.word(self.board.wrapping_add(word as u64))
    }

    /// Sets a word of the board.
    pub fn write(&self, word: Word, value: i64) -> Result<(), Lost> {
        self.tracee.set_word(self.board.wrapping_add(word as u64), value)
    }

    /// Converts an address of the victim's into one of this process.
    pub fn here(&self, address: i64) -> u64 {
        (address as u64).wrapping_sub(self.distance)
    }

    /// Gives the rival an order while the target is stopped. False if it is refused.
    pub fn order_rival(&mut self, order: u8) -> Result<bool, Lost> {
        self.orders.write_all(&[order])?;
        let answer = self.answers.recv_timeout(LIMIT).map(|answer| answer == order);
        answer
            .map_err(|_| Lost(format!("'s rival did not come to an end in {} s", LIMIT.as_secs())))
    }

    /// Returns `true` if the target's rseq area is registered with the kernel.
    pub fn is_registered(&self) -> Result<bool, Lost> {
        // cpu_id is the upper half of the area's first word.
        Ok(self.tracee.word(self.read(Word::Area)? as u64)? >= 0)
    }

    /// Returns the operands of the target's current operation.
    pub fn operands(&self) -> Result<Operands, Lost> {
        Ok(Operands { target: self.read(Word::Target)?, other: self.read(Word::Other)? })
    }

    /// Returns the sections, as indexes, that one operation passes if each is aborted once.
    pub fn way(&mut self, workload: usize, program: &Program) -> Result<Vec<usize>, Lost> {
        self.begin(workload)?;
        for section in &program.sections {
            self.tracee.plant(section.start)?;
        }
        let mut way = Vec::new();
        self.tracee.resume(0)?;
        while let Stop::Breakpoint(at) = self.tracee.wait()? {
            way.extend(program.sections.iter().position(|section| section.start == at));
            self.tracee.resume(0)?;
        }
        self.end()?;
        Ok(way)
    }

    /// Performs one undisturbed operation on one of the cpus. Returns where its section stored.
    pub fn calibrate(
        &mut self,
        workload: usize,
        cpu: usize,
        way: &[&Code],
    ) -> Result<Option<u64>, Lost> {
        self.place(cpu);
        self.begin(workload)?;
        for section in way {
            self.tracee.plant(section.end)?;
        }
        self.tracee.resume(0)?;
        let mut last = None;
        while let Stop::Breakpoint(at) = self.tracee.wait()? {
            last = self.stored(at, way)?.or(last);
            self.tracee.resume(0)?;
        }
        self.end()?;
        self.place(0);
        Ok(last)
    }

    /// Returns the address to which the section stored that ends where the target was stopped. `None` if it did not
    /// store. The breakpoint is set again.
    pub fn stored(&mut self, end: u64, way: &[&Code]) -> Result<Option<u64>, Lost> {
        let registers = self.tracee.registers()?;
        self.tracee.step()?;
        self.tracee.plant(end)?;
        let section = way.iter().find(|section| section.end == end);
        let stored = section.and_then(|code| code.stored_to(&registers));
        Ok(stored.filter(|&address| address >= LOWEST_ADDRESS))
    }

    /// Returns the observations of the last round, by the child or in this process, with or without an operation in
    /// between.
    pub fn seen(&self, account: Words, with_other: bool) -> Result<Seen, Lost> {
        let word = |part: Words, at: usize| {
            self.tracee.word(self.board.wrapping_add(part as u64).wrapping_add(at as u64))
        };
        let cells = |part, at| Cells::load(|i| word(part, at + i * size_of::<i64>()));
        let other =
            Other { result: word(account, Words::GIVEN)?, look: word(account, Words::LOOK)? };
        Ok(Seen {
            before: cells(Words::Before, 0)?,
            result: word(account, Words::RESULT)?,
            other: with_other.then_some(other),
            end: cells(account, Words::END)?,
        })
    }

    /// Checks an undisturbed operation against the workload's model.
    pub fn plain(&self, workload: &Workload) -> Result<Option<String>, Lost> {
        let seen = self.seen(Words::Seen, false)?;
        Ok(history::complaint(&workload.model, self.operands()?, &seen, Away::default()))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // The process can be waited for only after its tracer has seen the target's end.
        self.tracee.bury();
        let _ = self.child.wait();
    }
}

fn hello(output: &mut BufReader<ChildStdout>) -> Option<(u64, u64, libc::pid_t)> {
    let mut line = String::new();
    output.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (at, board) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((at, board, words.next()?.parse().ok()?))
}

/// Returns a message for each byte that the rival writes.
fn listen(mut output: BufReader<ChildStdout>) -> mpsc::Receiver<u8> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut byte = [0];
        while output.read_exact(&mut byte).is_ok() && tell.send(byte[0]).is_ok() {}
    });
    told
}
