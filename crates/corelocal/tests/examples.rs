//! The examples that one would copy do what they say.
#![cfg(all(feature = "std", not(miri)))]

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

const LONG: Duration = Duration::from_secs(60);

/// What an example prints, run without arguments. `None` if it was not built.
fn output(name: &str) -> Option<String> {
    let tests = env::current_exe().unwrap();
    let example = tests.parent()?.parent()?.join("examples").join(name);
    if !example.exists() {
        eprintln!("skipped: examples: {name} was not built");
        return None;
    }
    let mut child = Command::new(example).stdout(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begin.elapsed() > LONG => {
                child.kill().unwrap();
                panic!("{name} has not ended within {LONG:?}");
            }
            None => thread::sleep(Duration::from_millis(10)),
        }
    };
    assert!(status.success(), "{status}");
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    Some(output)
}

#[test]
fn a_configuration_is_reloaded() {
    let Some(output) = output("config_reload") else { return };
    for line in ["first", "second, and longer", "last"] {
        assert!(output.contains(&format!("is answered by: {line}\n")), "{output}");
    }
    assert!(output.ends_with("freed: 0 bytes\n"), "{output}");
}
