//! Tests of `program.rs`.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn refused(name: &str) -> (u8, String) {
    let refusal = Program::find(OsStr::new(name)).unwrap_err();
    (refusal.code, refusal.why.to_string())
}

fn file(folder: &Path, name: &str, content: &[u8], mode: u32) -> Program {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    Program { name: path.clone().into(), path }
}

fn malloc() -> Malloc {
    // Any file for this processor.
    let library = Some("/proc/self/exe".into());
    Malloc { id: "x".into(), label: "x".into(), ours: false, library }
}

#[test]
fn programs_that_there_are_not() {
    assert_eq!(refused("no-such-program").0, 127);
    assert!(refused("no-such-program").1.contains("in PATH"));
    assert_eq!(
        refused("./no/such/program"),
        (127, "there is no program ./no/such/program".to_owned())
    );
    assert_eq!(refused("").0, 127);
    assert_eq!(refused("/").0, 126);
    let dir = tempfile::tempdir().unwrap();
    let plain = file(dir.path(), "plain", b"", 0o644);
    assert_eq!(refused(plain.path.to_str().unwrap()).0, 126);
    assert!(Program::find(OsStr::new("sh")).unwrap().path.is_absolute());
}

#[test]
fn static_programs_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    // A head without program headers.
    let mut head = fs::read("/proc/self/exe").unwrap();
    head.truncate(64);
    head[54..60].fill(0);
    let program = file(dir.path(), "static", &head, 0o755);
    if !cfg!(target_pointer_width = "64") {
        return eprintln!("skipped: static_programs_are_refused: heads are other ones here");
    }
    let refusal = program.takes(&malloc()).unwrap_err();
    assert_eq!(refusal.code, 126);
    assert!(refusal.why.to_string().contains("statically"), "{}", refusal.why);
    // A script is as fit as what runs it.
    let script = format!("#!{}\n", program.path.display());
    let script = file(dir.path(), "script", script.as_bytes(), 0o755);
    assert_eq!(script.takes(&malloc()).unwrap_err().code, 126);
    assert!(script.takes(&Malloc::of_libc()).is_ok());
    // Another processor.
    head[18] ^= 0xff;
    head[54..58].copy_from_slice(&[56, 0, 1, 0]);
    head[32..40].copy_from_slice(&64_u64.to_le_bytes());
    let mut header = [0; 56];
    header[0] = 3; // A dynamic loader's name.
    let header = [&head[..], &header].concat();
    let foreign = file(dir.path(), "foreign", &header, 0o755);
    let refusal = foreign.takes(&malloc()).unwrap_err();
    assert!(refusal.why.to_string().contains(" is for "), "{}", refusal.why);
}

#[test]
fn programs_of_another_libc_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(Program::find(OsStr::new("true")).unwrap().path).unwrap();
    let (loader, other) = (b"/ld-linux-", b"/ld-musl-x");
    let Some(at) = bytes.windows(loader.len()).position(|window| window == loader) else {
        return eprintln!(
            "skipped: programs_of_another_libc_are_refused: true(1) has no loader of glibc"
        );
    };
    assert!(file(dir.path(), "same", &bytes, 0o755).takes(&malloc()).is_ok());
    bytes[at..at + other.len()].copy_from_slice(other);
    let program = file(dir.path(), "other", &bytes, 0o755);
    let refusal = program.takes(&malloc()).unwrap_err();
    assert_eq!(refusal.code, 126);
    assert!(refusal.why.to_string().contains("is linked with musl"), "{}", refusal.why);
    assert!(program.takes(&Malloc::of_libc()).is_ok());
}

#[test]
fn scripts_lead_to_programs() {
    let dir = tempfile::tempdir().unwrap();
    for (line, expected) in [
        ("#!/bin/sh -e\n", "sh"),
        ("#!/usr/bin/env -S sh -e\n", "sh"),
        ("#!/usr/bin/env A=b sh\n", "sh"),
        ("#!\n", "script"),
        ("echo\n", "script"),
    ] {
        let script = file(dir.path(), "script", line.as_bytes(), 0o755);
        let found = script.interpreter().unwrap();
        assert_eq!(found.file_name(), Some(OsStr::new(expected)), "{line}");
    }
    // Two scripts that name each other come to an end.
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let first = file(dir.path(), "a", format!("#!{}\n", b.display()).as_bytes(), 0o755);
    file(dir.path(), "b", format!("#!{}\n", a.display()).as_bytes(), 0o755);
    assert!(first.interpreter().is_ok());
}

#[test]
fn programs_that_gain_rights() {
    let dir = tempfile::tempdir().unwrap();
    let program = file(dir.path(), "program", b"", 0o4755);
    // Its owner gains nothing.
    assert!(!gains_rights(&program.path));
    let nobody = CString::new(program.path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a path that ends with a zero byte.
    if unsafe { libc::chown(nobody.as_ptr(), 65534, 65534) } != 0 {
        return eprintln!("skipped: programs_that_gain_rights: only root may give files away");
    }
    // The bit goes with the owner.
    fs::set_permissions(&program.path, fs::Permissions::from_mode(0o4755)).unwrap();
    assert!(gains_rights(&program.path));
    assert!(program.takes(&malloc()).unwrap_err().why.to_string().contains("gains privileges"));
}
