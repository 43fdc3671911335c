//! Tests of `check.rs`.

use super::*;
use corelocal_lab::check::Line;

fn place(address: u64) -> Place {
    Place {
        address,
        elf_section: ".text".to_owned(),
        function: Some("ring_push+0x4".to_owned()),
        source: vec!["ring.c:42".to_owned(), "main.c:7".to_owned()],
    }
}

fn finding(rule: Rule) -> Finding {
    let line = |address, text: &str, spot| Line { address, text: text.to_owned(), spot };
    Finding {
        rule,
        severity: rule.severity(),
        place: place(0x1004),
        section: Some(0),
        message: "this moves the stack pointer, and an abort does not move it back".to_owned(),
        remedy: rule.remedy(),
        disassembly: vec![line(0xffc, "nop", false), line(0x1004, "push rdx", true)],
    }
}

fn answer(findings: Vec<Finding>) -> Answer {
    let report = Report {
        object: "libring.so".to_owned(),
        architecture: "x86-64".to_owned(),
        decoded: true,
        sections: Vec::new(),
        findings,
        notes: Vec::new(),
    };
    let mut answer = Answer {
        version: "0",
        sections: 0,
        errors: 0,
        warnings: 0,
        files: Vec::new(),
        unreadable: Vec::new(),
    };
    answer.add(
        Checked { reports: vec![report], skipped: Vec::new() },
        &[Rule::Unlisted.id().to_owned()],
    );
    answer
}

fn plain(answer: &Answer, width: usize) -> String {
    anstream::adapter::strip_str(&text(answer, width)).to_string()
}

#[test]
fn a_finding_shows_place_reason_remedy_and_code() {
    let expected = "\
libring.so: x86-64, 0 critical sections
  error: stack in ring_push+0x4 (.text:0x1004)
    at ring.c:42
    inlined at main.c:7
    this moves the stack pointer, and an abort does not move it back
    do: keep values in registers and leave the stack pointer alone
       ffc  nop
    > 1004  push rdx
1 file, 0 sections: 1 error, 0 warnings
";
    assert_eq!(plain(&answer(vec![finding(Rule::Stack)]), 100), expected);
    let narrow = plain(&answer(vec![finding(Rule::Stack)]), 40);
    let longest = narrow.lines().map(str::len).max().unwrap_or(0);
    assert!(longest <= 46, "{narrow}");
}

#[test]
fn a_long_name_keeps_its_ends() {
    let mut long = finding(Rule::Stack);
    long.place.function = Some(format!("push<{}>+0x4", "é".repeat(1000)));
    let text = plain(&answer(vec![long]), 100);
    let line = text.lines().nth(1).unwrap_or_default();
    assert!(
        line.starts_with("  error: stack in push<éé") && line.contains("é>+0x4 (.text"),
        "{line}"
    );
    assert!(line.chars().count() < 130, "{line}");
}

#[test]
fn names_of_a_file_stay_in_their_lines() {
    const FORGED: &str = "f\n1 file, 0 sections: sound\x1b[32m";
    const ESCAPED: &str = "f\\u000a1 file, 0 sections: sound\\u001b[32m";
    let hostile = Place {
        address: 0,
        elf_section: FORGED.to_owned(),
        function: Some(FORGED.to_owned()),
        source: vec![FORGED.to_owned()],
    };
    let mut found = finding(Rule::Stack);
    found.place = hostile.clone();
    found.disassembly[0].text = format!("jmp {FORGED}");
    found.section = Some(0);
    let mut answer = answer(vec![found.clone()]);
    found.place = place(0x1004);
    let section = check::Section {
        descriptor: found.place.clone(),
        start: hostile.clone(),
        length: 8,
        abort: hostile,
        instructions: None,
    };
    let mut report = answer.files[0].reports[0].clone();
    report.object = format!("lib.a({FORGED})");
    (report.sections, report.findings) = (vec![section], vec![found]);
    answer.add(Checked { reports: vec![report], skipped: vec![FORGED.to_owned()] }, &[]);
    let text = text(&answer, 200);
    assert!(!text.contains("\x1b[32m"), "{text}");
    assert!(!text.contains("\n1 file, 0 sections: sound"), "{text}");
    // Function, ELF section, source and target of the first; of the second the same and the object; the member.
    assert_eq!(text.matches(ESCAPED).count(), 4 + 5 + 1, "{text}");
    let json = serde_json::to_string(&answer).unwrap();
    assert!(!json.contains("f\\n1 file"), "{json}");

    // As it is read from a file.
    let mut archive = b"!<arch>\n".to_vec();
    archive.extend(
        format!("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", "f\nsound\x1b[32m/", 0, 0, 0, 0, 2).bytes(),
    );
    archive.extend(b"no");
    let checked = check::bytes("lib.a", &archive).unwrap();
    let mut answer = self::answer(Vec::new());
    answer.add(checked, &[]);
    assert_eq!(answer.files[1].skipped, ["lib.a(f\\u000asound\\u001b[32m)"]);
}

#[test]
fn an_allowed_rule_is_not_counted() {
    let allowed = answer(vec![finding(Rule::Unlisted)]);
    assert_eq!((allowed.errors, allowed.warnings), (0, 0));
    assert!(plain(&allowed, 80).ends_with("1 file, 0 sections: nothing to check\n"));
    let other = answer(vec![finding(Rule::Nodelete)]);
    assert_eq!((other.errors, other.warnings), (0, 1));
}
