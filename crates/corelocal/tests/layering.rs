//! Keeps the library's modules in layers: a module uses only modules below it, and siblings do
//! not know each other. Without this check one convenient `use crate::` is enough to pull the
//! allocator into the rseq layer, and no compiler would object.
//!
//! Invariants:
//! - Every top-level module of the crate stands in [`LAYERS`]; a new one fails until it is placed.
//! - What counts is where a path leads, not how it is spelled: `crate::`, `$crate::`, `super::`
//!   chains, groups and re-exports are all resolved. Spellings that would hide where a path leads
//!   (a name for the crate root, a glob of it, a `#[path]` to a folder that is not below) are refused. A file
//!   that `#[path]` names counts as the module its name says; its `super` chain is then read as reaching
//!   higher than it does, never lower.
//! - One module style in all crates: a module's file stands beside the folder of its children. No source file has more
//!   than 450 lines, but the architectures' assembly.
//! - Comments and documentation are exempt, for a documentation link depends on nothing. Test modules are not: a
//!   lower layer that can only be tested through a higher one is not a layer.

mod source;

use std::fs;
use std::path::{Path, PathBuf};

use source::{Token, rust_files, tokenize};

/// Lowest first; the modules of one line are siblings.
const LAYERS: &[&[&str]] = &[
    &["elsewhere", "explore", "primitive", "scaled"],
    &["sys"],
    &["rseq"],
    &["cid"],
    &["percpu"],
    &["alloc", "sync", "clock"],
    &["rcu", "trace"],
    &["foreign"],
];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|siblings| siblings.contains(&module))
}

/// A path that starts from the crate root, as module names, and the line it stands on.
type Reference = (Vec<String>, usize);

/// Reads the use-tree or path at `tokens[i]` as seen from module `base`, appends the places it
/// leads to, and returns the index after it.
fn follow(tokens: &[Token], mut i: usize, base: &[String], found: &mut Vec<Reference>) -> usize {
    let mut path = base.to_vec();
    let line = tokens.get(i).map_or(0, |token| token.line);
    while let Some(token) = tokens.get(i) {
        match token.text.as_str() {
            "{" => {
                i += 1;
                while let Some(token) = tokens.get(i) {
                    match token.text.as_str() {
                        "}" => return i + 1,
                        "," => i += 1,
                        "as" => i += 2,
                        _ => i = follow(tokens, i, &path, found).max(i + 1),
                    }
                }
                return i;
            }
            "crate" => path.clear(),
            "super" => drop(path.pop()),
            "self" => {}
            name => path.push(String::from(name)),
        }
        i += 1;
        if tokens.get(i).map(|token| token.text.as_str()) != Some("::") {
            break;
        }
        i += 1;
    }
    found.push((path, line));
    i
}

/// Whether a path attribute leads elsewhere than into a folder below that of its file.
fn leads_away(path: &str) -> bool {
    path.contains("..") || path.trim_start_matches(['"', 'r', '#']).starts_with('/')
}

/// Everything in `source`, the text of `module`, that the layers forbid: (line, what is wrong).
fn violations(module: &[&str], source: &str) -> Vec<(usize, String)> {
    let Some(&own) = module.first() else {
        return Vec::new(); // lib.rs stands above every layer.
    };
    let Some(own_layer) = layer(own) else {
        return vec![(1, format!("module `{own}` has no place in LAYERS: give it one"))];
    };
    let tokens = tokenize(source);
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text.as_str());
    let mut here: Vec<String> = module.iter().map(|&name| String::from(name)).collect();
    let mut inline_modules = Vec::new(); // Brace depth at which each `mod name {` was opened.
    let (mut depth, mut i) = (0_usize, 0);
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    while i < tokens.len() {
        let line = tokens[i].line;
        match (text(i), text(i + 1)) {
            ("crate" | "super" | "self", "::") | ("crate" | "super", "as") => {
                i = follow(&tokens, i, &here, &mut found);
                continue;
            }
            ("mod", name) if text(i + 2) == "{" => {
                here.push(String::from(name));
                inline_modules.push(depth);
                i += 1; // The brace itself is counted below.
            }
            ("{", _) => depth += 1,
            ("}", _) => {
                depth = depth.saturating_sub(1);
                if inline_modules.last() == Some(&depth) {
                    inline_modules.pop();
                    here.pop();
                }
            }
            ("[" | ",", "path") if text(i + 2) == "=" && leads_away(text(i + 3)) => {
                wrong.push((
                    line,
                    String::from("this `#[path]` leads to a folder that is not below"),
                ));
            }
            ("extern", "crate") if text(i + 2) == "self" => {
                wrong.push((line, String::from("`extern crate self` renames the crate root")));
            }
            _ => {}
        }
        i += 1;
    }
    for (path, line) in found {
        let shown = format!("crate::{}", path.join("::"));
        let Some(target) = path.first().filter(|&name| name != "*") else {
            wrong.push((line, format!("`{own}` names the whole crate root: name the module")));
            continue;
        };
        match layer(target) {
            None => wrong.push((
                line,
                format!("`{own}` uses `{shown}`, an item of the root: name the module it is from"),
            )),
            Some(there) if target != own && there >= own_layer => {
                let way = if there == own_layer { "sideways" } else { "upward" };
                wrong.push((line, format!("`{own}` may not use `{shown}`: that is {way}")));
            }
            Some(_) => {}
        }
    }
    wrong.sort();
    wrong
}

