//! The static checker, on files made here: each fault alone, the sound shapes, and damaged files.
//!
//! Files are assembled with the C compiler while the tests run; where there is none for x86-64 the
//! tests that need one say so.

mod aarch64;
mod cross;
mod damaged;
mod faults;
#[cfg(any(feature = "riscv", target_arch = "riscv64"))]
mod riscv64;
mod sound;

use std::path::PathBuf;
use std::process::Command;

use corelocal_lab::check::{Report, Rule, Severity};
use tempfile::TempDir;

/// A section in assembly, in parts that a test can replace.
#[derive(Clone, Copy)]
struct Section {
    /// Version and flags.
    head: &'static str,
    start: &'static str,
    length: &'static str,
    abort: &'static str,
    /// Between the store to rseq_cs and the end.
    body: &'static str,
    /// Right after the end.
    after: &'static str,
    signature: &'static str,
    handler: &'static str,
    /// Instructions declared to be preparations, by their labels.
    prepared: &'static str,
    /// The pointer array, and anything else.
    rest: &'static str,
}

const LISTED: &str = ".section __rseq_cs_ptr_array, \"aw\"\n .quad 3b\n";

/// A counter's increment: sound.
const SOUND: Section = Section {
    head: ".long 0, 0",
    start: "4f",
    length: "5f - 4f",
    abort: "6f",
    body: "mov %fs:4(%rdi), %eax\n shl $16, %rax\n addq %rdx, (%rsi, %rax)\n",
    after: "xor %eax, %eax\n ret\n",
    signature: ".byte 0x0f, 0xb9, 0x3d\n .long 0x53053053\n",
    handler: "mov $1, %eax\n ret\n",
    prepared: "",
    rest: LISTED,
};

impl Section {
    fn assembly(&self) -> String {
        let Section { head, start, length, abort, body, after, signature, handler, prepared, rest } =
            self;
        // Each entry is the distance from itself.
        let prepared: String = prepared
            .split_terminator(", ")
            .map(|label| format!(".section __rseq_prepare, \"a\"\n .long {label} - .\n"))
            .collect();
        format!(
            ".section __rseq_cs, \"aw\"\n .balign 32\n 3: {head}\n .quad {start}, {length}, {abort}\n\
             .text\n .globl add\n .hidden add\n .type add, @function\n\
             add: lea 3b(%rip), %rax\n mov %rax, %fs:8(%rdi)\n\
             4: {body}\n 5: {after}\n .size add, . - add\n\
             .section __rseq_failure, \"ax\"\n {signature}\n 6: {handler}\n nop\n\
             {prepared}\n {rest}\n .section .note.GNU-stack, \"\"\n"
        )
    }
}

/// What becomes of the assembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum As {
    Object,
    Shared,
    SharedForEver,
    Archive,
}

const EVERY: [As; 4] = [As::Object, As::Shared, As::SharedForEver, As::Archive];

/// A file, and the folder it lies in.
struct Built {
    path: PathBuf,
    _folder: TempDir,
}

/// Assembles `text`; the reason if that cannot be done here.
fn build(text: &str, kind: As) -> Result<Built, String> {
    if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
        return Err("the files are made for x86-64 Linux".to_owned());
    }
    let folder = TempDir::new().map_err(|error| error.to_string())?;
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("section.s"), text).map_err(|error| error.to_string())?;
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(&folder).output();
        let output = output.map_err(|error| format!("no {program}: {error}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {args:?}: {errors}\n{text}");
        Ok::<(), String>(())
    };
    let name = match kind {
        As::Object | As::Archive => {
            run("cc", &["-c", "section.s", "-o", "section.o"])?;
            "section.o"
        }
        As::Shared => {
            run("cc", &["-shared", "-nostdlib", "section.s", "-o", "section.so"])?;
            "section.so"
        }
        As::SharedForEver => {
            let args = ["-shared", "-nostdlib", "-Wl,-z,nodelete", "section.s", "-o", "section.so"];
            run("cc", &args)?;
            "section.so"
        }
    };
    if kind == As::Archive {
        run("ar", &["rc", "libsection.a", "section.o"])?;
        return Ok(Built { path: at("libsection.a"), _folder: folder });
    }
    Ok(Built { path: at(name), _folder: folder })
}

/// Checks `text` built as `kind`.
fn check(text: &str, kind: As) -> Result<Report, String> {
    let built = build(text, kind)?;
    let mut checked = corelocal_lab::check::file(&built.path).expect("a readable file");
    assert_eq!(checked.reports.len(), 1);
    Ok(checked.reports.remove(0))
}

/// The rules that found something.
fn rules(report: &Report) -> Vec<Rule> {
    report.findings.iter().map(|finding| finding.rule).collect()
}

/// Says that `test` could not run here; `ci/test` counts such lines.
fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
}
