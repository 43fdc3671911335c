//! Files for other processors, linked by a cross compiler.

use std::process::Command;

use corelocal_lab::check::Finding;

use super::{Report, Rule, TempDir, rules, skip};

/// A processor.
pub struct Machine {
    pub compiler: &'static str,
    pub options: &'static [&'static str],
    /// Returns the text of a file with this section.
    pub assembly: fn(&Section) -> String,
}

/// The parts of a section that a fault replaces: its body, what comes after it, the handler, and declarations.
#[derive(Clone, Copy)]
pub struct Section {
    pub signature: &'static str,
    pub body: &'static str,
    pub after: &'static str,
    pub handler: &'static str,
    pub prepared: &'static str,
}

/// Checks a shared object with this section; the reason if there is no compiler.
fn check(machine: &Machine, section: &Section) -> Result<Report, String> {
    let folder = TempDir::new().map_err(|error| error.to_string())?;
    let at = |name: &str| folder.path().join(name);
    let assembly = (machine.assembly)(section);
    std::fs::write(at("section.s"), assembly).map_err(|error| error.to_string())?;
    let compile = |args: &[&str]| -> Result<(), String> {
        let mut compiler = Command::new(machine.compiler);
        let output = compiler.args(machine.options).args(args).current_dir(&folder).output();
        let output = output.map_err(|error| format!("no {}: {error}", machine.compiler))?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    compile(&["-shared", "-nostdlib", "-Wl,-z,nodelete", "section.s", "-o", "section.so"])?;
    let mut checked = corelocal_lab::check::file(&at("section.so")).expect("a readable file");
    assert_eq!(checked.reports.len(), 1);
    // What an object file says is the same, but for addresses that instructions compute: the linker puts them in.
    compile(&["-c", "section.s", "-o", "section.o"])?;
    let object = corelocal_lab::check::file(&at("section.o")).expect("a readable file");
    let shared = checked.reports.remove(0);
    assert_eq!(object.reports.len(), 1);
    let proved = |report: &Report| -> Vec<Rule> {
        rules(report).into_iter().filter(|rule| *rule != Rule::RetryUnproved).collect()
    };
    assert_eq!(proved(&object.reports[0]), proved(&shared), "{:?}", object.reports[0].findings);
    Ok(shared)
}

/// Asserts what is found in each of these sections, and only that.
pub fn finds(test: &str, machine: &Machine, sections: &[(&str, Section, &[Rule])]) {
    for (what, section, expected) in sections {
        let report = match check(machine, section) {
            Ok(report) => report,
            Err(reason) => return skip(test, &reason),
        };
        assert!(report.decoded && report.sections.len() == 1);
        assert_eq!(rules(&report), *expected, "{what}: {:?}", report.findings);
        let shows = |finding: &Finding| {
            finding.rule == Rule::Undecodable || !finding.disassembly.is_empty()
        };
        assert!(report.findings.iter().all(shows), "{what}");
    }
}
