//! The results of a run, as data.

use serde::Serialize;

use super::select::Disturbance;

/// The result of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The sections that were disturbed, in each workload that reaches them.
    pub sections: Vec<Section>,
    /// The program's other sections.
    pub coverage: Coverage,
}

/// A section, for one workload that reaches it.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// The section's name: that of the workload, with `-again` for the copy that runs after an abort.
    pub name: String,
    /// The function that contains it.
    pub function: String,
    /// The violation in its first operations, as a sentence. No triples were tried then.
    pub broken: Option<String>,
    /// The section's instructions, and some before and after it.
    pub rows: Vec<Row>,
}

/// An instruction.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The instruction's number. The first one of the section has 0.
    pub number: i64,
    /// The address in the file.
    pub address: u64,
    /// The instruction in Intel syntax.
    pub instruction: String,
    /// The position relative to the section.
    pub place: Place,
    /// The triples tried there.
    pub tried: Vec<Tried>,
}

/// The position of an instruction relative to its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Before the section: a thread stopped there is not aborted.
    Before,
    /// In it: a thread stopped there has not committed, and is aborted.
    Inside,
    /// Right after it: a thread stopped there has committed or left.
    Past,
}

/// A triple.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// The disturbance.
    pub disturbance: Disturbance,
    /// The outcome.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// The outcome of a triple.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "why", rename_all = "kebab-case")]
pub enum Verdict {
    /// All conditions held.
    Ok,
    /// A violation, as a sentence.
    Failed(String),
    /// No workload brought a thread to this instruction.
    NotReached,
    /// The triple cannot be tried on this machine; the reason is a sentence.
    Skipped(String),
}

/// The relation of the program's sections to those that were disturbed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Coverage {
    /// The number of sections of the program.
    pub sections: usize,
    /// The number of sections that were disturbed.
    pub disturbed: usize,
    /// The number of other inlined copies of the same instructions.
    pub alike: usize,
    /// Sections that are excluded.
    pub excluded: Vec<Excluded>,
    /// Sections that no workload reaches.
    pub unreached: Vec<Unreached>,
    /// Workloads that pass through no section.
    pub idle: Vec<&'static str>,
}

/// Sections that are excluded from a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excluded {
    /// The prefix of the names of the functions that contain them.
    pub function: &'static str,
    /// Their number.
    pub sections: usize,
    /// The reason.
    pub reason: &'static str,
}

/// A section that no workload reaches, and that is unlike all those that are reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreached {
    /// The function that contains it.
    pub function: String,
    /// The address in the file.
    pub address: u64,
    /// The names of its instructions.
    pub instructions: String,
}

impl Report {
    /// Returns the number of triples whose outcome is `wanted`.
    pub fn count(&self, wanted: impl Fn(&Verdict) -> bool) -> usize {
        self.verdicts().filter(|verdict| wanted(verdict)).count()
    }

    /// Returns `true` if every triple was reached without a violation, and no section was missed.
    pub fn is_clean(&self) -> bool {
        let bad = |verdict: &Verdict| matches!(verdict, Verdict::Failed(_) | Verdict::NotReached);
        let Coverage { unreached, idle, .. } = &self.coverage;
        let sound = self.sections.iter().all(|section| section.broken.is_none());
        sound && unreached.is_empty() && idle.is_empty() && self.count(bad) == 0
    }

    fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        let rows = self.sections.iter().flat_map(|section| &section.rows);
        rows.flat_map(|row| &row.tried).map(|tried| &tried.verdict)
    }
}
