//! What came out of a run, as data.

use serde::Serialize;

use super::select::Disturbance;

/// The result of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Each section that was disturbed, in each workload that reaches it.
    pub sections: Vec<Section>,
    /// What the program's other sections are.
    pub coverage: Coverage,
}

/// A section as one workload reaches it.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Its name: that of the workload, and `-again` for the copy that runs after an abort.
    pub name: String,
    /// The function it is in.
    pub function: String,
    /// What was wrong with its first operations. A sentence; nothing else was tried then.
    pub broken: Option<String>,
    /// Its instructions, and some before and after it.
    pub rows: Vec<Row>,
}

/// An instruction.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its number; 0 is the first of the section.
    pub number: i64,
    /// Its address in the file.
    pub address: u64,
    /// In Intel syntax.
    pub instruction: String,
    /// Where it lies.
    pub place: Place,
    /// What was tried there.
    pub tried: Vec<Tried>,
}

/// Where an instruction lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Before the section: a thread stopped there is not aborted.
    Before,
    /// In it: a thread stopped there is aborted, it has not committed.
    Inside,
    /// Right after it: a thread stopped there has committed or left.
    Past,
}

/// A triple.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// What was done.
    pub disturbance: Disturbance,
    /// What came of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What came of a triple.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "why", rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything as it must be.
    Ok,
    /// A violation. A sentence.
    Failed(String),
    /// The thread never came there, nor did any other workload's.
    NotReached,
    /// It cannot be tried here. A sentence.
    Skipped(String),
}

/// How the sections of the program relate to those that were disturbed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Coverage {
    /// All sections of the program.
    pub sections: usize,
    /// Those that were disturbed.
    pub disturbed: usize,
    /// Other inlined copies of the same instructions.
    pub alike: usize,
    /// Those that need not be.
    pub excluded: Vec<Excluded>,
    /// Those that were forgotten.
    pub unreached: Vec<Unreached>,
    /// Workloads that pass through no section.
    pub idle: Vec<&'static str>,
}

/// Sections that need not be disturbed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excluded {
    /// How the names of the functions they are in begin.
    pub function: &'static str,
    /// How many.
    pub sections: usize,
    /// Why.
    pub reason: &'static str,
}

/// A section that no workload reaches and that is like none that one reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreached {
    /// The function it is in.
    pub function: String,
    /// Its address in the file.
    pub address: u64,
    /// The names of its instructions.
    pub instructions: String,
}

impl Report {
    /// How many triples there are of which `wanted` says yes.
    pub fn count(&self, wanted: impl Fn(&Verdict) -> bool) -> usize {
        self.verdicts().filter(|verdict| wanted(verdict)).count()
    }

    /// Whether every triple was reached and went as it must, and no section was forgotten.
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
