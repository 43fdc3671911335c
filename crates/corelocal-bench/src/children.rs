//! The program of this crate's tests as its own child: tables start `current_exe() __child NAME ARGS…`, which the command
//! answers in its `main`. A test program has the harness's, so this answers before it.

use corelocal_support::mallocs::library;
use corelocal_support::process::child::{SUBCOMMAND, dispatch};

#[used]
// SAFETY: the C runtime calls the functions of this section before `main`, on the only thread.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = answer;

/// Runs the child that the arguments name, and ends the process; returns if they name none.
extern "C" fn answer() {
    // Not std's arguments, which some C libraries have not told it yet.
    let all = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = all.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let words: Vec<String> = words.collect();
    let [_, subcommand, name, args @ .., _] = &words[..] else { return };
    if subcommand != SUBCOMMAND {
        return;
    }
    let bodies: Vec<_> = crate::children().chain([library::BODY]).collect();
    let code = match dispatch(&bodies, name, args) {
        Ok(answer) => {
            println!("{answer}");
            0
        }
        Err(error) => {
            eprintln!("{error:#}");
            1
        }
    };
    std::process::exit(code)
}
