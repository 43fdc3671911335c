//! Tests of `kept.rs`.

use super::*;
use corelocal::sync::profile::Profile;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};

#[test]
fn memory_has_names_too() {
    let me = std::process::id();
    assert!(mapped_files::<Profile>(me).is_empty());
    assert_eq!(without_leading_zeros("00400000-7f00").as_deref(), Some("400000-7f00"));
    assert_eq!(without_leading_zeros("x"), None);
}

/// A shell that waits until it is dropped.
struct Shell(Child);

impl Shell {
    fn start(script: &str) -> io::Result<Shell> {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{script}\necho begun; read line")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env(Profile::VARIABLE, "ready");
        let mut shell = Shell(command.spawn()?);
        let mut said = [0; 6];
        shell.0.stdout.as_mut().expect("a pipe").read_exact(&mut said)?;
        Ok(shell)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_environment_tells_whether_a_program_is_to_have_a_profile() {
    let shell = Shell::start("").expect("a shell");
    assert!(is_to_have_one::<Profile>(shell.0.id()));
}

#[test]
fn a_process_may_have_any_name() {
    let script = r"printf 'caf\351' > /proc/$$/comm";
    let shell = Shell::start(script).expect("a shell");
    let process = shell.0.id();
    let name = proc_files::text(process, "comm");
    if name != "caf\u{fffd}\n" {
        return eprintln!("skipped: a_process_may_have_any_name: it is called {name:?}");
    }
    if own_number(std::process::id()).is_none() {
        return eprintln!("skipped: a_process_may_have_any_name: no NSpid (Linux 4.1)");
    }
    assert!(own_number(process).is_some());
}

#[test]
fn what_is_said_where_there_is_none() {
    let me = std::process::id();
    let said = wait_for::<Profile>(me, Instant::now()).expect_err("no profile").to_string();
    assert!(said.contains(&me.to_string()) && said.contains("CORELOCAL_LOCKS=ready"), "{said}");
    let nobody = wait_for::<Profile>(u32::MAX, Instant::now()).expect_err("nobody").to_string();
    assert!(nobody.starts_with("there is no process 4294967295"), "{nobody}");
}
