//! A static checker of restartable critical sections in ELF files.
//!
//! If a thread is preempted, migrated or signalled inside a critical section, the kernel resumes it at the section's
//! abort handler. The conditions for this to be sound are visible in the machine code: the descriptor, the signature
//! before the handler, one committing store at the very end, and no visible effect before it. This module checks them
//! in the finished file, after compiler, assembler and linker.
//!
//! ```text
//!   elf.rs      the file: sections, relocations, symbols
//!   load.rs     descriptors with resolved addresses, and their code
//!   code.rs     the code of sections, for a model that runs it
//!   arming.rs   which store announces a section
//!   machine/    instructions of x86-64, AArch64 and RISC-V, as the rules see them
//!   decode.rs   one section's instructions and their successors
//!   rules/      one function per rule: a section in, findings out
//!   names.rs    functions and source lines for addresses
//!   report.rs   the findings as data
//! ```
//!
//! Invariants:
//! - The input may be any bytes. Nothing here panics. Files with overlapping sections are refused.
//! - An error is wrong on every kernel, or breaks a section's guarantee. A warning depends on something that is not
//!   in the code.
//!
//! ```no_run
//! let checked = corelocal_lab::check::file("target/release/server".as_ref())?;
//! for finding in checked.reports.iter().flat_map(|report| &report.findings) {
//!     println!("{}: {}", finding.rule.id(), finding.message);
//! }
//! # Ok::<(), corelocal_lab::check::Unreadable>(())
//! ```

mod arming;
pub mod code;
mod decode;
mod distances;
mod elf;
mod load;
pub(crate) mod machine;
mod names;
mod nesting;
mod report;
mod rules;

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use object::read::archive::ArchiveFile;

use corelocal_symbols::input;

pub use report::{Checked, Finding, Line, Place, Report, Rule, Section, Severity};

/// The reason why a file could not be checked, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    why: String,
    is_debug_only: bool,
}

impl Unreadable {
    fn new(why: String) -> Unreadable {
        Unreadable { why, is_debug_only: false }
    }

    /// Returns `true` if the file has debug information only, and its code is in another file.
    pub fn is_debug_only(&self) -> bool {
        self.is_debug_only
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Unreadable {}

/// Checks every critical section in the file at `path`: an executable, a shared object, an object
/// file, or a static archive of object files (a Rust rlib is one).
///
/// # Errors
/// The file cannot be read, or is none of these.
pub fn file(path: &Path) -> Result<Checked, Unreadable> {
    let name = path.display().to_string();
    match input::read(path, input::MOST) {
        Ok(content) => bytes(&name, &content),
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            Err(Unreadable::new(format!("{name} is a folder; name a file in it")))
        }
        Err(error) => {
            Err(Unreadable::new(format!("cannot read {name}: {error}; name another file")))
        }
    }
}

/// Checks `data`, the content of a file called `name` in the report.
///
/// # Errors
/// As [`file()`].
pub fn bytes(name: &str, data: &[u8]) -> Result<Checked, Unreadable> {
    if data.starts_with(&object::archive::THIN_MAGIC) {
        return Err(Unreadable::new(format!(
            "{name} is a thin archive, which holds no code; name the object files it refers to"
        )));
    }
    if data.starts_with(&object::archive::MAGIC) {
        return archive(name, data);
    }
    Ok(Checked { reports: vec![one(name, data)?], skipped: Vec::new() })
}

/// Returns the code of the critical sections in an ELF file, without those that cannot be decoded.
///
/// # Errors
/// It is no ELF file.
pub fn sections(name: &str, data: &[u8]) -> Result<Vec<code::Code>, Unreadable> {
    let elf = elf::Elf::parse(data).map_err(|why| Unreadable::new(format!("{name}: {why}")))?;
    Ok(code::of(&elf))
}

fn one(name: &str, data: &[u8]) -> Result<Report, Unreadable> {
    let elf = elf::Elf::parse(data).map_err(|why| Unreadable::new(format!("{name}: {why}")))?;
    if elf.is_debug_only() {
        let why = format!(
            "{name} has debug information only, and no code; name the program or the library that it was split from"
        );
        return Err(Unreadable { why, is_debug_only: true });
    }
    Ok(rules::run(name, &load::Image::load(&elf)))
}

fn archive(name: &str, data: &[u8]) -> Result<Checked, Unreadable> {
    let damaged =
        |error| Unreadable::new(format!("{name} is a damaged archive ({error}); build it again"));
    let mut checked = Checked::default();
    for member in ArchiveFile::parse(data).map_err(damaged)?.members() {
        let member = member.map_err(damaged)?;
        let content = member.data(data).map_err(damaged)?;
        let member = format!("{name}({})", String::from_utf8_lossy(member.name()));
        if content.starts_with(b"\x7fELF") {
            checked.reports.push(one(&member, content)?);
        } else {
            checked.skipped.push(member);
        }
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_named() {
        let why = |path: &str| file(Path::new(path)).unwrap_err().to_string();
        assert_eq!(why("/"), "/ is a folder; name a file in it");
        assert!(
            why("/dev/zero").starts_with("cannot read /dev/zero: it is neither"),
            "{}",
            why("/dev/zero")
        );
    }
}
