//! Tests of `elf.rs`.

use super::*;

fn of(bytes: &[u8]) -> Option<Elf> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, bytes).unwrap();
    read(&path).unwrap()
}

/// A head with one program header of `kind`.
fn head(is_64: bool, kind: u32) -> Vec<u8> {
    let size = if is_64 { 56 } else { 32 };
    let mut bytes = vec![0; 64 + usize::from(size)];
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', if is_64 { 2 } else { 1 }, 1, 1]);
    bytes[18] = 62;
    let (offset, length, count) = if is_64 { (32, 54, 56) } else { (28, 42, 44) };
    (bytes[offset], bytes[length], bytes[count]) = (64, size, 1);
    bytes[64..68].copy_from_slice(&kind.to_le_bytes());
    bytes
}

#[test]
fn heads_of_files() {
    for is_64 in [true, false] {
        let elf = of(&head(is_64, PT_INTERP)).unwrap();
        assert!(elf.has_loader && !elf.is_dynamic && elf.is_64 == is_64, "{elf:?}");
        let elf = of(&head(is_64, PT_DYNAMIC)).unwrap();
        assert!(!elf.has_loader && elf.is_dynamic, "{elf:?}");
    }
    assert!(!of(&head(true, 1)).unwrap().fits(&of(&head(false, 1)).unwrap()));
    assert_eq!(of(&head(true, 1)).unwrap().kind(), "64 bits, x86-64");
    for other in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF\x07\x01garbage"] {
        assert_eq!(of(other), None, "{other:?}");
    }
}

#[test]
fn damaged_files_have_an_end() {
    let mut bytes = head(true, 1);
    // Headers that lie beyond the end, in a number that is not true.
    bytes[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    bytes[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
    let elf = of(&bytes).unwrap();
    assert!(!elf.has_loader && !elf.is_dynamic, "{elf:?}");
    for cut in 0..head(true, PT_INTERP).len() {
        let _ = of(&head(true, PT_INTERP)[..cut]);
    }
}

#[test]
fn this_program() {
    let elf = read(Path::new("/proc/self/exe")).unwrap().expect("an ELF file");
    assert_eq!(elf.is_64, cfg!(target_pointer_width = "64"));
    assert_eq!(elf.has_loader, !cfg!(target_feature = "crt-static"));
}

#[test]
fn libcs() {
    for (name, libc) in [
        ("/lib64/ld-linux-x86-64.so.2", Some(Libc::Glibc)),
        ("/lib/ld-linux-aarch64.so.1", Some(Libc::Glibc)),
        ("libc.so.6", Some(Libc::Glibc)),
        ("/lib/ld-musl-x86_64.so.1", Some(Libc::Musl)),
        ("libc.musl-x86_64.so.1", Some(Libc::Musl)),
        ("libc.so", Some(Libc::Musl)),
        ("libgcc_s.so.1", None),
        ("", None),
    ] {
        assert_eq!(Libc::of(name.as_bytes()), libc, "{name}");
    }
    let own = if cfg!(target_env = "musl") { Libc::Musl } else { Libc::Glibc };
    let expected = (!cfg!(target_feature = "crt-static")).then_some(own);
    assert_eq!(libc_of(Path::new("/proc/self/exe")), expected);
    assert_eq!(libc_of(Path::new("/proc/self/maps")), None);
    assert_eq!(libc_of(Path::new("/no/such/file")), None);
}

#[test]
fn a_library_tells_its_libc_by_what_it_needs() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut files = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let Some(library) = files.find(|path| path.contains("/libgcc_s")) else {
        return eprintln!(
            "skipped: a_library_tells_its_libc_by_what_it_needs: no library is loaded"
        );
    };
    assert_eq!(libc_of(Path::new(library)), Some(Libc::Glibc));
    // Cut anywhere it gives an answer.
    let bytes = fs::read(library).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut");
    for len in (0..bytes.len()).step_by(997) {
        fs::write(&path, &bytes[..len]).unwrap();
        let _ = libc_of(&path);
    }
}

#[test]
fn a_fifo_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a path that ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    for path in [&*path, Path::new("/dev/zero"), dir.path()] {
        let refused = [read(path).map(drop), interpreter(path).map(drop)];
        for refused in refused {
            assert!(refused.unwrap_err().to_string().contains("not a regular file"));
        }
    }
}

#[test]
fn scripts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    for (text, expected) in [
        ("#! /bin/sh -e \necho\n", Some("/bin/sh -e")),
        ("#!/usr/bin/env python3", Some("/usr/bin/env python3")),
        ("#!", Some("")),
        ("echo", None),
    ] {
        fs::write(&path, text).unwrap();
        let expected = expected.map(|text| text.as_bytes().to_owned());
        assert_eq!(interpreter(&path).unwrap(), expected, "{text:?}");
    }
}
