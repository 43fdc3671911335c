//! `corelocal torture`: the library's critical sections disturbed at every instruction, or at random
//! and at full speed with `--for`.
//!
//! Exit codes: 0 nothing wrong; 1 a violation, or a section that was forgotten; 2 the command line is
//! wrong; 3 it cannot be tried here (ptrace refused, no critical sections).
//!
//! Invariants:
//! - What is disturbed is this same program in another process, called by a hidden subcommand.
//! - Progress is drawn on standard error, and only when that is a terminal.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use corelocal_lab::torture::storm::{self, Totals};
use corelocal_lab::torture::{
    self, Disturbance, Exclusion, Obstacle, Plan, Report, Row, Section, Verdict,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cli::{TortureArgs, VictimArgs};
use crate::output::{self, complain};
use crate::report::{figures::wrap, term};

/// The hidden subcommand.
pub const VICTIM: &str = "__torture-victim";

const UNABLE: u8 = 3;

/// A storm that says nothing for so long hangs.
const SILENCE: Duration = Duration::from_secs(30);

const EXCLUDED: [Exclusion; 1] = [Exclusion {
    function: "corelocal_c_add",
    reason: "the contestant in C of the benchmark tables",
}];

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const OK: Style = AnsiColor::Green.on_default();
const FAIL: Style = AnsiColor::Red.on_default().bold();
const SKIPPED: Style = AnsiColor::Yellow.on_default();

/// The command.
pub fn run(args: &TortureArgs) -> anyhow::Result<ExitCode> {
    match args.time {
        Some(time) => rage(time, args.json),
        None => enumerate(args),
    }
}

/// The process that is disturbed.
pub fn victim(args: &VictimArgs) -> anyhow::Result<ExitCode> {
    // SAFETY: this option takes a signal number and touches no memory of ours. It is best effort:
    // without it the process ends when its input or its time does.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let Some(millis) = args.storm else {
        torture::victim(&torture::library());
        return Ok(ExitCode::SUCCESS);
    };
    let tell = &mut |totals: &Totals| {
        if let Ok(line) = serde_json::to_string(totals) {
            let _ = output::print(format_args!("{line}\n"));
        }
    };
    storm::rage(Duration::from_millis(millis), args.seed, tell);
    Ok(ExitCode::SUCCESS)
}

fn victim_command() -> anyhow::Result<Command> {
    let program = std::env::current_exe().context(
        "this program cannot find its own file, which it needs for a child process; is /proc \
         mounted?",
    )?;
    let mut command = Command::new(program);
    command.arg(VICTIM);
    Ok(command)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    version: &'static str,
    triples: usize,
    ok: usize,
    failed: usize,
    not_reached: usize,
    skipped: usize,
    seconds: f64,
    #[serde(flatten)]
    report: &'a Report,
}

impl Answer<'_> {
    fn new(report: &Report, seconds: f64) -> Answer<'_> {
        Answer {
            version: env!("CARGO_PKG_VERSION"),
            triples: report.count(|_| true),
            ok: report.count(|verdict| *verdict == Verdict::Ok),
            failed: report.count(|verdict| matches!(verdict, Verdict::Failed(_))),
            not_reached: report.count(|verdict| *verdict == Verdict::NotReached),
            skipped: report.count(|verdict| matches!(verdict, Verdict::Skipped(_))),
            seconds,
            report,
        }
    }
}

/// Every instruction, every disturbance.
fn enumerate(args: &TortureArgs) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let (workloads, command) = (torture::library(), victim_command()?);
    let victim = || {
        let mut fresh = Command::new(command.get_program());
        fresh.args(command.get_args());
        fresh
    };
    let bar = bar();
    let plan =
        Plan { workloads: &workloads, victim: &victim, excluded: &EXCLUDED, selection: &args.only };
    let report = torture::run(&plan, &mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        bar.set_message("triples");
    });
    bar.finish_and_clear();
    let report = match report {
        Ok(report) => report,
        Err(obstacle) => {
            complain(&obstacle);
            return Ok(ExitCode::from(match obstacle {
                Obstacle::Selection(_) => 2,
                Obstacle::Unable(_) => UNABLE,
            }));
        }
    };
    let code = if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let answer = Answer::new(&report, began.elapsed().as_secs_f64());
    if args.json {
        return output::finish(serde_json::to_string_pretty(&answer)? + "\n", code);
    }
    output::finish(text(&answer, term::width()), code)
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("  {bar:24} {percent:>3}%  {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::no_length().with_style(style)
}

