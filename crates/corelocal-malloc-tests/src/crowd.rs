//! Many processes at a time: whether the kernel promises memory to all of them.
//!
//! Invariant: a member uses a little memory, says so, and stays until its standard input ends.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use crate::Outcome;
use crate::space::{meminfo, used_a_little};

/// Those that have started. They end with this.
struct Members(Vec<Child>);

impl Drop for Members {
    fn drop(&mut self) {
        for member in &mut self.0 {
            // It may have ended.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// `count` members at a time.
pub fn crowd(count: u64) -> Outcome {
    let program = std::env::current_exe().map_err(|why| format!("no path of this: {why}"))?;
    let before = meminfo("Committed_AS")?;
    let mut members = Members(Vec::with_capacity(count as usize));
    for nth in 0..count {
        let mut command = Command::new(&program);
        command.arg("member").stdin(Stdio::piped()).stdout(Stdio::piped());
        let member = command.spawn().map_err(|why| format!("member {nth} does not start: {why}"));
        members.0.push(member?);
    }
    for (nth, member) in members.0.iter_mut().enumerate() {
        let mut said = [0];
        let heard = member.stdout.as_mut().map(|out| out.read_exact(&mut said));
        if !matches!(heard, Some(Ok(()))) {
            return Err(format!("member {nth} says nothing"));
        }
    }
    let promised = meminfo("Committed_AS")?.saturating_sub(before);
    for (nth, member) in members.0.iter_mut().enumerate() {
        drop(member.stdin.take());
        match member.wait() {
            Ok(status) if status.success() => {}
            ended => return Err(format!("member {nth} ended with {ended:?}")),
        }
    }
    Ok(format!("{count} members, {promised} bytes promised, limit {}", meminfo("CommitLimit")?))
}

/// Returns one of them.
pub fn member() -> Outcome {
    let used = used_a_little();
    let mut nothing = [0; 1];
    let mut out = std::io::stdout();
    out.write_all(b".").and_then(|()| out.flush()).map_err(|why| format!("no output: {why}"))?;
    std::io::stdin().read(&mut nothing).map_err(|why| format!("no input: {why}"))?;
    Ok(format!("{} objects", used.len()))
}
