//! The checker's results as data. The command formats them for a terminal.

use std::fmt;

use serde::{Serialize, Serializer};

/// The results for one file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Checked {
    /// The reports: one for a program, shared object or object file; one per member of an archive.
    pub reports: Vec<Report>,
    /// Members of an archive that are not ELF files, and were not checked.
    pub skipped: Vec<String>,
}

/// The results for one object.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The file, or for a member of an archive `archive(member)`.
    pub object: String,
    /// The usual name of its architecture.
    pub architecture: String,
    /// Whether instructions were decoded. Otherwise only the descriptors were checked.
    pub decoded: bool,
    /// Its critical sections.
    pub sections: Vec<Section>,
    /// Findings, worst first, then by address.
    pub findings: Vec<Finding>,
    /// Notes on what could not be checked, with the reasons.
    pub notes: Vec<String>,
}

/// A critical section: the kernel's `struct rseq_cs`.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// The address of the descriptor.
    pub descriptor: Place,
    /// `start_ip`.
    pub start: Place,
    /// `post_commit_offset`, in bytes.
    pub length: u64,
    /// `abort_ip`.
    pub abort: Place,
    /// The number of instructions, if they were decoded.
    pub instructions: Option<usize>,
}

/// An address, and its names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The address in the file; in an object file, whose sections have no addresses yet, the offset in its ELF
    /// section.
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    /// The name of the ELF section.
    pub elf_section: String,
    /// The demangled function that contains it, with the offset.
    pub function: Option<String>,
    /// Source lines, innermost inlined call first. Empty without debug information.
    pub source: Vec<String>,
}

/// A fault, or a possible one.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The rule that it breaks.
    pub rule: Rule,
    /// Whether it is certainly wrong.
    pub severity: Severity,
    /// The instruction or the data that it is about.
    pub place: Place,
    /// The index in [`Report::sections`], if it is about one of them.
    pub section: Option<usize>,
    /// The message: what is wrong.
    pub message: String,
    /// The remedy.
    pub remedy: &'static str,
    /// The instructions around the place.
    pub disassembly: Vec<Line>,
}

/// A disassembled instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The address, as in [`Place::address`].
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    /// The instruction's text in Intel syntax.
    pub text: String,
    /// Whether it is the instruction of the finding.
    pub spot: bool,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Wrong on every kernel, or a section that breaks its own guarantee.
    Error,
    /// Right or wrong depending on something that is not in the code.
    Warning,
}

macro_rules! rules {
    ($($name:ident $id:literal $severity:ident $what:literal $remedy:literal;)+) => {
        /// The rules, with the names that `corelocal check` prints.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rule {
            $(#[doc = $what] $name,)+
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Rule] = &[$(Rule::$name,)+];

            /// Returns its name in output and documents.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self { $(Rule::$name => $id,)+ }
            }

            /// Returns the severity of its findings.
            #[must_use]
            pub fn severity(self) -> Severity {
                match self { $(Rule::$name => Severity::$severity,)+ }
            }

            /// Returns how to fix a finding.
            #[must_use]
            pub fn remedy(self) -> &'static str {
                match self { $(Rule::$name => $remedy,)+ }
            }
        }
    };
}

