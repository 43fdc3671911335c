//! Keeps the files of every crate free of circles: no two use each other, directly or through others.
//!
//! ```text
//!   a file's words ── paths: crate::a::B, super::c, child::D, names that it imported
//!                  ── each is followed to the file that defines its end; what a `pub use` hands on is followed further
//!   files that reach each other by these arrows are a circle
//! ```
//!
//! # Rules
//! 1. Two files of one folder may use each other. What a file uses of the modules that it is in counts for nothing: a folder's
//!    `mod.rs` is its face, and has what all of its files need.
//! 2. The folders of the rooms of [`FLOORS`] use those below them only.
//! 3. Tests and models beside the code may use whatever they test: they count for nothing.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use source::{Token, rust_files, tokenize};

/// Folders of a room that are floors, lowest first; those of one line do not know each other. A file of one uses files of
/// floors below it and of its own.
const FLOORS: &[(&str, &[&[&str]])] = &[(
    "corelocal/src/alloc",
    &[&["layout"], &["page_heap"], &["central"], &["core_cache"], &["debug", "background"]],
)];

/// A module by the names that lead to it from the crate's root.
type Name = Vec<String>;

/// A module that is a file.
struct Module {
    file: PathBuf,
    tokens: Vec<Token>,
    /// What it imports or hands on, by the name that it has here.
    imports: BTreeMap<String, Name>,
    /// Paths that it uses itself, from the root.
    uses: Vec<Name>,
}

type Modules = BTreeMap<Name, Module>;

/// Whether the file is of tests or models: by its name, or that of its folder.
fn is_of_tests(file: &Path) -> bool {
    let is_named = |name: &str| {
        let stem = name.strip_suffix(".rs").unwrap_or(name);
        ["test", "tests", "loom"].iter().any(|of| stem.split('_').any(|part| part == *of))
    };
    file.iter().filter_map(|name| name.to_str()).any(is_named)
}

/// The modules of a crate whose sources are below `src`.
fn modules(src: &Path) -> Modules {
    let mut files = Vec::new();
    rust_files(src, &mut files);
    files.retain(|file| !is_of_tests(file.strip_prefix(src).expect("below src")));
    let name_of = |file: &Path| {
        let relative = file.strip_prefix(src).expect("below src").with_extension("");
        let mut name: Name =
            relative.iter().filter_map(|name| name.to_str()).map(str::to_owned).collect();
        if name.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
            name.pop();
        }
        name
    };
    let mut modules = Modules::new();
    for file in files {
        let tokens = tokenize(&fs::read_to_string(&file).expect("readable source"));
        let module = Module { file, tokens, imports: BTreeMap::new(), uses: Vec::new() };
        modules.insert(name_of(&module.file), module);
    }
    // A file that a path attribute names is the module that stands behind the attribute.
    let mut renamed = Vec::new();
    for (name, module) in &modules {
        for (at, words) in module.tokens.windows(3).enumerate() {
            let [path, is, value] = words else { continue };
            if path.text == "path" && is.text == "=" && value.text.ends_with(".rs\"") {
                let folder = module.file.parent().expect("a file is in a folder");
                let file = folder.join(value.text.trim_matches('"'));
                let behind = module.tokens[at..].windows(2).find(|words| words[0].text == "mod");
                if let Some([_, inner]) = behind {
                    let inner = [&name[..], std::slice::from_ref(&inner.text)].concat();
                    renamed.push((name_of(&file), inner));
                }
            }
        }
    }
    for (from, to) in renamed {
        if let Some(module) = modules.remove(&from) {
            modules.insert(to, module);
        }
    }
    let known: BTreeSet<Name> = modules.keys().cloned().collect();
    for (name, module) in &mut modules {
        read(name, module, &known);
    }
    modules
}

