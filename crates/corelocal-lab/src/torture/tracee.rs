//! One thread under ptrace(2): breakpoints, registers, words of its memory.
//!
//! Invariants:
//! - The thread is stopped whenever a function here is called and whenever one returns `Ok`, except between `resume`
//!   and `wait`.
//! - A breakpoint that was hit is removed, and the thread is at the instruction that it replaced.
//! - Addresses are the tracer's. `distance` converts them to the tracee's, which runs the same file.
//! - All calls come from the thread that seized the tracee, as ptrace requires.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, pid_t};

use super::machine::{BREAKPOINT, Registers};

/// As many bytes as a breakpoint has.
type Bytes = [u8; BREAKPOINT.len()];

/// The type that libc's functions give a request.
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;
#[cfg(target_env = "musl")]
type Request = c_int;

/// A thread that has not stopped after this time hangs.
const LIMIT: Duration = Duration::from_secs(10);

/// The time between two checks whether the thread has stopped.
const PAUSE: Duration = Duration::from_micros(20);

/// The reason why a thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It reached the breakpoint at this address.
    Breakpoint(u64),
    /// It called for its tracer.
    Rendezvous,
}

/// The reason why a thread can no longer be used, as a sentence without its subject.
#[derive(Debug)]
pub struct Lost(pub String);

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Lost {
        Lost(format!("could not be controlled: {error}"))
    }
}

/// A thread under control.
pub struct Tracee {
    thread: pid_t,
    distance: u64,
    /// The bytes that each breakpoint replaced.
    planted: BTreeMap<u64, Bytes>,
}

impl Tracee {
    /// Takes control of a running thread. It continues until it stops by itself.
    ///
    /// # Errors
    /// Those of ptrace(2).
    pub fn seize(thread: pid_t, distance: u64) -> io::Result<Tracee> {
        let tracee = Tracee { thread, distance, planted: BTreeMap::new() };
        tracee.request(libc::PTRACE_SEIZE, 0, libc::PTRACE_O_EXITKILL as usize)?;
        Ok(tracee)
    }

    /// Sets a breakpoint at `address`.
    pub fn plant(&mut self, address: u64) -> Result<(), Lost> {
        if !self.planted.contains_key(&address) {
            let mut bytes = Bytes::default();
            bytes.copy_from_slice(BREAKPOINT);
            let replaced = self.exchange(address, bytes)?;
            self.planted.insert(address, replaced);
        }
        Ok(())
    }

    /// Removes the breakpoint at `address`.
    pub fn lift(&mut self, address: u64) -> Result<(), Lost> {
        if let Some(replaced) = self.planted.remove(&address) {
            self.exchange(address, replaced)?;
        }
        Ok(())
    }

    /// Removes all breakpoints.
    pub fn lift_all(&mut self) -> Result<(), Lost> {
        while let Some((&address, _)) = self.planted.first_key_value() {
            self.lift(address)?;
        }
        Ok(())
    }

    /// Continues the thread, with a signal if `signal` is not 0.
    pub fn resume(&self, signal: c_int) -> Result<(), Lost> {
        Ok(self.request(libc::PTRACE_CONT, 0, signal as usize)?)
    }

    /// Waits until the thread stops. Signals from other senders are delivered.
    pub fn wait(&mut self) -> Result<Stop, Lost> {
        loop {
            let signal = self.stopped()?;
            match signal {
                libc::SIGTRAP => {
                    let mut registers = self.registers()?;
                    let at = registers.trapped_at().wrapping_sub(self.distance);
                    let is_planted = self.planted.contains_key(&at);
                    if is_planted {
                        self.lift(at)?;
                        registers.back_to_breakpoint();
                    } else {
                        registers.behind_trap();
                    }
                    registers.set(self.thread)?;
                    return Ok(if is_planted { Stop::Breakpoint(at) } else { Stop::Rendezvous });
                }
                libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGABRT => {
                    return Err(Lost(format!("was killed by {}", signal_name(signal))));
                }
                other => self.resume(other)?,
            }
        }
    }

    /// Executes one instruction, after which a breakpoint may be set again.
    #[cfg(not(target_arch = "riscv64"))]
    pub fn step(&mut self) -> Result<(), Lost> {
        self.request(libc::PTRACE_SINGLESTEP, 0, 0)?;
        match self.stopped()? {
            libc::SIGTRAP => Ok(()),
            signal => Err(Lost(format!("was interrupted by {}", signal_name(signal)))),
        }
    }

