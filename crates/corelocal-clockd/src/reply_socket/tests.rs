//! Whose rights a reply socket is made with, and what is left of a file that stands in its place.

use super::*;
use std::os::unix::fs::symlink;

/// Some user without rights.
const OTHER: u32 = 65534;

/// A folder that belongs to another user; `None`, with a line that says so, where this process is not root.
fn folder_of_another(test: &str) -> Option<tempfile::TempDir> {
    let folder = tempfile::TempDir::new().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    match std::os::unix::fs::chown(folder.path(), Some(OTHER), Some(OTHER)) {
        Ok(()) => Some(folder),
        Err(error) => {
            eprintln!("skipped: {test}: chown: {error}");
            None
        }
    }
}

fn rights() -> (u32, u32) {
    (set_user(u32::MAX), set_group(u32::MAX))
}

#[test]
fn root_acts_with_the_rights_of_the_directory_s_owner() {
    let Some(folder) = folder_of_another("root_acts_with_the_rights_of_the_directory_s_owner")
    else {
        return;
    };
    let before = rights();
    let path = folder.path().join("chronyd.sock");
    let chronyd = UnixDatagram::bind(&path).unwrap();
    // The directory's owner may send to its own socket, and so may the thread that has its rights.
    std::os::unix::fs::chown(&path, Some(OTHER), Some(OTHER)).unwrap();
    let socket = ReplySocket::connected_to(&path).unwrap();
    assert_eq!(rights(), before);
    let meta = fs::metadata(&socket.name).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (OTHER, OTHER));
    socket.datagram.send(b"x").unwrap();
    let (len, from) = chronyd.recv_from(&mut [0; 8]).unwrap();
    assert_eq!((len, from.as_pathname()), (1, Some(socket.name.as_path())));
    let name = socket.name.clone();
    drop(socket);
    assert!(!name.exists());
    assert_eq!(rights(), before);
    // What the owner may not do, root does not do for it there.
    let of_root = folder.path().join("root");
    fs::create_dir(&of_root).unwrap();
    fs::set_permissions(&of_root, Permissions::from_mode(0o700)).unwrap();
    symlink(&of_root, folder.path().join("link")).unwrap();
    fs::remove_file(&path).unwrap();
    symlink(of_root.join("chronyd.sock"), &path).unwrap();
    let _secret = UnixDatagram::bind(of_root.join("chronyd.sock")).unwrap();
    let refused = ReplySocket::connected_to(&path).err().map(|error| error.kind());
    assert_eq!(refused, Some(io::ErrorKind::PermissionDenied));
    assert_eq!(rights(), before);
}

#[test]
fn another_file_in_the_socket_s_place_keeps_its_mode() {
    let folder = tempfile::TempDir::new().unwrap();
    let (secret, name) = (folder.path().join("secret"), folder.path().join("name"));
    fs::write(&secret, "").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
    symlink(&secret, &name).unwrap();
    assert!(let_others_send(&name).is_err());
    fs::remove_file(&name).unwrap();
    fs::hard_link(&secret, &name).unwrap();
    assert!(let_others_send(&name).is_err());
    fs::remove_file(&name).unwrap();
    assert_eq!(mode(&secret), 0o600);
    // A socket, but one that has another name too.
    let other = folder.path().join("other");
    let _socket = UnixDatagram::bind(&name).unwrap();
    let before = mode(&name);
    fs::hard_link(&name, &other).unwrap();
    assert!(let_others_send(&name).is_err());
    assert_eq!(mode(&name), before);
    fs::remove_file(&other).unwrap();
    let_others_send(&name).unwrap();
    assert_eq!(mode(&name), 0o666);
}

#[test]
fn strangers_cannot_send_to_it() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("chronyd.sock");
    let chronyd = UnixDatagram::bind(&path).unwrap();
    let socket = ReplySocket::connected_to(&path).unwrap();
    let stranger = UnixDatagram::unbound().unwrap();
    let refused = stranger.send_to(b"forged", &socket.name).err().map(|error| error.kind());
    assert_eq!(refused, Some(io::ErrorKind::PermissionDenied));
    chronyd.send_to(b"right", &socket.name).unwrap();
    let mut reply = [0; 8];
    let len = socket.datagram.recv(&mut reply).unwrap();
    assert_eq!(&reply[..len], b"right");
    // No file is left if there is no answer, nor if its name would be too long.
    drop(socket);
    assert!(ReplySocket::connected_to(&folder.path().join("no.sock")).is_err());
    assert!(bind(&stranger, &folder.path().join("x".repeat(120))).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Two containers may share chronyd's directory, and have processes of one number.
#[test]
fn a_socket_of_another_process_of_this_number_stays() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("chronyd.sock");
    let chronyd = UnixDatagram::bind(&path).unwrap();
    let [first, second] = [(); 2].map(|()| ReplySocket::connected_to(&path).unwrap());
    assert_ne!(first.name, second.name);
    for socket in [&second, &first] {
        chronyd.send_to(b"x", &socket.name).unwrap();
        assert_eq!(socket.datagram.recv(&mut [0; 8]).unwrap(), 1);
    }
    let taken = ReplySocket::named(first.name.clone(), &path).err().map(|error| error.kind());
    assert_eq!(taken, Some(io::ErrorKind::AddrInUse));
    drop(second);
    assert!(first.name.exists());
    drop(first);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Also while it is being made: it is connected before it has a name.
#[test]
fn it_is_connected_before_it_has_a_name() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("chronyd.sock");
    let _chronyd = UnixDatagram::bind(&path).unwrap();
    let name = folder.path().join("reply.sock");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let got = std::thread::scope(|scope| {
        scope.spawn(|| {
            let stranger = UnixDatagram::unbound().unwrap();
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = stranger.send_to(b"forged", &name);
            }
        });
        let got = (0..2000).any(|_| {
            let socket = ReplySocket::named(name.clone(), &path).unwrap();
            socket.datagram.set_nonblocking(true).unwrap();
            socket.datagram.recv(&mut [0; 8]).is_ok()
        });
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        got
    });
    assert!(!got, "a stranger's packet was received");
}
