//! Runs all triples, and checks that no section of the program was missed.
//!
//! Invariants:
//! - A failure never ends the run: a lost victim is replaced, and the next triple is tried.
//! - An instruction counts as not reached only if no workload brings a thread there, since an operation that
//!   mismatches leaves its section early.

use std::collections::{BTreeMap, BTreeSet};

use corelocal::sys::Registration;

use super::attack::{Outcome, Place as Target, Stores};
use super::program::{Code, Program, Step};
use super::report::{Coverage, Excluded, Place, Report, Row, Section, Tried, Unreached, Verdict};
use super::select::{Disturbance, Selection};
use super::session::Session;
use super::tracee::Lost;
use super::{Obstacle, Plan, Workload, allowed_cpus};

/// Tries every selected triple. `progress` is called with the number of triples done, and of all.
///
/// # Errors
/// There are no sections to disturb, ptrace(2) is refused, or the selection matches nothing.
pub fn run(plan: &Plan<'_>, progress: &mut dyn FnMut(usize, usize)) -> Result<Report, Obstacle> {
    if let Some(refusal) = Registration::of_this_thread().refusal {
        return Err(Obstacle::Unable(format!(
            "critical sections do not run here: {refusal}; `corelocal doctor` says what to do"
        )));
    }
    let program = Program::of_this_process()?;
    let mut cpus = allowed_cpus();
    cpus.truncate(2);
    if cpus.is_empty() {
        return Err(Obstacle::Unable("sched_getaffinity(2) is refused here".to_owned()));
    }
    let session = Session::start(plan, &cpus)?;
    let mut run = Run { plan, program: &program, cpus, session, stores: BTreeMap::new() };

    let mut report = Report::default();
    let mut ways = Vec::new();
    for number in 0..plan.workloads.len() {
        match run.way(number)? {
            Ok(way) => ways.push(way),
            Err(why) => {
                report.sections.push(broken(plan, number, why));
                ways.push(Vec::new());
            }
        }
    }
    report.coverage = run.coverage(&ways, &report);

    let jobs = jobs(plan, &program, &ways);
    if jobs.is_empty() && !plan.selection.is_all() && plan.share.is_whole() {
        return Err(Obstacle::Selection(unknown(plan.selection, &program, plan, &ways)));
    }
    let total = jobs.iter().map(|job| job.steps.len() * job.disturbances.len()).sum();
    let mut done = 0;
    for job in &jobs {
        let rows = run.section(job, &mut |tried| {
            done += tried;
            progress(done, total);
        })?;
        let function = job.way[job.index].function.clone();
        report.sections.push(Section { name: job.name.clone(), function, broken: None, rows });
    }
    forget_other_ways(&mut report, plan.selection.is_all() && plan.share.is_whole());
    Ok(report)
}

/// A section as one workload reaches it, and the triples to try there.
struct Job<'a> {
    name: String,
    number: usize,
    way: Vec<&'a Code>,
    index: usize,
    steps: Vec<&'a Step>,
    disturbances: Vec<Disturbance>,
}

struct Run<'a> {
    plan: &'a Plan<'a>,
    program: &'a Program,
    cpus: Vec<usize>,
    session: Session,
    /// The addresses to which each warmed-up workload of this session stores.
    stores: BTreeMap<usize, Stores>,
}