/// Reads what a module imports, hands on and uses.
fn read(name: &Name, module: &mut Module, known: &BTreeSet<Name>) {
    let tokens = &module.tokens;
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let child = |first: &str| {
        let path = [&name[..], &[first.to_owned()]].concat();
        known.contains(&path).then_some(path)
    };
    let mut at = 0;
    while at < tokens.len() {
        match (text(at), text(at + 1), text(at + 2)) {
            ("mod", "tests", "{") => at = behind_block(tokens, at + 2),
            ("use", _, _) => {
                let mut found = Vec::new();
                let hands_on = at > 0 && [")", "pub"].contains(&text(at - 1));
                let end = tree(tokens, at + 1, &[], &mut found);
                for (path, alias) in found {
                    let Some(path) = absolute(&path, name, &child, &module.imports) else {
                        continue;
                    };
                    module.imports.insert(alias, path.clone());
                    if !hands_on {
                        module.uses.push(path);
                    }
                }
                at = end;
            }
            (first, "::", _) if at == 0 || text(at - 1) != "::" => {
                let mut path = vec![first.to_owned()];
                let mut end = at + 2;
                while text(end).starts_with(|c: char| c.is_alphanumeric() || c == '_') {
                    path.push(text(end).to_owned());
                    if text(end + 1) != "::" {
                        break;
                    }
                    end += 2;
                }
                module.uses.extend(absolute(&path, name, &child, &module.imports));
                at += 2;
            }
            _ => at += 1,
        }
    }
}

/// The index behind the block that begins here.
fn behind_block(tokens: &[Token], mut at: usize) -> usize {
    let mut depth = 0;
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Reads a tree of imports: each path with the name that its end has here. Returns the index behind it.
fn tree(
    tokens: &[Token],
    mut at: usize,
    base: &[String],
    found: &mut Vec<(Name, String)>,
) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut path = base.to_vec();
    loop {
        match text(at) {
            "::" => at += 1,
            "{" => {
                at += 1;
                while at < tokens.len() && text(at) != "}" {
                    at = if text(at) == "," { at + 1 } else { tree(tokens, at, &path, found) };
                }
                return at + 1;
            }
            word => {
                if word != "self" || path.is_empty() {
                    path.push(word.to_owned());
                }
                at += 1;
                if text(at) != "::" {
                    break;
                }
            }
        }
    }
    let mut alias = path.last().cloned().unwrap_or_default();
    if text(at) == "as" {
        alias = text(at + 1).to_owned();
        at += 2;
    }
    found.push((path, alias));
    at.max(1)
}

/// The path from the crate's root; `None` for one that leads to another crate.
fn absolute(
    path: &[String],
    here: &Name,
    child: &dyn Fn(&str) -> Option<Name>,
    imports: &BTreeMap<String, Name>,
) -> Option<Name> {
    let (first, rest) = path.split_first()?;
    let mut base = match first.as_str() {
        "crate" => Name::new(),
        "self" => here.clone(),
        "super" => here[..here.len().saturating_sub(1)].to_vec(),
        first => child(first).or_else(|| imports.get(first).cloned())?,
    };
    for word in rest {
        match word.as_str() {
            "super" => drop(base.pop()),
            word => base.push(word.to_owned()),
        }
    }
    Some(base)
}

/// The module that defines the end of the path: modules are entered, and what one hands on is followed.
fn resolve(modules: &Modules, path: &[String], depth: usize) -> Option<Name> {
    let mut here = Name::new();
    for (nth, word) in path.iter().enumerate() {
        let inner = [&here[..], std::slice::from_ref(word)].concat();
        if modules.contains_key(&inner) {
            here = inner;
            continue;
        }
        let handed_on = modules.get(&here)?.imports.get(word);
        return match handed_on.filter(|target| depth < 8 && target[..] != path[..=nth]) {
            Some(target) => resolve(modules, &[&target[..], &path[nth + 1..]].concat(), depth + 1),
            None => Some(here),
        };
    }
    Some(here)
}

/// Files, each with those that it uses, and the paths by which it does.
type Arrows = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