fn text(answer: &Answer<'_>, width: usize) -> String {
    let mut out = String::new();
    for section in &answer.report.sections {
        matrix(&mut out, section, width);
    }
    coverage(&mut out, answer.report, width);
    let Answer { triples, ok, failed, not_reached, skipped, seconds, .. } = answer;
    let plural = if *triples == 1 { "" } else { "s" };
    let _ = write!(out, "{BOLD}{triples} triple{plural}{BOLD:#}: {ok} ok, {failed} failed, ");
    let _ = writeln!(out, "{not_reached} not reached, {skipped} skipped, in {seconds:.1} s");
    out
}

/// One section: a line for each instruction, a column for each disturbance, then what failed.
fn matrix(out: &mut String, section: &Section, width: usize) {
    if let Some(why) = &section.broken {
        let _ = writeln!(out, "{BOLD}{}{BOLD:#}\n  {FAIL}FAIL{FAIL:#} {why}\n", section.name);
        return;
    }
    let _ = writeln!(out, "{BOLD}{}{BOLD:#} {DIM}in {}{DIM:#}", section.name, section.function);
    let columns: Vec<Disturbance> = Disturbance::ALL
        .into_iter()
        .filter(|&d| section.rows.iter().any(|row| row.tried.iter().any(|t| t.disturbance == d)))
        .collect();
    let taken: usize = columns.iter().map(|column| 2 + column.name().len()).sum();
    let room = width.saturating_sub(taken + 7).max(20);
    let code = section.rows.iter().map(|row| row.instruction.chars().count()).max().unwrap_or(0);
    let code = code.min(room);
    let _ = write!(out, "{DIM}{:w$}", "", w = code + 6);
    for column in &columns {
        let _ = write!(out, "  {column}");
    }
    let _ = writeln!(out, "{DIM:#}");
    for row in &section.rows {
        let instruction = shorten(&row.instruction, code);
        let mut line = format!("{:4}  {instruction:code$}", row.number);
        for column in &columns {
            let (word, style) = cell(row, *column);
            let _ = write!(line, "  {style}{word}{style:#}");
            let gap = column.name().len().saturating_sub(word.chars().count());
            let _ = write!(line, "{:gap$}", "");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    for row in &section.rows {
        for tried in &row.tried {
            if let Verdict::Failed(why) = &tried.verdict {
                let triple = format!("{}@{}+{}", section.name, row.number, tried.disturbance);
                let why = wrap(&format!("FAIL {triple}: {why}"), width.saturating_sub(2), 5);
                let why = why.replacen("FAIL", &format!("{FAIL}FAIL{FAIL:#}"), 1);
                let _ = writeln!(out, "  {}", why.replace('\n', "\n  "));
                let _ = writeln!(out, "       again: corelocal torture --only '{triple}'");
            }
        }
    }
    out.push('\n');
}

fn cell(row: &Row, column: Disturbance) -> (&'static str, Style) {
    let tried = row.tried.iter().find(|tried| tried.disturbance == column);
    match tried.map(|tried| &tried.verdict) {
        Some(Verdict::Ok) => ("ok", OK),
        Some(Verdict::Failed(_)) => ("FAIL", FAIL),
        Some(Verdict::NotReached) => ("never", FAIL),
        Some(Verdict::Skipped(_)) => ("–", SKIPPED),
        None => ("", Style::new()),
    }
}

fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// What else there is in the program, and what was not tried.
fn coverage(out: &mut String, report: &Report, width: usize) {
    let coverage = &report.coverage;
    let mut paragraph = |style: Style, text: String| {
        let _ = writeln!(out, "{style}{}{style:#}", wrap(&text, width, 2));
    };
    let mut sum = format!(
        "{} critical sections in this program: {} reached by workloads, {} inlined copies of these",
        coverage.sections, coverage.disturbed, coverage.alike
    );
    for excluded in coverage.excluded.iter().filter(|excluded| excluded.sections > 0) {
        let _ = write!(sum, ", {} excluded ({})", excluded.sections, excluded.reason);
    }
    paragraph(Style::new(), sum);
    let skipped = report.sections.iter().flat_map(|section| &section.rows);
    let skipped = skipped.flat_map(|row| &row.tried).find_map(|tried| match &tried.verdict {
        Verdict::Skipped(why) => Some(format!("skipped: {}: {why}", tried.disturbance)),
        _ => None,
    });
    skipped.into_iter().for_each(|text| paragraph(SKIPPED, text));
    paragraph(DIM, "no process is killed in a section: no structure lives in shared memory".into());
    for forgotten in &coverage.unreached {
        let (function, address) = (&forgotten.function, forgotten.address);
        paragraph(
            FAIL,
            format!(
                "no workload reaches the section in {function} ({address:#x}: {}); give it one in \
                 crates/corelocal-lab/src/torture/workload.rs",
                forgotten.instructions
            ),
        );
    }
    for name in &coverage.idle {
        paragraph(FAIL, format!("the workload {name} passes through no critical section"));
    }
}

/// Everything at random, at full speed, in a process that may crash.
fn rage(time: Duration, json: bool) -> anyhow::Result<ExitCode> {
    let seed = std::process::id();
    let mut command = victim_command()?;
    command.arg("--storm").arg(time.as_millis().to_string()).arg("--seed").arg(seed.to_string());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("the process to be disturbed could not be started")?;
    let lines = child.stdout.take().map(BufReader::new).context("no standard output")?;
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let totals = lines.lines().map_while(Result::ok);
        for totals in totals.filter_map(|line| serde_json::from_str::<Totals>(&line).ok()) {
            if tell.send(totals).is_err() {
                break;
            }
        }
    });

    let bar = bar();
    bar.set_length(time.as_millis() as u64);
    let (began, mut totals) = (Instant::now(), Totals::default());
    let hangs = loop {
        match told.recv_timeout(SILENCE) {
            Ok(news) => totals = news,
            Err(mpsc::RecvTimeoutError::Timeout) => break true,
            Err(mpsc::RecvTimeoutError::Disconnected) => break false,
        }
        bar.set_position(began.elapsed().as_millis() as u64);
        let (operations, aborts) = (millions(totals.operations.total()), totals.aborts);
        bar.set_message(format!("{operations} operations, {aborts} aborts"));
    };
    bar.finish_and_clear();
    if hangs {
        let _ = child.kill();
        totals.violations.push(format!("it hung for {} s", SILENCE.as_secs()));
    }
    let status = child.wait().context("the disturbed process cannot be waited for")?;
    if !status.success() && !hangs {
        totals.violations.push(format!("the disturbed process ended early: {status}"));
    }
    let clean = totals.violations.is_empty();
    let code = if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if json {
        return output::finish(serde_json::to_string_pretty(&totals)? + "\n", code);
    }
    output::finish(storm_text(&totals, began.elapsed()), code)
}