impl Run<'_> {
    fn restart(&mut self) -> Result<(), Obstacle> {
        self.session = Session::start(self.plan, &self.cpus)?;
        self.stores.clear();
        Ok(())
    }

    /// Returns the sections that a workload passes after the first use of its object. The inner error is a violation.
    fn way(&mut self, number: usize) -> Result<Result<Vec<usize>, String>, Obstacle> {
        let found = self.session.calibrate(number, 0, &[]).and_then(|_| self.check(number));
        let way = |session: &mut Session| session.way(number, self.program);
        let found = found.and_then(|()| way(&mut self.session));
        // The first breakpoint in a page is a copy of the page. A cpu of an emulator may run what was there before, until it
        // forgets where that was: another one does not.
        let found = found.and_then(|found| {
            if !found.is_empty() {
                return Ok(found);
            }
            self.session.place(self.cpus.len() - 1);
            let found = way(&mut self.session);
            self.session.place(0);
            found
        });
        let found = found.and_then(|way| {
            let sections: Vec<&Code> = way.iter().map(|&i| &self.program.sections[i]).collect();
            self.warm(number, &sections).map(|()| way)
        });
        match found {
            Ok(way) => Ok(Ok(way)),
            Err(Lost(why)) => {
                self.restart()?;
                Ok(Err(format!("one of the first operations {why}")))
            }
        }
    }

    /// Uses a workload's object on both cpus, once in this session.
    fn warm(&mut self, number: usize, way: &[&Code]) -> Result<(), Lost> {
        if self.stores.contains_key(&number) {
            return Ok(());
        }
        let mut slots = Vec::new();
        for cpu in 0..self.cpus.len() {
            slots.push(self.session.calibrate(number, cpu, way)?);
            self.check(number)?;
        }
        let stores = match self.plan.workloads[number] {
            Workload { to_slot: false, .. } => Stores::default(),
            Workload { by_cpu: true, .. } => {
                Stores { by_cpu: slots.get(1).copied().flatten(), by_id: Vec::new() }
            }
            _ => Stores { by_cpu: None, by_id: slots.into_iter().flatten().collect() },
        };
        self.stores.insert(number, stores);
        Ok(())
    }

    fn check(&self, number: usize) -> Result<(), Lost> {
        match self.session.plain(&self.plan.workloads[number])? {
            None => Ok(()),
            Some(complaint) => Err(Lost(format!("gave a wrong result: {complaint}"))),
        }
    }

    /// Tries all triples at one section. `progress` is called with the number done since the last call.
    fn section(
        &mut self,
        job: &Job<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Row>, Obstacle> {
        let code = job.way[job.index];
        let mut rows = Vec::new();
        for step in &job.steps {
            let mut tried: Vec<Tried> = Vec::new();
            for &disturbance in &job.disturbances {
                let unreached = tried.first().is_some_and(|t| t.verdict == Verdict::NotReached);
                let verdict = match disturbance {
                    _ if unreached => Verdict::NotReached,
                    Disturbance::Migrate if self.cpus.len() < 2 => {
                        Verdict::Skipped("this process may use only one cpu".to_owned())
                    }
                    _ => self.triple(job, step, disturbance, !tried.is_empty())?,
                };
                tried.push(Tried { disturbance, verdict });
                progress(1);
            }
            let place = match step.address {
                at if at < code.start => Place::Before,
                at if at < code.end => Place::Inside,
                _ => Place::Past,
            };
            rows.push(Row {
                number: step.number,
                address: step.address.wrapping_sub(self.program.bias),
                instruction: step.text.clone(),
                place,
                tried,
            });
        }
        Ok(rows)
    }

    fn triple(
        &mut self,
        job: &Job<'_>,
        step: &Step,
        disturbance: Disturbance,
        is_reachable: bool,
    ) -> Result<Verdict, Obstacle> {
        let (number, way, index) = (job.number, &*job.way, job.index);
        let outcome = self.warm(number, way).and_then(|()| {
            let stores = self.stores.get(&number).cloned().unwrap_or_default();
            let workload = &self.plan.workloads[number];
            let target = Target { workload, number, way, index, stores: &stores };
            target.attack(&mut self.session, step, disturbance, is_reachable)
        });
        Ok(match outcome {
            Ok(Outcome::Ok) => Verdict::Ok,
            Ok(Outcome::NotReached) => Verdict::NotReached,
            Ok(Outcome::Refused) => Verdict::Skipped("membarrier(2) is refused here".to_owned()),
            Ok(Outcome::Failed(why)) => Verdict::Failed(why),
            Err(Lost(why)) => {
                self.restart()?;
                Verdict::Failed(format!("the disturbed thread {why}"))
            }
        })
    }

    fn coverage(&self, ways: &[Vec<usize>], report: &Report) -> Coverage {
        let sections = &self.program.sections;
        let disturbed: BTreeSet<usize> = ways.iter().flatten().copied().collect();
        let known: BTreeSet<&str> = disturbed.iter().map(|&i| &*sections[i].alike).collect();
        let mut coverage = Coverage {
            sections: sections.len(),
            disturbed: disturbed.len(),
            ..Coverage::default()
        };
        for exclusion in self.plan.excluded {
            let is_excluded = |code: &&Code| code.function.starts_with(exclusion.function);
            let (function, reason) = (exclusion.function, exclusion.reason);
            let count = sections.iter().filter(is_excluded).count();
            coverage.excluded.push(Excluded { function, sections: count, reason });
        }
        for (i, code) in sections.iter().enumerate().filter(|(i, _)| !disturbed.contains(i)) {
            let excluded = self.plan.excluded.iter();
            if excluded.map(|e| e.function).any(|prefix| code.function.starts_with(prefix)) {
                continue;
            }
            if known.contains(&*code.alike) {
                coverage.alike += 1;
                continue;
            }
            coverage.unreached.push(Unreached {
                function: sections[i].function.clone(),
                address: code.start.wrapping_sub(self.program.bias),
                instructions: code.alike.clone(),
            });
        }
        let has_failed = |name: &str| report.sections.iter().any(|section| section.name == name);
        let names = self.plan.workloads.iter().map(|workload| workload.name);
        let idle = ways.iter().zip(names).filter(|(way, name)| way.is_empty() && !has_failed(name));
        coverage.idle = idle.map(|(_, name)| name).collect();
        coverage
    }
}

