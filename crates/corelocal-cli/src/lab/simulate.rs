//! `corelocal lab simulate`: one random schedule of a model, and what its steps cost.

use std::process::ExitCode;
use std::time::Instant;

use corelocal_lab::sim::case::Simulated;
use corelocal_lab::sim::diagram;
use corelocal_support::console;
use corelocal_support::output::{self, complain};
use corelocal_support::process::signals;
use serde::Serialize;

use super::args::SimulateArgs;
use super::chosen;
use super::explore::{INCOMPLETE, grouped};

#[derive(Serialize)]
struct Answer {
    model: String,
    seed: u64,
    seconds: f64,
    #[serde(flatten)]
    simulated: Simulated,
}

/// Runs the command.
pub fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let entries = match chosen(&args.models) {
        Ok(entries) => entries,
        Err(error) => {
            complain(error);
            return Ok(ExitCode::from(2));
        }
    };
    let simulate = |entry: &corelocal_lab::sim::case::Entry| {
        let began = Instant::now();
        let simulated = entry.case.simulate(args.seed, args.steps, &signals::came);
        Answer {
            model: entry.name.to_string(),
            seed: args.seed,
            seconds: began.elapsed().as_secs_f64(),
            simulated,
        }
    };
    signals::note();
    // What was simulated until an interruption is told of.
    let answers = entries.iter().take_while(|_| !signals::came()).map(simulate).collect::<Vec<_>>();
    let failed = |(answer, fault): (&Answer, Option<&str>)| {
        answer.simulated.failure.is_some() && fault.is_none()
    };
    let wrong = answers.iter().zip(entries.iter().map(|entry| entry.fault)).any(failed);
    let code = match wrong {
        true => ExitCode::FAILURE,
        false if signals::came() => ExitCode::from(INCOMPLETE),
        false => ExitCode::SUCCESS,
    };
    if args.json {
        return output::finish(serde_json::to_string_pretty(&answers)? + "\n", code);
    }
    let mut grid = console::grid(console::width());
    let titles = ["MODEL", "STEPS", "STEPS/S", "ATOMICS", "LOCKS", "TRACE", "RESULT"];
    grid.set_header(titles.map(console::heading));
    for Answer { model, seconds, simulated, .. } in &answers {
        let Simulated { steps, costs, trace, failure, .. } = simulated;
        let per_unit = |count: u64| format!("{:.2}", count as f64 / costs.units.max(1) as f64);
        let message = failure.as_ref().and_then(|schedule| schedule.message.clone());
        grid.add_row([
            model.clone(),
            grouped(*steps as usize),
            format!("{:.1} M", *steps as f64 / seconds.max(1e-9) / 1e6),
            per_unit(costs.atomics),
            per_unit(costs.locks),
            format!("{trace:016x}"),
            message.unwrap_or_else(|| "no failure".into()),
        ]);
    }
    console::keep_whole(&mut grid, |column| column < 6);
    let mut text = console::lines(&grid);
    text += "\natomics and locks: per context switch, system call or read of the clock\n";
    if let [Answer { simulated: Simulated { failure: Some(schedule), .. }, .. }] = &answers[..] {
        if schedule.lines.len() <= 100 {
            text += &diagram::text(schedule, console::width());
        }
    }
    output::finish(text, code)
}
