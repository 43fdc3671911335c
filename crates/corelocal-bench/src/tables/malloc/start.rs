//! How much later a program starts with a malloc preloaded: `true`, from its start to its end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use corelocal_support::mallocs::Malloc;
use corelocal_support::schema::{self, Better};

use super::rivals;
use crate::contest::probe::probe;
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct Start;

/// Processes in a round.
const TIMES: u32 = 20;

impl Table for Start {
    fn id(&self) -> &'static str {
        "malloc_start"
    }

    fn title(&self) -> &'static str {
        "Mallocs: program start"
    }

    fn in_report(&self, _: bool) -> bool {
        false
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let about = "From the start of `true` until its end, with the malloc preloaded.";
        let contest =
            Contest::new(self, about).unit("us", Better::Lower).baseline(rivals::BASELINE);
        let contest = rivals::enter(contest, |malloc| probe(move |_| start(&malloc)));
        Ok(contest.measure(cx))
    }
}

/// Returns the microseconds of one start.
fn start(malloc: &Malloc) -> anyhow::Result<f64> {
    let places = ["/bin/true", "/usr/bin/true"];
    let program = places.into_iter().find(|path| Path::new(path).exists());
    let program = program.context("there is no /bin/true")?;
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", malloc.alone()).stdin(Stdio::null()).stderr(Stdio::piped());
    let begin = Instant::now();
    for _ in 0..TIMES {
        let mut child = command.spawn().context("`true` cannot be started")?;
        let status = child.wait().context("`true` cannot be waited for")?;
        ensure!(status.success(), "`true` ended with {status}");
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_takes_time() {
        assert!(start(&Malloc::of_libc()).unwrap() > 10.0);
    }
}