fn millions(n: u64) -> String {
    format!("{:.1} million", n as f64 / 1e6)
}

fn storm_text(totals: &Totals, time: Duration) -> String {
    let mut out = String::new();
    let operations = &totals.operations;
    let kinds = format!(
        "{} add, {} get, {} take; {} record, {} get of a maximum; {} containers made and dropped",
        operations.adds,
        operations.gets,
        operations.takes,
        operations.records,
        operations.maxima,
        operations.lives
    );
    let lines = [
        ("operations", operations.total(), kinds),
        ("aborts", totals.aborts, "sections that the kernel sent back".to_owned()),
        ("fallbacks", totals.fallbacks, "operations that used atomics in the end".to_owned()),
        ("signals", totals.signals, "whose handlers operated too".to_owned()),
        ("moves", totals.moves, "changes of a thread's affinity".to_owned()),
        ("threads", totals.threads, format!("{} without a registration", totals.unregistered)),
        ("forks", totals.forks, "whose children operated too".to_owned()),
        ("violations", totals.violations.len() as u64, String::new()),
    ];
    for (name, count, what) in lines {
        let line = format!("{name:10}{count:>14}  {DIM}{what}{DIM:#}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    for violation in &totals.violations {
        let _ = writeln!(out, "{FAIL}FAIL{FAIL:#} {violation}");
    }
    let _ = writeln!(out, "in {:.1} s", time.as_secs_f64());
    out
}

/// A time as people write it: `90s`, `500ms`, `5m`, `1h`; a bare number is seconds.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let millis = match &text[digits.len()..] {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let time = digits.parse::<u64>().ok().zip(millis).and_then(|(n, unit)| n.checked_mul(unit));
    match time {
        // A day is more than anybody waits, and far from where clocks overflow.
        Some(millis @ 1..=86_400_000) => Ok(Duration::from_millis(millis)),
        _ => Err("give a time up to a day, as 60s, 500ms or 5m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelocal_lab::torture::{Coverage, Place, Tried, Unreached};

    fn report(verdicts: &[Verdict]) -> Report {
        let tried = Disturbance::ALL.into_iter().zip(verdicts);
        let tried =
            tried.map(|(disturbance, verdict)| Tried { disturbance, verdict: verdict.clone() });
        let row = Row {
            number: 3,
            address: 0x1000,
            instruction: "add qword ptr [rax], rbx".to_owned(),
            place: Place::Inside,
            tried: tried.collect(),
        };
        let section = Section {
            name: "counter/add".to_owned(),
            function: "operate".to_owned(),
            broken: None,
            rows: vec![row],
        };
        let coverage = Coverage { sections: 3, disturbed: 1, alike: 2, ..Coverage::default() };
        Report { sections: vec![section], coverage }
    }

    fn plain(report: &Report, width: usize) -> String {
        anstream::adapter::strip_str(&text(&Answer::new(report, 1.0), width)).to_string()
    }

    #[test]
    fn a_failure_says_how_to_see_it_again() {
        let failed = Verdict::Failed("it was lost".to_owned());
        let report = report(&[Verdict::Ok, failed]);
        let expected = "\
counter/add in operate
                                stop  signal
   3  add qword ptr [rax], rbx  ok    FAIL
  FAIL counter/add@3+signal: it was lost
       again: corelocal torture --only 'counter/add@3+signal'

3 critical sections in this program: 1 reached by workloads, 2 inlined copies of these
no process is killed in a section: no structure lives in shared memory
2 triples: 1 ok, 1 failed, 0 not reached, 0 skipped, in 1.0 s
";
        assert_eq!(plain(&report, 100), expected);
        assert!(!report.is_clean());
    }

    #[test]
    fn a_matrix_fits_80_columns() {
        let mut report = report(&[const { Verdict::Ok }; 6]);
        report.sections[0].rows[0].instruction = "x".repeat(200);
        let text = plain(&report, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(report.is_clean());
    }

    #[test]
    fn a_forgotten_section_is_no_success() {
        let mut report = report(&[Verdict::Ok]);
        report.coverage.unreached.push(Unreached {
            function: "ring_push".to_owned(),
            address: 0x2000,
            instructions: "cmp mov".to_owned(),
        });
        assert!(!report.is_clean());
        assert!(plain(&report, 100).contains("no workload reaches the section in ring_push"));
    }

    #[test]
    fn times() {
        for (text, millis) in [("60s", 60_000), ("5", 5000), ("250ms", 250), ("2m", 120_000)] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "s", "0", "-1s", "5 s", "1d", "99999999999999999999s", "5é", "25h"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
