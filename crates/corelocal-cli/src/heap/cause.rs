//! Why a program left no profile.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// The explanation for a program that executed another one, with the remedy.
const OTHER: &str = "it executed another program without corelocal's malloc: one that is linked statically, gains \
     privileges, has a built-in malloc or was started by `env -i` (run that one directly, if it can use another malloc)";

/// Returns why a program that ended with `status` wrote none. One object was sampled for each `rate` bytes.
pub fn nothing(status: ExitStatus, rate: u64) -> String {
    let why = match (status.signal(), status.code()) {
        (Some(signal), _) => {
            format!("it ended by signal {signal}, which leaves no time to write one")
        }
        (None, Some(127)) => {
            return "no process of the program wrote a profile: it ended with exit code 127, as if the dynamic loader \
                 could not load it or a shell did not find a command; see the message above"
                .to_owned();
        }
        _ => format!("it ended by _exit(2), still runs in the background, or {OTHER}"),
    };
    format!(
        "no process of the program wrote a profile: {why}. Let it exit normally; or give --for TIME, after which it is \
         asked for a profile; or call corelocal_malloc_profile(NULL) in it (one object was sampled for each {rate} \
         bytes)"
    )
}

/// Returns why a program was not asked for one by this signal.
pub fn deaf(signal: libc::c_int) -> String {
    format!(
        "the program was ended without a profile: it has no handler for signal {signal}, which requests one and would \
         have ended it. It had only just started (give a longer --for TIME), it removed the handler, or {OTHER}"
    )
}
