//! `corelocal lab plan`: how many ids, and so how much per-core memory, a process uses under each kernel's policy.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use corelocal::sys::Caps;
use corelocal_lab::sim::plan::{Ids, Policy, Process, ids, simulated};
use corelocal_support::measure::affinity;
use corelocal_support::output::{self, complain};
use corelocal_support::{console, user_file};
use corelocal_symbols::input;
use maud::html;
use serde::{Deserialize, Serialize};

use super::args::PlanArgs;

/// A page of each core for containers of up to 4 KiB (docs/containers.md), and the caches of the malloc (docs/malloc.md).
const CONTAINERS_KIB: u64 = 4;
const MALLOC_KIB: u64 = 616;
/// More cpus than any kernel supports.
const MOST_CPUS: u32 = 8192;

/// The machine that a file describes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    cpus: u32,
    kernel: Option<String>,
    #[serde(rename = "container")]
    containers: Vec<Container>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Container {
    name: String,
    allowed: String,
    once_allowed: Option<String>,
    threads: u32,
}

/// A process, and what each kernel makes of it.
#[derive(Serialize)]
struct Answer {
    name: String,
    process: Process,
    /// The policy of the kernel that was named.
    kernel: Option<Policy>,
    policies: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    policy: Policy,
    #[serde(flatten)]
    ids: Ids,
    /// The range that random schedules reach, where the rules leave one.
    simulated: Option<(u32, u32)>,
    containers_kib: u64,
    malloc_kib: u64,
}

/// Runs the command.
pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let answers = match answers(args) {
        Ok(answers) => answers,
        Err(error) => {
            complain(format_args!("{error:#}"));
            return Ok(ExitCode::from(2));
        }
    };
    if let Some(path) = &args.html {
        user_file::write(path, page(&answers)).map_err(anyhow::Error::msg)?;
    }
    if args.json {
        return output::finish(serde_json::to_string_pretty(&answers)? + "\n", ExitCode::SUCCESS);
    }
    let text =
        answers.iter().map(|answer| text(answer, console::width())).collect::<Vec<_>>().join("\n");
    output::finish(text, ExitCode::SUCCESS)
}

fn answers(args: &PlanArgs) -> anyhow::Result<Vec<Answer>> {
    if let Some(path) = &args.file {
        return of_file(path);
    }
    let here = affinity::allowed()
        .unwrap_or_default()
        .into_iter()
        .map(|cpu| cpu as u32)
        .collect::<Vec<_>>();
    let possible = match args.cpus {
        Some(cpus) => cpus,
        None => Caps::get().topology.possible.set.count().max(1) as u32,
    };
    let allowed = match &args.allowed {
        Some(list) => cpus(list, possible)?,
        None if args.cpus.is_some() => (0..possible).collect(),
        None => here,
    };
    let ever = args.once_allowed.as_deref().map(|list| cpus(list, possible)).transpose()?;
    let threads = args.threads.unwrap_or(allowed.len() as u32);
    let kernel = match &args.kernel {
        Some(version) => Some(kernel(version)?),
        None if args.this_machine => Some(kernel(&release())?),
        None => None,
    };
    let name = if args.this_machine { "this machine" } else { "the process" };
    Ok(vec![answer(name.into(), possible, allowed, ever, threads, kernel)])
}

fn of_file(path: &Path) -> anyhow::Result<Vec<Answer>> {
    let name = output::path_line(path);
    let text = input::read_text(path).with_context(|| format!("cannot read {name}"))?;
    // The error shows the line.
    let plan: Plan = toml::from_str(&text).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
    let kernel = plan.kernel.as_deref().map(kernel).transpose().with_context(|| name.clone())?;
    if plan.cpus == 0 || plan.cpus > MOST_CPUS {
        bail!("{name}: a machine has 1 to {MOST_CPUS} cpus");
    }
    let of = |container: Container| {
        let told = || format!("{name}: container {}", container.name);
        let allowed = cpus(&container.allowed, plan.cpus).with_context(told)?;
        let ever = container
            .once_allowed
            .as_deref()
            .map(|list| cpus(list, plan.cpus))
            .transpose()
            .with_context(told)?;
        Ok(answer(container.name.clone(), plan.cpus, allowed, ever, container.threads, kernel))
    };
    plan.containers.into_iter().map(of).collect()
}

fn answer(
    name: String,
    possible: u32,
    allowed: Vec<u32>,
    ever: Option<Vec<u32>>,
    threads: u32,
    kernel: Option<Policy>,
) -> Answer {
    let ever_allowed = ever
        .map_or(allowed.len(), |ever| ever.iter().chain(&allowed).collect::<BTreeSet<_>>().len());
    let process =
        Process { possible, allowed, ever_allowed: ever_allowed as u32, threads: threads.max(1) };
    let row = |policy| {
        let ids = ids(policy, &process);
        let slots = u64::from(ids.slots);
        let simulated = simulated(policy, &process);
        let (containers_kib, malloc_kib) = (slots * CONTAINERS_KIB, slots * MALLOC_KIB);
        Row { policy, containers_kib, malloc_kib, ids, simulated }
    };
    let policies = Policy::ALL.map(row).into();
    Answer { name, process, kernel, policies }
}

