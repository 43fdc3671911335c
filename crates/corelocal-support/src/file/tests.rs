//! Tests of `file.rs`.

use super::*;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn files_are_replaced_with_their_permissions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x".repeat(255));
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let opened = File::open(&path).unwrap();
    try_out(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    write(&path, b"new").unwrap();
    assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"new".to_vec(), 0o640));
    // Those that have the old one open keep it.
    assert_eq!(io::read_to_string(opened).unwrap(), "old");
    let other = dir.path().join("other");
    write(&other, b"").unwrap();
    // As the umask has it.
    let plain = dir.path().join("plain");
    fs::write(&plain, "").unwrap();
    assert_eq!(mode(&other), mode(&plain));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn links_stay() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    symlink("target", at("link")).unwrap();
    symlink("loop", at("loop")).unwrap();
    for content in ["first", "second"] {
        write(&at("link"), content.as_bytes()).unwrap();
        assert!(at("link").is_symlink());
        assert_eq!(fs::read_to_string(at("target")).unwrap(), content);
    }
    assert!(write(&at("loop"), b"").is_err());
}

#[test]
fn a_pipe_is_opened_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a path that ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let read = std::thread::spawn({
        let path = path.clone();
        move || fs::read_to_string(path).unwrap()
    });
    // The reader still waits afterwards.
    try_out(&path).unwrap();
    write(&path, b"content").unwrap();
    assert_eq!(read.join().unwrap(), "content");
}

#[test]
fn descriptors_are_written_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"before ").unwrap();
    for folder in ["/dev/fd", "/proc/self/fd"] {
        write(Path::new(&format!("{folder}/{}", file.as_raw_fd())), b"once ").unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), b"before once once ");
    assert!(write(Path::new("/dev/fd/65535"), b"").is_err());
}