/// What each file of a crate uses.
fn arrows(src: &Path) -> Arrows {
    let modules = modules(src);
    let mut found: Arrows = BTreeMap::new();
    for (name, module) in &modules {
        let arrows = found.entry(module.file.clone()).or_default();
        for path in &module.uses {
            let end = resolve(&modules, path, 0).filter(|end| !name.starts_with(end));
            if let Some(used) = end.and_then(|end| modules.get(&end)) {
                arrows.entry(used.file.clone()).or_default().insert(path.join("::"));
            }
        }
    }
    found
}

/// The circles of a crate.
fn circles(arrows: &Arrows) -> Vec<Arrows> {
    let reach = |from: &Path| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(file) = left.pop() {
            for next in arrows.get(&file).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(next.clone()) {
                    left.push(next.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<PathBuf, BTreeSet<PathBuf>> =
        arrows.keys().map(|file| (file.clone(), reach(file))).collect();
    let circle = |file: &PathBuf| -> BTreeSet<PathBuf> {
        let others = reached[file].iter();
        others.filter(|other| reached[*other].contains(file)).cloned().collect()
    };
    let circles: BTreeSet<BTreeSet<PathBuf>> =
        arrows.keys().map(circle).filter(|circle| !circle.is_empty()).collect();
    let inside = |circle: BTreeSet<PathBuf>| {
        let arrows_of = |file: &PathBuf| {
            let arrows = arrows[file].iter().filter(|(used, _)| circle.contains(*used));
            arrows.map(|(used, paths)| (used.clone(), paths.clone())).collect()
        };
        circle.iter().map(|file| (file.clone(), arrows_of(file))).collect()
    };
    circles.into_iter().map(inside).collect()
}

/// Lines of a report: a file of a circle, and what it uses there.
fn shown(file: &Path, arrows: &BTreeMap<PathBuf, BTreeSet<String>>, crates: &Path) -> String {
    let below = |file: &Path| file.strip_prefix(crates).expect("below").display().to_string();
    let mut lines = format!("  {}\n", below(file));
    for (used, paths) in arrows {
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        lines += &format!("      uses {}: {}\n", below(used), paths.join(", "));
    }
    lines
}

#[test]
fn no_files_use_each_other() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates");
    let mut report = String::new();
    for entry in fs::read_dir(crates).expect("a folder") {
        let src = entry.expect("an entry").path().join("src");
        if !src.is_dir() {
            continue;
        }
        let arrows = arrows(&src);
        for circle in circles(&arrows) {
            let folders: BTreeSet<_> = circle.keys().map(|file| file.parent()).collect();
            let size = circle.len();
            if size > 2 || folders.len() > 1 {
                report += &format!("a circle of {size} files:\n");
                circle.iter().for_each(|(file, arrows)| report += &shown(file, arrows, crates));
            }
        }
    }
    for (room, floors) in FLOORS {
        let room = crates.join(room);
        let src = room.ancestors().find(|folder| folder.ends_with("src")).expect("in a crate");
        let floor_of = |file: &Path| {
            let first = file.strip_prefix(&room).ok()?.iter().next()?.to_str()?;
            Some((floors.iter().position(|names| names.contains(&first))?, first.to_owned()))
        };
        let mut seen = BTreeSet::new();
        for (file, used) in &arrows(src) {
            let Some((floor, name)) = floor_of(file) else { continue };
            seen.insert(name.clone());
            for (used, paths) in used {
                if floor_of(used).is_some_and(|(other, of)| other >= floor && of != name) {
                    let arrow = BTreeMap::from([(used.clone(), paths.clone())]);
                    report += &format!("upward or sideways:\n{}", shown(file, &arrow, crates));
                }
            }
        }
        assert_eq!(seen.len(), floors.iter().map(|names| names.len()).sum(), "{}", room.display());
    }
    assert!(
        report.is_empty(),
        "\n{report}A file uses those below it. Move what both need into a file of its own.\n"
    );
}