rules! {
    Version "version" Error
        "The descriptor's version is not 0; the kernel kills the thread."
        "write 0 into the descriptor's first word";
    Flags "flags" Error
        "The descriptor has flags; kernels since commit 0190e4198e47 kill the thread."
        "write 0 into the descriptor's second word; the flags were withdrawn";
    Layout "layout" Error
        "`__rseq_cs` does not consist of whole descriptors."
        "put only 32-byte descriptors into __rseq_cs, each after .balign 32";
    Range "range" Error
        "Start and length do not describe a range of executable code."
        "take start_ip and the length from labels of one block of assembly";
    AbortInside "abort-inside" Error
        "The abort handler lies in the section; the kernel kills the thread."
        "put the abort handler behind the end or into another section";
    AbortNotCode "abort-not-code" Error
        "The abort handler is not executable code."
        "point abort_ip at a label of the abort handler";
    Signature "signature" Error
        "The signature before the abort handler is missing or wrong; the kernel kills the thread."
        "place the registered signature in the 4 bytes right before the label of abort_ip";
    Unlisted "unlisted" Warning
        "No entry of `__rseq_cs_ptr_array` names the descriptor."
        "add its address to __rseq_cs_ptr_array, and a .reloc against that entry to keep it under --gc-sections; debuggers look there";
    StrayEntry "stray-entry" Warning
        "An entry of `__rseq_cs_ptr_array` names no descriptor in `__rseq_cs`."
        "let each entry hold the address of one descriptor in __rseq_cs";
    Duplicate "duplicate" Warning
        "Two descriptors describe the same code."
        "give each copy of the code labels of its own, and one descriptor";
    Overlap "overlap" Error
        "Two sections overlap in part."
        "end one section before the next begins";
    Nodelete "nodelete" Warning
        "A shared object with sections can be unloaded while a thread's rseq_cs still names one."
        "link with -z nodelete, or let the object keep itself loaded and declare it by a section __rseq_stays";
    Undecodable "undecodable" Error
        "Bytes in the section are not a valid instruction."
        "keep data out of the section and check its labels";
    Boundary "boundary" Error
        "The end, or the target of a branch, is in the middle of an instruction."
        "take ends and targets from labels";
    Call "call" Error
        "The section contains a call, system call, interrupt or trap."
        "do it before the section or after it";
    Stack "stack" Error
        "The section moves the stack pointer; after an abort its value is unknown."
        "keep values in registers and leave the stack pointer alone";
    IndirectBranch "indirect-branch" Error
        "The section contains a jump to a computed address, or a return."
        "branch to labels, and return after the section";
    Locked "locked" Error
        "The section contains a locked instruction."
        "use the plain instruction: during a section no other thread runs on this cpu; keep data that other \
         cpus change out of the section";
    NeverLeaves "never-leaves" Error
        "A path through the section never leaves it."
        "let every path reach the end or an exit";
    NoCommit "no-commit" Warning
        "The section stores nothing."
        "end the section with its store, or declare in __rseq_prepare, by its first instruction, that it only reads";
    CommitOutside "commit-outside" Error
        "The section ends before the store that follows it."
        "move the end label behind the committing store";
    CommitNotLast "commit-not-last" Error
        "Instructions follow the committing store; after an abort there, a retry commits again."
        "make the committing store the last instruction";
    CommitInParts "commit-in-parts" Error
        "The committing store is a repeated string instruction, which can be interrupted half-way."
        "commit with a single store";
    StoreBeforeCommit "store-before-commit" Warning
        "A store precedes the committing one."
        "if no other thread reads that memory before the commit, declare the store in __rseq_prepare; otherwise \
         make it the commit";
    StrayPrepare "stray-prepare" Warning
        "An entry of `__rseq_prepare` names neither a store before the commit of a section nor the first instruction \
         of one that stores nothing."
        "let each entry hold the distance from itself to such an instruction";
    UpdateBeforeCommit "update-before-commit" Error
        "Memory is read, modified and written before the commit; each retry does it again."
        "compute in a register, and store once, last";
    RetryUnarmed "retry-unarmed" Error
        "The abort handler resumes the section without announcing it again; the kernel has cleared rseq_cs."
        "go back to before the store of the descriptor's address to rseq_cs";
    RetryUnproved "retry-unproved" Warning
        "The abort handler resumes the section behind a store that may announce it: of a register, whose value is not \
         known there."
        "compute the descriptor's address in the handler, or go back to before that is done";
    JumpIn "jump-in" Warning
        "Code outside of the section jumps to an instruction within it, past its first ones."
        "enter the section at its start, behind the store to rseq_cs";
    InputOverwritten "input-overwritten" Warning
        "The abort path reads a register that the section has overwritten."
        "write scratch registers only, or load the value again before its use";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

impl Report {
    /// Returns the number of findings of this severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(function) = &self.function {
            write!(f, "{function} ")?;
        }
        write!(f, "({}:{:#x})", self.elf_section, self.address)
    }
}

fn hexadecimal<S: Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{address:#x}"))
}