/// Returns the cpus of a list as Linux writes it: `0-15,32`.
fn cpus(list: &str, possible: u32) -> anyhow::Result<Vec<u32>> {
    let mut cpus = BTreeSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            text.trim().parse::<u32>().ok().filter(|&cpu| cpu < possible.min(MOST_CPUS))
        };
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => cpus.extend(first..=last),
            _ => bail!("{list}: write cpus as 0-15,32, each below {possible}"),
        }
    }
    Ok(cpus.into_iter().collect())
}

fn kernel(version: &str) -> anyhow::Result<Policy> {
    let mut parts = version.split(['.', '-', '+', '_']).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok(Policy::of(major, minor)),
        _ => bail!("{version}: write a kernel as 6.12"),
    }
}

fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn summary(Process { possible, allowed, ever_allowed, threads }: &Process) -> String {
    let once = if *ever_allowed as usize > allowed.len() {
        format!(" (once {ever_allowed})")
    } else {
        String::new()
    };
    format!("{threads} threads, {} of {possible} cpus allowed{once}", allowed.len())
}

fn size(kib: u64) -> String {
    if kib < 10_240 { format!("{kib} KiB") } else { format!("{} MiB", kib / 1024) }
}

const TITLES: [&str; 7] =
    ["LINUX", "IDS BELOW", "USUALLY", "SIMULATED", "SLOTS", "CONTAINERS", "MALLOC CACHES"];

fn cells(row: &Row) -> [String; 7] {
    let Row { policy, ids, simulated, containers_kib, malloc_kib } = row;
    let [most, usual, slots] = [ids.most, ids.usual, ids.slots].map(|count| count.to_string());
    let simulated = match simulated {
        None => "-".into(),
        Some((least, most)) if least == most => most.to_string(),
        Some((least, most)) => format!("{least} to {most}"),
    };
    let [containers, malloc] = [containers_kib, malloc_kib].map(|&kib| size(kib));
    [policy.kernels().into(), most, usual, simulated, slots, containers, malloc]
}

fn advice(answer: &Answer) -> Vec<(&'static str, &str)> {
    let wanted = answer
        .policies
        .iter()
        .filter(|row| answer.kernel.is_none_or(|kernel| kernel == row.policy));
    wanted.filter_map(|row| Some((row.policy.kernels(), row.ids.advice.as_deref()?))).collect()
}

fn text(answer: &Answer, width: usize) -> String {
    let mut grid = console::grid(width);
    grid.set_header(TITLES.map(console::heading));
    for row in &answer.policies {
        let mut cells = cells(row);
        if answer.kernel == Some(row.policy) {
            cells[0] = format!("{} ←", cells[0]);
        }
        grid.add_row(cells);
    }
    console::keep_whole(&mut grid, |_| true);
    let mut text =
        format!("{}: {}\n\n{}", answer.name, summary(&answer.process), console::lines(&grid));
    for (kernel, advice) in advice(answer) {
        text += &format!("\nLinux {kernel}: {advice}\n");
    }
    text + "\nids: numbers below this; usually: after a second; simulated: in random schedules, where rules leave a range. slots: compact, as this library assigns them. containers: 4 KiB\n\
            of each core, for each length of objects. malloc caches: at most; only what the program frees fills them\n"
}

fn page(answers: &[Answer]) -> String {
    let body = html! {
        h1 { "Concurrency ids and per-core memory" }
        @for answer in answers {
            h2 { (answer.name) }
            p { (summary(&answer.process)) }
            div.wide {
                table {
                    tr { @for title in TITLES { th { (title.to_lowercase()) } } }
                    @for row in &answer.policies {
                        tr.chosen[answer.kernel == Some(row.policy)] { @for cell in cells(row) { td { (cell) } } }
                    }
                }
            }
            @for (kernel, advice) in advice(answer) { p { "Linux " (kernel) ": " (advice) } }
        }
    };
    super::html::frame("corelocal lab plan", &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpus("0-2,5", 8).unwrap(), [0, 1, 2, 5]);
        for wrong in ["", "8", "3-1", "0-8", "x", "-", "1,,2"] {
            assert!(cpus(wrong, 8).is_err(), "{wrong}");
        }
    }

    #[test]
    fn kernels() {
        assert_eq!(kernel("6.12.3-cloud").unwrap(), Policy::Lazy);
        assert_eq!(kernel("7.2").unwrap(), Policy::TasksOrCpus);
        assert!(kernel("six").is_err() && kernel("6").is_err());
    }
}
