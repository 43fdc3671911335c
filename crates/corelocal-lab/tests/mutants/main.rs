//! A test of the tests: critical sections with one fault each, all of which `torture` or `check`
//! must notice, beside sound ones and the library's own, about which both must be silent. And locks, of
//! which one is broken where no section is.
//!
//! Without a harness, since this program is also the process that is disturbed.

#[cfg(target_arch = "x86_64")]
mod object;
#[cfg(target_arch = "x86_64")]
#[macro_use]
mod parts;
#[cfg(target_arch = "x86_64")]
mod locks;
#[cfg(target_arch = "x86_64")]
mod stacks;
#[cfg(target_arch = "x86_64")]
mod word_sections;

/// The argument with which this program is the victim.
#[cfg(target_arch = "x86_64")]
const VICTIM: &str = "--victim";

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    eprintln!("skipped: mutants: there are no critical sections for this processor yet");
}

#[cfg(target_arch = "x86_64")]
fn main() -> std::process::ExitCode {
    use std::process::{Command, ExitCode};

    use corelocal_lab::torture::{self, Obstacle, Plan, Selection, Share, Verdict, Workload};

    let sound = [word_sections::sound(), stacks::sound()].concat();
    let mutants = [word_sections::mutants(), stacks::mutants()].concat();
    let all: Vec<Workload> =
        torture::library().into_iter().chain(sound).chain(mutants.clone()).collect();
    if std::env::args().any(|argument| argument == VICTIM) {
        torture::victim(&all);
        return ExitCode::SUCCESS;
    }

    let this = std::env::current_exe().expect("a test has a file");
    let victim = || {
        let mut command = Command::new(&this);
        command.arg(VICTIM);
        command
    };
    let selection = Selection::default();
    let plan = Plan {
        workloads: &all,
        victim: &victim,
        excluded: &[],
        selection: &selection,
        share: Share::WHOLE,
    };
    let disturbed = match torture::run(&plan, &mut |_, _| {}) {
        Ok(report) => report,
        Err(Obstacle::Unable(why)) => {
            eprintln!("skipped: mutants: {why}");
            return ExitCode::SUCCESS;
        }
        Err(other) => panic!("{other}"),
    };
    let checked = corelocal_lab::check::file(&this).expect("a test is an ELF file");

    // What torture says about a workload, if it complains.
    let by_torture = |name: &str| {
        let mut sections = disturbed.sections.iter().filter(|s| s.name.starts_with(name));
        sections.find_map(|section| {
            let failed = section.rows.iter().flat_map(|row| &row.tried);
            let mut failed = failed.filter_map(|tried| match &tried.verdict {
                Verdict::Failed(why) => Some(why.clone()),
                Verdict::NotReached => Some("not reached".to_owned()),
                Verdict::Ok | Verdict::Skipped(_) => None,
            });
            section.broken.clone().or_else(|| failed.next())
        })
    };
    // Why something could not be tried on it.
    let skipped = |name: &str| {
        let section = disturbed.sections.iter().find(|section| section.name == name)?;
        section.rows.iter().flat_map(|row| &row.tried).find_map(|tried| match &tried.verdict {
            Verdict::Skipped(why) => Some(why.clone()),
            _ => None,
        })
    };
    // Which rules of check it breaks.
    let by_check = |module: &str| {
        let mut rules: Vec<&str> = Vec::new();
        for report in &checked.reports {
            for finding in &report.findings {
                let section = finding.section.and_then(|index| report.sections.get(index));
                let function = section.and_then(|section| section.start.function.as_deref());
                if function.is_some_and(|function| function.contains(&format!("::{module}::"))) {
                    rules.push(finding.rule.id());
                }
            }
        }
        rules
    };

    let mut faults = Vec::new();
    println!("{:34}{:26}torture", "", "check");
    for workload in &all {
        let (torture, check) = (by_torture(workload.name), by_check(workload.name));
        let is_mutant = mutants.iter().any(|mutant| mutant.name == workload.name);
        let is_caught = torture.is_some() || !check.is_empty();
        let said = torture.as_deref().unwrap_or("–");
        println!("{:34}{:26}{said}", workload.name, check.join(", "));
        match skipped(workload.name) {
            Some(why) if is_mutant && !is_caught => {
                eprintln!("skipped: {}: {why}", workload.name);
            }
            _ if is_caught != is_mutant => faults.push(workload.name),
            _ => {}
        }
    }
    faults.extend(locks::faults());
    if faults.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("sound sections that were blamed, or mutants that survived: {}", faults.join(", "));
    ExitCode::FAILURE
}
