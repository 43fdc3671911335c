//! Answers questions about a program from its files, in a child process.
//!
//! Libraries that read debug information recurse as deep as it is nested, and their time and memory are not bounded by
//! its size. A file that another user may write to is therefore read in a child, which may end: then the rest is
//! answered without such files.
//!
//! Invariants:
//! - The child has at most [`CPU_SECONDS`] of processor time and [`MEMORY`] bytes, and [`PATIENCE`] from its first
//!   question to its last answer.
//! - What the child says is taken for the bytes of a stranger: each length is checked before anything is made of it,
//!   and all answers have at most [`MOST_ANSWERED`] bytes.
//! - A child is killed with its [`Aside`], which waits [`AFTER_KILL`] for it at most: what waits for a FUSE server that
//!   does not answer ends when that server does.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::local::{Local, Trust};
use super::unwind::Registers;
use super::{Call, Files, Frame, Function, MOST_FRAMES};

const CPU_SECONDS: libc::rlim_t = 20;
/// Beyond what this process has; three times what may be copied.
const MEMORY: libc::rlim_t = 3 << 30;
/// Files are mapped, too.
const ADDRESSES: libc::rlim_t = 64 << 30;
const STACK: libc::rlim_t = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(120);
const AFTER_KILL: Duration = Duration::from_secs(1);

const MOST_ANSWERED: u64 = 256 << 20;
/// Of a question; a stack may be as long as a file says.
const LONGEST_QUESTION: u64 = 1 << 32;

const CALLS: u64 = 1;
const FRAME: u64 = 2;
const VARIABLE: u64 = 3;
const LEFT_OUT: u64 = 4;

/// A process beside this one.
pub struct Aside<'a> {
    files: &'a Files,
    state: State,
}

enum State {
    NotBegun,
    Runs(Child),
    Ended,
}

