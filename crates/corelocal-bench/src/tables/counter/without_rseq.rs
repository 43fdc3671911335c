//! The contestants of the counter table: on threads of this process, or of one that is run without rseq.
//!
//! Which it is, is settled for a process when it starts. So the one without is a child, made anew for
//! each round, which measures one round as the others are measured.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use corelocal_support::measure::engine::{Body, Plan, Sample};
use corelocal_support::process::child;
use serde_json::{Value, json};

use super::ours;
use crate::contest::threads::Crew;
use crate::tables::checked::{Checked, Made, checked};
use corelocal::cid::{Cid, Policy, policy};

/// The name of the child process.
pub const CHILD: &str = "counter-off";

/// Far more than a round takes.
const LIMIT: Duration = Duration::from_secs(30);

/// A contestant that runs here or in a child without rseq: see the module's text.
pub enum Contestant {
    /// The contestant runs in this process.
    Here(Checked<Crew<'static>>),
    /// Our counter in a child, with so many threads, for so long.
    WithoutRseq { threads: usize, slice: Duration },
}

impl Contestant {
    /// Builds what is measured in this process.
    pub fn here(build: fn() -> Made) -> Self {
        Self::Here(checked(build))
    }

    /// Returns our counter where rseq is refused.
    pub fn without_rseq() -> Self {
        Self::WithoutRseq { threads: 1, slice: Duration::ZERO }
    }
}

impl Body for Contestant {
    const SINGLE_THREAD: bool = <Checked<Crew<'static>> as Body>::SINGLE_THREAD;

    fn rounds(plan: &Plan) -> usize {
        <Checked<Crew<'static>> as Body>::rounds(plan)
    }

    fn prepare(&mut self, x: Option<f64>, plan: &Plan) -> anyhow::Result<()> {
        match self {
            Self::Here(body) => body.prepare(x, plan)?,
            Self::WithoutRseq { threads, slice } => {
                *threads = x.map_or(1, |x| x as usize);
                *slice = plan.slice;
            }
        }
        Ok(())
    }

    fn round(&mut self) -> anyhow::Result<Sample> {
        match self {
            Self::Here(body) => body.round(),
            Self::WithoutRseq { threads, slice } => {
                let args = [threads.to_string(), slice.as_nanos().to_string()];
                let value = child::run(CHILD, &args, &[("CORELOCAL_RSEQ", "off")], LIMIT)?;
                let figure = |name: &str| value[name].as_f64().context("no figure");
                Ok(Sample { value: figure("ns")?, extra: vec![("Mops/s", figure("Mops/s")?)] })
            }
        }
    }
}

/// Runs in the child: one round, after one that warms up, with as many threads and for as long as it is told.
pub fn child(args: &[String]) -> anyhow::Result<Value> {
    let [threads, slice] = args else { anyhow::bail!("expected threads and nanoseconds") };
    let (threads, slice): (usize, u64) = (threads.parse()?, slice.parse()?);
    ensure!(policy() == Policy::Lease, "rseq is on although it was switched off");
    let plan = Plan { slice: Duration::from_nanos(slice), ..Plan::QUICK };
    let mut body = checked::<Crew<'_>>(ours::<Cid>);
    body.prepare(Some(threads as f64), &plan)?;
    body.round()?;
    let Sample { value, extra } = body.round()?;
    let mops = extra.first().map(|(_, mops)| *mops);
    Ok(json!({ "ns": value, "Mops/s": mops }))
}
