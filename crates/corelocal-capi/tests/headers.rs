//! The headers in `include/corelocal/` are those that the sources make.
//!
//! `CORELOCAL_UPDATE=headers cargo test -p corelocal-capi --test headers` writes them anew.

use std::fs;
use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, Language, LayoutConfig, Style};

/// Each subject: its source's and its header's name, and the initialisers of its types.
const SUBJECTS: &[(&str, &[&str])] = &[
    ("alloc", &[]),
    ("area", &[]),
    ("clock", &[]),
    ("counter", &["CORELOCAL_COUNTER_INIT"]),
    ("doctor", &[]),
    ("error", &[]),
    ("histogram", &["CORELOCAL_HISTOGRAM_INIT", "CORELOCAL_SNAPSHOT_INIT"]),
    ("ids", &[]),
    (
        "mutex",
        &[
            "CORELOCAL_MUTEX_INIT",
            "CORELOCAL_CONDITION_INIT",
            "CORELOCAL_RWLOCK_INIT",
            "CORELOCAL_ROBUST_MUTEX_INIT",
        ],
    ),
    ("pool", &["CORELOCAL_POOL_INIT"]),
    ("queue", &["CORELOCAL_QUEUE_INIT"]),
    ("rcu", &[]),
    ("rcu_copy", &["CORELOCAL_RCU_COPY_INIT"]),
    ("trace", &[]),
];

fn config(subject: &str, initialisers: &[&str]) -> Config {
    let initialisers =
        initialisers.iter().map(|name| format!("#define {name} {{{{0}}}}")).collect::<Vec<_>>();
    Config {
        language: Language::C,
        cpp_compat: true,
        include_guard: Some(format!("CORELOCAL_{}_H", subject.to_uppercase())),
        no_includes: true,
        includes: vec!["corelocal/base.h".to_owned()],
        after_includes: (!initialisers.is_empty()).then(|| {
            format!(
                "\n/* All members are 0: static and cleared memory needs no initialiser. */\n{}",
                initialisers.join("\n")
            )
        }),
        usize_is_size_t: true,
        style: Style::Both,
        documentation_style: DocumentationStyle::C,
        line_length: 110,
        tab_width: 4,
        layout: LayoutConfig {
            aligned_n: Some("CORELOCAL_ALIGNED".to_owned()),
            ..LayoutConfig::default()
        },
        ..Config::default()
    }
}

/// Returns the header of a source: its first comment, and what is exported.
fn header(subject: &str, initialisers: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join(format!("src/{subject}.rs"));
    let bindings = Builder::new()
        .with_config(config(subject, initialisers))
        .with_src(&source)
        .generate()
        .expect("a source that cbindgen reads");
    let mut bytes = Vec::new();
    bindings.write(&mut bytes);
    let generated = String::from_utf8(bytes).expect("text");

    let first = fs::read_to_string(&source).expect("the source");
    let first = first.lines().next().and_then(|line| line.strip_prefix("//! ")).expect("a comment");
    let mut text = format!(
        "/* {first}\n *\n * Made from src/{subject}.rs: not to be edited. docs/c.md says what holds for all functions. */\n"
    );
    let mut lines = generated.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "/*" {
            let comment: Vec<&str> =
                lines.by_ref().take_while(|line| line.trim() != "*/").collect();
            text.push_str(&plain(&comment, line.len() - line.trim_start().len()));
        } else {
            text.push_str(&line.replace("// extern \"C\"", "").replace("// __cplusplus", ""));
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
    }
    text
}

/// Returns a comment as C programs have it, without what is for Rust.
fn plain(lines: &[&str], indent: usize) -> String {
    let lines = lines.iter().map(|line| line.trim());
    let mut lines: Vec<&str> = lines.take_while(|line| *line != "# Safety").collect();
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    let indent = " ".repeat(indent);
    let text = lines.join(&format!("\n{indent} * ")).replace(" * \n", " *\n");
    format!("{indent}/* {text} */\n")
}

#[test]
fn headers_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/corelocal");
    let is_update = std::env::var("CORELOCAL_UPDATE").is_ok_and(|what| what == "headers");
    for (subject, initialisers) in SUBJECTS {
        let path = folder.join(format!("{subject}.h"));
        let header = header(subject, initialisers);
        if is_update {
            fs::write(&path, &header).expect("a writable folder");
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == header,
            "{} is not what src/{subject}.rs makes: CORELOCAL_UPDATE=headers cargo test -p corelocal-capi --test headers",
            path.display()
        );
    }
}

/// Each source with exported functions has a header.
#[test]
fn all_subjects_have_headers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("a file").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let exports = fs::read_to_string(&path).expect("a source").contains("no_mangle");
        let has_header = SUBJECTS.iter().any(|(subject, _)| *subject == name);
        // That one is written by hand.
        assert_eq!(exports, has_header || name == "inline", "{name}");
    }
}
