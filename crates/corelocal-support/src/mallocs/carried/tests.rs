//! Tests of `carried.rs`.

use super::*;

/// An installed library is used if it is ours, byte by byte, and no other user can exchange it.
#[test]
fn is_used_where_it_is_installed() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().canonicalize().unwrap();
    let bin = prefix.join("bin");
    fs::create_dir(&bin).unwrap();
    let found = || installed_beside(&bin, b"library");
    assert_eq!(found(), None);
    for place in ["lib", &format!("lib/{}-linux-gnu", std::env::consts::ARCH)] {
        let place = prefix.join(place);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(OURS), "library").unwrap();
        assert_eq!(found(), Some(place.join(OURS)));
        for mode in [0o777, 0o755] {
            fs::set_permissions(&place, Permissions::from_mode(mode)).unwrap();
            assert_eq!(found().is_some(), mode == 0o755);
        }
        fs::write(place.join(OURS), "librarx").unwrap();
        assert_eq!(found(), None);
    }
}

#[test]
fn is_unpacked_once_and_mended() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().canonicalize().unwrap().join("a");
    let path = unpack(&cache, "1", b"library").unwrap();
    assert_eq!(path, cache.join("corelocal/1").join(OURS));
    let made = || fs::metadata(&path).unwrap().modified().unwrap();
    let first = made();
    assert_eq!(unpack(&cache, "1", b"library").unwrap(), path);
    assert_eq!(made(), first);
    fs::write(&path, "librarx").unwrap();
    unpack(&cache, "1", b"library").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"library");
    // The temporary file is gone.
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

/// What is in the place of the file is replaced without a look into it.
#[test]
fn what_is_no_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().canonicalize().unwrap();
    let path = unpack(&cache, "1", b"library").unwrap();
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let put: [&dyn Fn(); 4] = [
        // SAFETY: a name that ends with a zero byte.
        &|| assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0),
        &|| std::os::unix::fs::symlink("/dev/zero", &path).unwrap(),
        &|| {
            let more = cache.join("more");
            fs::write(&more, "library").unwrap();
            fs::hard_link(&more, &path).unwrap();
            fs::remove_file(&more).unwrap();
        },
        &|| {
            fs::write(&path, "library").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        },
    ];
    for put in put {
        fs::remove_file(&path).unwrap();
        put();
        assert_eq!(unpack(&cache, "1", b"library").unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"library");
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o7777, 0o644);
    }
}

#[test]
fn folders_are_of_this_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().canonicalize().unwrap();
    // As an earlier version made it.
    fs::create_dir(cache.join("corelocal")).unwrap();
    fs::set_permissions(cache.join("corelocal"), Permissions::from_mode(0o755)).unwrap();
    let modes = |place: &str| fs::metadata(cache.join(place)).unwrap().mode() & 0o7777;
    let of_the_cache = modes("");
    unpack(&cache, "1", b"library").unwrap();
    assert_eq!([modes("corelocal/1"), modes("corelocal"), modes("")], [0o700, 0o700, of_the_cache]);
    // All may write to the one above.
    fs::set_permissions(&cache, Permissions::from_mode(0o777)).unwrap();
    let error = format!("{:#}", unpack(&cache, "1", b"library").unwrap_err());
    assert!(
        error.contains("another user owns or may change") && error.contains("XDG_CACHE_HOME"),
        "{error}"
    );
    fs::set_permissions(&cache, Permissions::from_mode(0o1777)).unwrap();
    unpack(&cache, "1", b"library").unwrap();
    fs::set_permissions(&cache, Permissions::from_mode(0o700)).unwrap();
    // Another user's, where this one may give files away.
    let theirs = cache.join("theirs");
    fs::create_dir_all(theirs.join("corelocal/1")).unwrap();
    if std::os::unix::fs::chown(&theirs, Some(60_000), None).is_err() {
        return eprintln!(
            "skipped: folders_are_of_this_user_alone: no right to give a folder away"
        );
    }
    let error = format!("{:#}", unpack(&theirs, "1", b"library").unwrap_err());
    assert!(error.contains("another user owns or may change"), "{error}");
    unpack(&theirs.join("new"), "1", b"library").unwrap_err();
    assert!(!theirs.join("new").exists());
}

#[test]
fn a_folder_that_cannot_be_made_says_what_to_do() {
    let error = format!("{:#}", unpack(Path::new("/proc/no"), "1", b"library").unwrap_err());
    assert!(error.contains("XDG_CACHE_HOME") && error.contains("/proc/no"), "{error}");
}
