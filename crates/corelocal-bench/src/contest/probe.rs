//! Contestants that are measured elsewhere, in a process of their own. Like all contestants they alternate round by round.

use corelocal_support::measure::engine::{Body, Plan, Sample};

/// A contestant that measures by its own means, usually through [`run`](corelocal_support::process::child::run): called
/// with its place on the x axis, gives a figure in the table's unit.
pub struct Probe<'a> {
    measure: Box<dyn FnMut(Option<f64>) -> anyhow::Result<f64> + 'a>,
    x: Option<f64>,
}

/// Creates a contestant whose rounds are calls of this function: see [`Probe`].
pub fn probe<'a>(measure: impl FnMut(Option<f64>) -> anyhow::Result<f64> + 'a) -> Probe<'a> {
    Probe { measure: Box::new(measure), x: None }
}

impl Body for Probe<'_> {
    const SINGLE_THREAD: bool = false;

    fn rounds(plan: &Plan) -> usize {
        plan.long_rounds
    }

    fn prepare(&mut self, x: Option<f64>, _plan: &Plan) -> anyhow::Result<()> {
        self.x = x;
        Ok(())
    }

    fn round(&mut self) -> anyhow::Result<Sample> {
        Ok(Sample { value: (self.measure)(self.x)?, extra: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_asked_at_its_place() {
        let mut asked = Vec::new();
        let mut contestant = probe(|x| {
            asked.push(x);
            Ok(7.5)
        });
        contestant.prepare(Some(4.0), &Plan::QUICK).unwrap();
        assert_eq!(contestant.round().unwrap().value, 7.5);
        drop(contestant);
        assert_eq!(asked, [Some(4.0)]);
    }
}
