//! Tests that change the machine's clock for a moment: they slew it, or say how exact it is. A process of its
//! own puts back what was before.

use std::sync::{Mutex, MutexGuard};
use std::{io, mem};

use crate::restorer::Restorer;
use crate::sandbox::skip;

/// One test at a time changes the machine's clock, and none is surprised by it.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// adjtimex: asks, or sets what `modes` says.
pub fn adjust(change: impl FnOnce(&mut libc::timex)) -> io::Result<libc::timex> {
    // SAFETY: all-zero bytes are a request that changes nothing.
    let mut request: libc::timex = unsafe { mem::zeroed() };
    change(&mut request);
    // SAFETY: a valid request, into which the answer goes.
    match unsafe { libc::adjtimex(&mut request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(request),
    }
}

/// Runs `body` if the clock may be adjusted; puts back frequency, status and errors.
pub fn adjusting(test: &str, body: impl FnOnce()) {
    let was = adjust(|_| ()).and_then(|was| {
        adjust(|same| (same.modes, same.freq) = (libc::ADJ_FREQUENCY, was.freq))?;
        Ok(was)
    });
    let was = match was {
        Ok(was) => was,
        Err(error) => return skip(test, &format!("the clock cannot be adjusted: {error}")),
    };
    let restorer = Restorer::new(|| {
        let _ = adjust(|back| {
            *back = was;
            let errors = libc::ADJ_MAXERROR | libc::ADJ_ESTERROR;
            back.modes = libc::ADJ_FREQUENCY | libc::ADJ_STATUS | errors;
        });
    });
    let _restorer = restorer.unwrap();
    body();
}