fn jobs<'a>(plan: &Plan<'_>, program: &'a Program, ways: &[Vec<usize>]) -> Vec<Job<'a>> {
    let selection = plan.selection;
    let mut jobs = Vec::new();
    let mut before = 0..;
    for (number, way) in ways.iter().enumerate() {
        let way: Vec<&Code> = way.iter().map(|&i| &program.sections[i]).collect();
        for index in 0..way.len() {
            let name = section_name(plan, number, index);
            if !selection.has_section(&name) {
                continue;
            }
            let steps = way[index].steps.iter();
            let steps = steps.filter(|step| selection.has_instruction(step.number));
            let steps = steps.zip(&mut before).filter(|(_, before)| plan.share.has(*before));
            let steps: Vec<_> = steps.map(|(step, _)| step).collect();
            let disturbances = Disturbance::ALL.into_iter();
            let disturbances = disturbances.filter(|&d| selection.has_disturbance(d)).collect();
            if !steps.is_empty() {
                jobs.push(Job { name, number, way: way.clone(), index, steps, disturbances });
            }
        }
    }
    jobs
}

fn section_name(plan: &Plan<'_>, number: usize, index: usize) -> String {
    let name = plan.workloads[number].name;
    match index {
        0 => name.to_owned(),
        1 => format!("{name}-again"),
        times => format!("{name}-again-{times}"),
    }
}

/// Returns the message for a selection that matches nothing.
fn unknown(
    selection: &Selection,
    program: &Program,
    plan: &Plan<'_>,
    ways: &[Vec<usize>],
) -> String {
    let mut names = Vec::new();
    for (number, way) in ways.iter().enumerate() {
        for (index, &section) in way.iter().enumerate() {
            let name = section_name(plan, number, index);
            if name == selection.section {
                let numbers = program.sections[section].steps.iter().map(|step| step.number);
                let (first, last) = (numbers.clone().min(), numbers.max());
                let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
                return format!("`{name}` has the instructions {first} to {last}");
            }
            names.push(name);
        }
    }
    let named = if selection.section.is_empty() {
        "no section has this instruction".to_owned()
    } else {
        format!("no section is called `{}`", selection.section)
    };
    format!("{named}; there are {}", names.join(", "))
}

/// Returns the report for a workload whose first operations are wrong.
fn broken(plan: &Plan<'_>, number: usize, why: String) -> Section {
    let name = plan.workloads[number].name.to_owned();
    Section { name, function: String::new(), broken: Some(why), rows: Vec::new() }
}

/// Drops instructions that no workload passes: those before a section, and those on other paths through it.
fn forget_other_ways(report: &mut Report, all: bool) {
    let is_reached = |row: &Row| row.tried.iter().any(|t| t.verdict != Verdict::NotReached);
    let rows = report.sections.iter().flat_map(|section| &section.rows);
    let reached: BTreeSet<u64> = rows.filter(|row| is_reached(row)).map(|r| r.address).collect();
    // A part of the triples does not show what the others reach.
    let optional = !all && !reached.is_empty();
    for section in &mut report.sections {
        section.rows.retain(|row| {
            is_reached(row)
                || !(optional || row.place == Place::Before || reached.contains(&row.address))
        });
    }
}
