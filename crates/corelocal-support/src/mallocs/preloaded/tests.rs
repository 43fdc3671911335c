//! Tests of `preloaded.rs`.

use std::fs;

use super::*;

/// A folder with two mallocs, a library that is none, and a link to the first malloc.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    for name in ["m.so.1.0", "n.so", "other.so"] {
        fs::write(path.join(name), "").unwrap();
    }
    std::os::unix::fs::symlink("m.so.1.0", path.join("m.so.1")).unwrap();
    (dir, path)
}

/// What a loader would answer: the first malloc that is named, or libc's.
fn answer(folder: &Path, value: &OsStr) -> PathBuf {
    let entries = words(Some(value));
    let files = entries.iter().filter_map(|entry| {
        ["m.so.1.0", "n.so"].map(|name| folder.join(name)).into_iter().find(|f| is_file(entry, f))
    });
    files.chain([PathBuf::from("/lib/libc.so.6")]).next().unwrap_or_default()
}

fn split(folder: &Path, value: &str) -> anyhow::Result<(Vec<OsString>, Vec<OsString>)> {
    let value = value.replace('@', folder.to_str().unwrap());
    let malloc = answer(folder, OsStr::new(&value));
    without_malloc(words(Some(OsStr::new(&value))), malloc, |value| Ok(answer(folder, value)))
}

#[test]
fn mallocs_are_taken_out_and_others_stay() {
    let (_dir, folder) = folder();
    for (value, kept, taken) in [
        ("", 0, 0),
        ("@/other.so", 1, 0),
        ("@/m.so.1.0", 0, 1),
        ("@/other.so @/m.so.1:none.so", 2, 1),
        // One behind the other.
        ("@/m.so.1:@/other.so:@/n.so", 1, 2),
    ] {
        let (stay, out) = split(&folder, value).unwrap();
        assert_eq!((stay.len(), out.len()), (kept, taken), "{value}: {stay:?} {out:?}");
        assert!(stay.iter().all(|entry| !entry.to_string_lossy().contains("/m.so")));
    }
    // A name is found where the loader found the file.
    let file = folder.join("m.so.1.0");
    assert!(is_file(OsStr::new("m.so.1"), &file) && is_file(OsStr::new("m.so.1.0"), &file));
    assert!(!is_file(OsStr::new("n.so"), &file) && !is_file(OsStr::new("no.so"), &file));
}

#[test]
fn what_brings_a_malloc_and_is_not_found_is_refused() {
    let (_dir, folder) = folder();
    // The two together bring one.
    let answers = |value: &OsStr| {
        let name = if words(Some(value)).len() == 2 { "m.so.1.0" } else { "libc.so.6" };
        Ok(folder.join(name))
    };
    let entries = words(Some(OsStr::new("/x/a.so:/x/b.so")));
    let error = without_malloc(entries, folder.join("m.so.1.0"), answers).unwrap_err();
    assert!(error.to_string().contains("unset LD_PRELOAD"), "{error}");
}

#[test]
fn without_a_loader_files_tell() {
    let entries = |value: &str| words(Some(OsStr::new(value)));
    assert!(unasked(entries("x.so")).unwrap_err().to_string().contains("unset LD_PRELOAD"));
    assert_eq!(unasked(entries("/no/x.so")).unwrap(), (entries("/no/x.so"), Vec::new()));
    assert_eq!(unasked(Vec::new()).unwrap(), (Vec::new(), Vec::new()));
}

#[test]
fn values_for_programs() {
    let path = |text: &str| Some(OsString::from(text));
    let preloaded = Preloaded {
        before: path("/m.so:/a.so"),
        of_libc: path("/a.so"),
        taken: vec!["/m.so".into()],
    };
    let libc = Malloc::of_libc();
    let other = Malloc { library: Some("/o.so".into()), ..Malloc::of_libc() };
    assert_eq!(preloaded.with(&libc), path("/a.so"));
    assert_eq!(preloaded.with(&other), path("/o.so:/m.so:/a.so"));
    assert_eq!(Preloaded::default().with(&libc), None);
}