    /// Does the same, by breakpoints wherever the thread may be afterwards.
    #[cfg(target_arch = "riscv64")]
    pub fn step(&mut self) -> Result<(), Lost> {
        let registers = self.registers()?;
        let at = registers.trapped_at();
        let mut bytes = [0; 16];
        for (word, place) in (0..).zip(bytes.chunks_exact_mut(8)) {
            // Nothing need follow the instruction.
            let word = self.word((at & !7) + 8 * word).unwrap_or_default();
            place.copy_from_slice(&word.to_le_bytes());
        }
        let next = super::machine::after(&bytes[(at & 7) as usize..], &registers);
        let next: Vec<u64> = next.iter().map(|at| at.wrapping_sub(self.distance)).collect();
        let is_new = |at: &&u64| !self.planted.contains_key(at);
        let new: Vec<u64> = next.iter().filter(is_new).copied().collect();
        for at in &new {
            self.plant(*at)?;
        }
        self.resume(0)?;
        let Stop::Breakpoint(reached) = self.wait()? else {
            return Err(Lost("left the instruction at which it was".to_owned()));
        };
        for at in &new {
            self.lift(*at)?;
        }
        if next.contains(&reached) && !new.contains(&reached) {
            self.plant(reached)
        } else {
            Ok(())
        }
    }

    /// Returns the thread's registers.
    pub fn registers(&self) -> Result<Registers, Lost> {
        Ok(Registers::of(self.thread)?)
    }

    /// Returns the word at an address of the tracee's own.
    pub fn word(&self, address: u64) -> Result<i64, Lost> {
        // glibc returns the word, and reports an error by `errno` only. SAFETY: errno is the calling thread's own.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: reads memory of the tracee only.
        let word = unsafe { libc::ptrace(libc::PTRACE_PEEKDATA, self.thread, address, 0) };
        let error = io::Error::last_os_error();
        if word == -1 && error.raw_os_error() != Some(0) { Err(error.into()) } else { Ok(word) }
    }

    /// Sets the word at an address of the tracee's own.
    pub fn set_word(&self, address: u64, word: i64) -> Result<(), Lost> {
        Ok(self.request(libc::PTRACE_POKEDATA, address as usize, word as usize)?)
    }

    /// Replaces bytes of code, and returns the old ones.
    fn exchange(&self, address: u64, new: Bytes) -> Result<Bytes, Lost> {
        let at = address.wrapping_add(self.distance);
        // The aligned word, which does not extend past the end of the page. A breakpoint of several bytes is aligned to as many.
        let (first, index) = (at & !7, (at & 7) as usize);
        let mut word = self.word(first)?.to_le_bytes();
        let place = &mut word[index..index + new.len()];
        let mut replaced = Bytes::default();
        replaced.copy_from_slice(place);
        place.copy_from_slice(&new);
        self.set_word(first, c_long::from_le_bytes(word))?;
        Ok(replaced)
    }

    /// Waits for the next stop and returns its signal.
    fn stopped(&self) -> Result<c_int, Lost> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let mut status = 0;
            // SAFETY: a valid place for the status.
            let waited = unsafe {
                libc::waitpid(self.thread, &raw mut status, libc::__WALL | libc::WNOHANG)
            };
            match waited {
                0 if Instant::now() > deadline => {
                    return Err(Lost(format!("did not come to an end in {} s", LIMIT.as_secs())));
                }
                0 => std::thread::sleep(PAUSE),
                -1 => return Err(io::Error::last_os_error().into()),
                _ if libc::WIFSTOPPED(status) => {
                    // An event of ptrace itself has a number above the signal's.
                    let event = status >> 16 != 0;
                    return Ok(if event { 0 } else { libc::WSTOPSIG(status) });
                }
                _ if libc::WIFSIGNALED(status) => {
                    let name = signal_name(libc::WTERMSIG(status));
                    return Err(Lost(format!("was killed by {name}")));
                }
                _ => return Err(Lost("ended".to_owned())),
            }
        }
    }

    /// Waits for the end of a thread that has been killed.
    pub fn bury(&self) {
        let mut status = 0;
        // SAFETY: a valid place for the status.
        while unsafe { libc::waitpid(self.thread, &raw mut status, libc::__WALL) } == self.thread
            && libc::WIFSTOPPED(status)
        {}
    }

    fn request(&self, request: Request, address: usize, data: usize) -> io::Result<()> {
        // SAFETY: `data` is a number; everything else concerns the tracee's memory.
        let result = unsafe { libc::ptrace(request, self.thread, address, data) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn signal_name(signal: c_int) -> String {
    match signal {
        libc::SIGSEGV => "SIGSEGV".to_owned(),
        libc::SIGBUS => "SIGBUS".to_owned(),
        libc::SIGILL => "SIGILL".to_owned(),
        libc::SIGFPE => "SIGFPE".to_owned(),
        libc::SIGABRT => "SIGABRT".to_owned(),
        libc::SIGTRAP => "SIGTRAP".to_owned(),
        libc::SIGKILL => "SIGKILL".to_owned(),
        other => format!("signal {other}"),
    }
}