#[test]
fn modules_use_only_modules_below_them() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    files.sort();
    assert!(files.contains(&src.join("lib.rs")), "no library found in {}", src.display());
    let mut report = String::new();
    for file in &files {
        let relative = file.strip_prefix(&src).expect("below src").with_extension("");
        let mut module: Vec<&str> = relative.iter().filter_map(|name| name.to_str()).collect();
        if module.last() == Some(&"lib") {
            module.pop();
        }
        let source = fs::read_to_string(file).expect("readable source");
        for (line, wrong) in violations(&module, &source) {
            report += &format!("src/{}.rs:{line}: {wrong}\n", relative.display());
        }
    }
    let order: Vec<String> = LAYERS.iter().map(|siblings| siblings.join(" | ")).collect();
    assert!(
        report.is_empty(),
        "\n{report}The rule: a module uses only modules to its left, `|` separates siblings that \
         do not know each other:\n  {}\n",
        order.join(" < ")
    );
}

/// Every source file of all crates.
fn sources() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates");
    let mut files = Vec::new();
    for entry in fs::read_dir(crates).expect("a folder") {
        let src = entry.expect("an entry").path().join("src");
        if src.is_dir() {
            rust_files(&src, &mut files);
        }
    }
    files
}

#[test]
fn modules_stand_beside_their_folders() {
    let mut wrong = sources();
    wrong.retain(|file| file.ends_with("mod.rs"));
    assert!(wrong.is_empty(), "put each beside its folder, by the folder's name: {wrong:?}");
}

#[test]
fn files_are_short() {
    const MOST_LINES: usize = 450;
    let is_assembly = |file: &Path| file.parent().is_some_and(|folder| folder.ends_with("arch"));
    let lines = |file: &Path| fs::read_to_string(file).expect("readable source").lines().count();
    let mut wrong = sources();
    wrong.retain(|file| !is_assembly(file) && lines(file) > MOST_LINES);
    assert!(wrong.is_empty(), "more than {MOST_LINES} lines: split each by its ideas: {wrong:?}");
}

#[test]
fn paths_that_stay_below_pass() {
    let accepted: &[(&[&str], &str)] = &[
        (&["percpu"], "use crate::{cid, rseq::{self, Outcome}, sys::Caps};"),
        (&["percpu", "counter"], "use super::area::Area; use crate::percpu::slot;"),
        (&["rseq", "arch", "x86_64"], "use super::super::Outcome; use super::super::super::sys;"),
        (&["alloc"], "pub use crate::percpu::Counter; fn f(x: &'static str) {}"),
        (&["sys"], "//! See [`crate::percpu::Counter`].\n/* use crate::rseq; /* */ */ fn f() {}"),
        (&["sys"], r##"const S: &str = r#"use crate::rseq; ""#; const C: char = '"';"##),
        (&["sys"], "pub(crate) fn f(self) -> usize { self as usize } pub(in crate::sys) fn g() {}"),
        (&["sys"], "mod inner { mod deep { use super::super::Caps; } } use self::inner::X;"),
        (&["sys"], "#[cfg(test)] mod tests { use super::*; use crate::primitive::atomic; }"),
        (&["sys", "arch"], "#[path = \"arch/x86_64.rs\"] mod imp; fn f(path: &str) {}"),
        (&[], "pub use crate::percpu::Counter; pub mod sys;"),
    ];
    for (module, source) in accepted {
        assert_eq!(violations(module, source), [], "in {module:?}: {source}");
    }
}

#[test]
fn paths_that_lead_up_or_sideways_fail_with_their_line() {
    let rejected: &[(&[&str], &str, usize, &str)] = &[
        (&["sys"], "\nuse crate::rseq::cpu_id;", 2, "crate::rseq::cpu_id"),
        (&["sys"], "use crate::{\n primitive,\n percpu::{Counter},\n};", 3, "crate::percpu"),
        (&["rseq"], "pub use crate::cid;", 1, "upward"),
        (&["clock"], "fn f() {\n crate::sync::Mutex::new();\n}", 2, "sideways"),
        (&["primitive"], "macro_rules! m { () => { $crate::sys::Caps } }", 1, "upward"),
        (&["sys", "rseq"], "use super::super::percpu::Counter;", 1, "crate::percpu::Counter"),
        (&["sys"], "use super::{primitive, r#cid::Slot};", 1, "crate::cid::Slot"),
        (&["sys"], "use self::{super::rseq};", 1, "crate::rseq"),
        (&["sys"], "mod a { use super::super::rseq; }", 1, "crate::rseq"),
        (&["sys"], "mod a {} use super::rseq;", 1, "crate::rseq"),
        (&["sys"], "#[cfg(test)] mod tests { use crate::percpu::Counter; }", 1, "upward"),
        (&["sys"], "const Q: char = '\\''; /* \" */ use crate::rseq;", 1, "upward"),
        (&["sys"], "use crate as root;", 1, "whole crate root"),
        (&["sys"], "use crate::{self as root};", 1, "whole crate root"),
        (&["sys"], "use super::*;", 1, "whole crate root"),
        (&["sys"], "use crate::Counter;", 1, "item of the root"),
        (&["sys"], "#[path = \"../percpu/mod.rs\"] mod p;", 1, "#[path]"),
        (&["sys", "arch"], "#[cfg_attr(loom, path = \"../cid.rs\")] mod p;", 1, "#[path]"),
        (&["sys"], "extern crate self as corelocal;", 1, "renames"),
        (&["shelf"], "fn f() {}", 1, "no place"),
    ];
    for (module, source, line, says) in rejected {
        let wrong = violations(module, source);
        assert_eq!(wrong.len(), 1, "in {module:?}: {source}: {wrong:?}");
        assert_eq!(wrong[0].0, *line, "in {module:?}: {source}");
        assert!(wrong[0].1.contains(says), "{says:?} expected in {:?}", wrong[0].1);
    }
}
