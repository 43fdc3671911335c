//! The socket to which chronyd replies: a file in chronyd's own directory, which another user than root owns.
//!
//! The owner of a directory can put a link to any file in place of a name there, at any moment. So nothing is done to
//! the file by its name with more rights than that owner has: root makes the socket with the owner's rights, those of
//! the thread's file system user (`setfsuid(2)`), and then the socket belongs to the owner, which may send to it. Where the
//! rights are this process's own anyway, the mode is changed by a descriptor of the socket.
//!
//! The socket is connected before it has a name: to a connected socket the kernel delivers what its peer sends, and
//! nothing else. So at no moment can another user send to it.
//!
//! # Invariants
//! 1. The thread has its own rights again when the socket was made, and when it was not.
//! 2. A mode is changed of a socket that belongs to this process's user and has one name, never of another file.
//! 3. The socket's file is removed with it, with the same rights.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use corelocal_support::output::path_line;

/// A datagram socket with a name beside chronyd's own, where its user may reach it.
pub struct ReplySocket {
    pub datagram: UnixDatagram,
    name: PathBuf,
    owner: Option<Owner>,
}

impl ReplySocket {
    /// Creates one beside `path`, connected to it.
    pub fn connected_to(path: &Path) -> io::Result<ReplySocket> {
        let name = format!("corelocal.{}.{:016x}.sock", std::process::id(), random());
        ReplySocket::named(path.with_file_name(name), path)
    }

    /// Creates one of this name, which no file may have: another container's process may have this process's number,
    /// and its socket stays.
    fn named(name: PathBuf, path: &Path) -> io::Result<ReplySocket> {
        let owner = Owner::of_directory(&name)?;
        let rights = owner.map(Owner::take).transpose()?;
        let datagram = UnixDatagram::unbound()?;
        datagram.connect(path)?;
        bind(&datagram, &name)?;
        let socket = ReplySocket { datagram, name, owner };
        if rights.is_none() {
            let_others_send(&socket.name)?;
        }
        Ok(socket)
    }
}

/// Returns a random number. Processes of two containers may have one number, and their sockets one folder.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Gives a socket its name, which no file may have.
fn bind(socket: &UnixDatagram, name: &Path) -> io::Result<()> {
    let (start, name) = (std::mem::offset_of!(libc::sockaddr_un, sun_path), name.as_os_str());
    // SAFETY: integers, of which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // A NUL remains.
    if name.len() >= address.sun_path.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "its path is too long"));
    }
    for (to, &from) in address.sun_path.iter_mut().zip(name.as_bytes()) {
        *to = from as libc::c_char;
    }
    let len = (start + name.len() + 1) as libc::socklen_t;
    // SAFETY: an open descriptor, and an address of which `len` bytes are there.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for ReplySocket {
    fn drop(&mut self) {
        // (3) Nothing to report if it fails.
        if let Ok(_rights) = self.owner.map(Owner::take).transpose() {
            let _ = fs::remove_file(&self.name);
        }
    }
}

/// Another user, whose rights root takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    /// Returns the owner of the directory of a file; `None` for a process that is not root, or if it is root's.
    fn of_directory(file: &Path) -> io::Result<Option<Owner>> {
        let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let meta = fs::metadata(directory.unwrap_or(Path::new(".")))?;
        let owner = Owner { user: meta.uid(), group: meta.gid() };
        Ok((effective_user() == 0 && owner.user != 0).then_some(owner))
    }

    /// Returns the rights to files of this user alone, for the calling thread.
    fn take(self) -> io::Result<Rights> {
        // The group first: afterwards this thread may not change it any more. From here on they are given back (1).
        let rights = Rights { group: set_group(self.group), user: set_user(self.user) };
        // No user has the number -1, so this only asks.
        if set_user(u32::MAX) == self.user && set_group(u32::MAX) == self.group {
            Ok(rights)
        } else {
            Err(io::Error::other(format!(
                "cannot act as user {}, who owns the directory",
                self.user
            )))
        }
    }
}

/// The rights that the thread had; it has them again when this is dropped.
struct Rights {
    user: u32,
    group: u32,
}

impl Drop for Rights {
    fn drop(&mut self) {
        set_user(self.user);
        set_group(self.group);
    }
}

/// Makes a user the file system user of the thread, with which the kernel drops its capabilities on files, or gives
/// them back to root; the one that it was.
fn set_user(user: u32) -> u32 {
    // SAFETY: a number; it holds for the calling thread.
    (unsafe { libc::syscall(libc::SYS_setfsuid, user) }) as u32
}

fn set_group(group: u32) -> u32 {
    // SAFETY: as in `set_user`.
    (unsafe { libc::syscall(libc::SYS_setfsgid, group) }) as u32
}

fn effective_user() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// Lets any user send to a socket of this process. (2)
fn let_others_send(name: &Path) -> io::Result<()> {
    // Neither a link is followed nor a socket connected: it stands for the file itself.
    let file =
        File::options().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(name)?;
    let meta = file.metadata()?;
    if !meta.file_type().is_socket() || meta.uid() != effective_user() || meta.nlink() != 1 {
        return Err(io::Error::other(format!("{} was replaced by another file", path_line(name))));
    }
    // fchmod(2) refuses such a descriptor; /proc leads to the same file whatever has its name now.
    let same = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    fs::set_permissions(same, Permissions::from_mode(0o666))
}

#[cfg(test)]
mod tests;