impl<'a> Aside<'a> {
    /// The child starts with the first question.
    pub fn new(files: &'a Files) -> Aside<'a> {
        Aside { files, state: State::NotBegun }
    }

    /// Whether there are no more answers.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// As [`Local::calls`]; nothing if there is no answer.
    pub fn calls(&mut self, registers: Registers, stack: &[u64]) -> Option<Vec<Call>> {
        let mut question = Vec::with_capacity(8 + stack.len());
        question.extend(registers.values());
        question.extend(stack);
        self.ask(CALLS, &question, |answer| {
            let count = answer.number()?;
            (count <= MOST_FRAMES as u64).then_some(())?;
            (0..count)
                .map(|_| Some(Call { at: answer.number()?, inside: answer.number()? }))
                .collect()
        })
    }

    /// As [`Local::frame`].
    pub fn frame(&mut self, call: Call) -> Option<Frame> {
        let files = &self.files.files;
        self.ask(FRAME, &[call.at, call.inside], |answer| {
            let file = answer.optional(Answer::number)?;
            let file = match file {
                Some(file) => Some(files.get(usize::try_from(file).ok()?)?.path.clone()),
                None => None,
            };
            let mut functions = Vec::new();
            while !answer.0.is_empty() {
                let name = answer.optional(Answer::shared)?;
                functions.push(Function { name, source: answer.optional(Answer::shared)? });
            }
            (!functions.is_empty()).then_some(Frame { address: call.at, file, functions })
        })
    }

    /// As [`Local::variable_at`].
    pub fn variable_at(&mut self, address: u64) -> Option<Option<(String, u64)>> {
        self.ask(VARIABLE, &[address], |answer| {
            answer.optional(|answer| Some((answer.text()?.to_owned(), answer.number()?)))
        })
    }

    /// As [`Local::left_out`]; nothing before the first question.
    pub fn left_out(&mut self) -> Vec<usize> {
        if !matches!(self.state, State::Runs(_)) {
            return Vec::new();
        }
        let most = self.files.files.len();
        let left_out = self.ask(LEFT_OUT, &[], |answer| {
            let mut files = Vec::new();
            while !answer.0.is_empty() {
                let file = usize::try_from(answer.number()?).ok()?;
                files.push(Some(file).filter(|file| *file < most)?);
            }
            Some(files)
        });
        left_out.unwrap_or_default()
    }

    fn ask<T>(
        &mut self,
        kind: u64,
        question: &[u64],
        read: impl FnOnce(&mut Answer<'_>) -> Option<T>,
    ) -> Option<T> {
        if let State::NotBegun = self.state {
            let files = self.files;
            let child = Child::start(PATIENCE, |socket| serve(files, socket));
            self.state = child.map_or(State::Ended, State::Runs);
        }
        let State::Runs(child) = &mut self.state else { return None };
        let answer = child.ask(kind, question).ok();
        let told = answer.as_ref().and_then(|answer| {
            let mut answer = Answer(answer);
            read(&mut answer).filter(|_| answer.0.is_empty())
        });
        if told.is_none() {
            self.state = State::Ended;
        }
        told
    }
}

/// A child process that answers questions.
pub struct Child {
    process: libc::pid_t,
    /// Names it even where it was waited for, as the kernel does if SIGCHLD is ignored, and its number is another's.
    handle: Option<OwnedFd>,
    socket: UnixStream,
    /// Until when it may answer.
    pub until: Instant,
    answered: u64,
}

impl Child {
    /// One that does this, with limits; it answers for so long.
    pub fn start(
        patience: Duration,
        serve: impl FnOnce(UnixStream) -> io::Result<()>,
    ) -> io::Result<Child> {
        let (socket, theirs) = UnixStream::pair()?;
        // SAFETY: the child has this thread only. Allocation works in it, as the C libraries' and corelocal's mallocs
        // keep theirs usable across a fork. It takes no other lock that another thread may have held: it opens files,
        // reads them and writes to its socket. Should it block all the same, it is ended when it is out of time.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(socket);
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    limit_this_process()?;
                    serve(theirs)
                }));
                // SAFETY: no preconditions; nothing of the parent is flushed or dropped twice.
                unsafe { libc::_exit(0) }
            }
            process => {
                let until = Instant::now() + patience;
                Ok(Child { process, handle: handle_of(process), socket, until, answered: 0 })
            }
        }
    }

    fn ask(&mut self, kind: u64, question: &[u64]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(16 + 8 * question.len());
        for number in [kind, question.len() as u64].iter().chain(question) {
            bytes.extend(number.to_le_bytes());
        }
        self.send(&bytes)?;
        let mut length = [0; 8];
        self.receive(&mut length)?;
        let length = u64::from_le_bytes(length);
        self.answered = self.answered.saturating_add(length);
        if self.answered > MOST_ANSWERED {
            return Err(io::Error::other("the answers are too long"));
        }
        let mut answer = vec![0; length as usize];
        self.receive(&mut answer)?;
        Ok(answer)
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    pub fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.socket.set_write_timeout(Some(self.left()?))?;
            let (start, len) = (bytes.as_ptr().cast(), bytes.len());
            // SAFETY: the bytes are there. Without the flag the end of the child would be a SIGPIPE here.
            let sent =
                unsafe { libc::send(self.socket.as_raw_fd(), start, len, libc::MSG_NOSIGNAL) };
            match usize::try_from(sent) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// The descriptor of the socket, which reads for as long as is left.
    pub fn socket_for_reading(&self) -> io::Result<RawFd> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        Ok(self.socket.as_raw_fd())
    }

    pub fn receive(&mut self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.socket.set_read_timeout(Some(self.left()?))?;
            match self.socket.read(bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => bytes = &mut bytes[len..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Nothing on a kernel without such descriptors.
fn handle_of(process: libc::pid_t) -> Option<OwnedFd> {
    // SAFETY: numbers only.
    let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    let handle = i32::try_from(handle).ok().filter(|handle| *handle >= 0)?;
    // SAFETY: a new descriptor, which nothing else owns.
    Some(unsafe { OwnedFd::from_raw_fd(handle) })
}

impl Drop for Child {
    fn drop(&mut self) {
        match &self.handle {
            Some(handle) => {
                let handle = handle.as_raw_fd();
                let info = std::ptr::null::<libc::siginfo_t>();
                // SAFETY: an open descriptor of a process, and no information.
                unsafe {
                    libc::syscall(libc::SYS_pidfd_send_signal, handle, libc::SIGKILL, info, 0)
                };
            }
            // SAFETY: a child that nothing else waits for, so that its number is not used again before, unless SIGCHLD
            // is ignored on a kernel before 5.3.
            None => unsafe {
                libc::kill(self.process, libc::SIGKILL);
            },
        }
        let until = Instant::now() + AFTER_KILL;
        // SAFETY: no status is asked for. Of a process that is no child it is an error.
        while unsafe { libc::waitpid(self.process, std::ptr::null_mut(), libc::WNOHANG) } == 0
            && Instant::now() < until
        {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What a child said, and not yet read.
struct Answer<'a>(&'a [u8]);

impl Answer<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn text(&mut self) -> Option<&str> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn shared(&mut self) -> Option<Arc<str>> {
        self.text().map(Arc::from)
    }

    fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.number()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }
}

/// What a child is about to say.
#[derive(Default)]
struct Said(Vec<u8>);

impl Said {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: Option<&str>) {
        self.number(u64::from(text.is_some()));
        if let Some(text) = text {
            self.number(text.len() as u64);
            self.0.extend(text.as_bytes());
        }
    }
}

/// In the child: fewer resources, and no messages.
fn limit_this_process() -> io::Result<()> {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Vec<u64> = sizes.split(' ').filter_map(|size| size.trim().parse().ok()).collect();
    // SAFETY: no preconditions.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let used = |nth: usize| pages.get(nth).unwrap_or(&0).saturating_mul(page) as libc::rlim_t;
    let limits = [
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_CPU, CPU_SECONDS),
        (libc::RLIMIT_STACK, STACK),
        (libc::RLIMIT_AS, used(0).saturating_add(ADDRESSES)),
        (libc::RLIMIT_DATA, used(5).saturating_add(MEMORY)),
    ];
    for (resource, most) in limits {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a limit to write to.
        if unsafe { libc::getrlimit(resource, &mut limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let most = most.min(limit.rlim_max);
        limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: a limit to read.
        if unsafe { libc::setrlimit(resource, &limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
    for stream in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: two descriptors; the streams are this child's own.
        unsafe { libc::dup2(nowhere.as_raw_fd(), stream) };
    }
    Ok(())
}

/// In the child: answers until the parent has no more questions.
fn serve(files: &Files, mut socket: UnixStream) -> io::Result<()> {
    let local = Local::new(files, Trust::Anybody);
    loop {
        let [kind, count] = [(); 2].map(|()| number(&mut socket));
        let (kind, count) = (kind?, count?);
        let mut bytes = Vec::new();
        let length = count.saturating_mul(8).min(LONGEST_QUESTION);
        (&socket).take(length).read_to_end(&mut bytes)?;
        let mut question = Answer(&bytes);
        let said = answer(&local, kind, &mut question)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        socket.write_all(&(said.0.len() as u64).to_le_bytes())?;
        socket.write_all(&said.0)?;
    }
}

fn number(socket: &mut UnixStream) -> io::Result<u64> {
    let mut bytes = [0; 8];
    socket.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn answer(local: &Local<'_>, kind: u64, question: &mut Answer<'_>) -> Option<Said> {
    let mut said = Said::default();
    match kind {
        CALLS => {
            let mut registers = [0; 8];
            for register in &mut registers {
                *register = question.number()?;
            }
            let stack: Vec<u64> = std::iter::from_fn(|| question.number()).collect();
            let calls = local.calls(Registers::new(registers), &stack);
            said.number(calls.len() as u64);
            for call in calls {
                said.number(call.at);
                said.number(call.inside);
            }
        }
        FRAME => {
            let call = Call { at: question.number()?, inside: question.number()? };
            let (file, functions) = local.functions(call);
            said.number(u64::from(file.is_some()));
            if let Some(file) = file {
                said.number(file as u64);
            }
            for function in functions {
                said.text(function.name.as_deref());
                said.text(function.source.as_deref());
            }
        }
        VARIABLE => match local.variable_at(question.number()?) {
            Some((name, offset)) => {
                said.text(Some(&name));
                said.number(offset);
            }
            None => said.text(None),
        },
        LEFT_OUT => local.left_out().into_iter().for_each(|file| said.number(file as u64)),
        _ => return None,
    }
    Some(said)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn another_process_of_its_number_goes_on() {
        let mut ended = Command::new("true").spawn().unwrap();
        let handle = handle_of(ended.id() as libc::pid_t);
        ended.wait().unwrap();
        let Some(handle) = handle else {
            return eprintln!("skipped: another_process_of_its_number_goes_on: needs pidfd_open");
        };
        // Not a child of this process.
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 > /dev/null 2>&1 & echo $!"]).stdin(Stdio::null());
        let said = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        let other: libc::pid_t = said.trim().parse().unwrap();
        let (socket, _theirs) = UnixStream::pair().unwrap();
        let until = Instant::now();
        drop(Child { process: other, handle: Some(handle), socket, until, answered: 0 });
        let status = std::fs::read_to_string(format!("/proc/{other}/status")).unwrap_or_default();
        // SAFETY: the process that was started above.
        unsafe { libc::kill(other, libc::SIGKILL) };
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        assert!(state.is_some_and(|state| !state.contains('Z')), "{status}");
    }
}
