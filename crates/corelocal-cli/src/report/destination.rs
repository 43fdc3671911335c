//! The file that a path leads to, found and written without trust in other users.
//!
//! The path of a report may lead through a directory that other users may write to, such as `/tmp`. A symbolic link
//! there could lead to any file of this user, and a pipe there could never have a reader. The kernel's
//! `fs.protected_symlinks` is of no help: it may be off, and `realpath(3)` reads links without asking it.
//!
//! # Invariants
//! 1. Every name is looked up from the open directory that it stands in, and a link is judged and read by one
//!    descriptor. So a name that is exchanged meanwhile changes nothing.
//! 2. A symbolic link is followed if no other user may write to its directory. Elsewhere it is followed if it belongs
//!    to this user or root and has one name: an attacker can give another's link a second one, by a hard link.
//! 3. A regular file is whole or as it was: it is written beside its place and renamed into it. What cannot be replaced
//!    (a pipe, a device) is written in place: opened without waiting, and a pipe only if it is this user's or root's.
//!    Where another user may have given it this name, it has no other one.
//! 4. No user gets more rights to a file by its being replaced.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::output::path_line;
use crate::trusted;

/// As many links as the kernel follows in one path.
pub(crate) const MOST_LINKS: u32 = 40;
/// The file system of `/proc` (`PROC_SUPER_MAGIC`).
const PROC: u32 = 0x9fa0;
/// How many names of drafts are tried. Only one that is taken needs a second.
const MOST_DRAFTS: u32 = 64;

/// A path that is not written to, though the kernel might do so.
#[derive(Debug)]
enum Refusal {
    /// A symbolic link of another user (2).
    Link { path: PathBuf, owner: u32 },
    /// A symbolic link of several names, to which another user may have added this one (2).
    LinkOfSeveralNames(PathBuf),
    /// A pipe, or a file that is written in place, of another user (3).
    Owner(u32),
    /// What is written in place has several names, to which another user may have added this one (3).
    SeveralNames,
    /// A regular file is where there was none (3).
    Replaced,
    /// A pipe without a reader (3).
    NoReader,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Link { path, owner } => write!(
                f,
                "the link {} belongs to user {owner}, who may let it lead to any file of yours; give the \
                 path of the file itself, or one in a folder of your own",
                path_line(path)
            ),
            Refusal::Owner(owner) => write!(
                f,
                "it belongs to user {owner}, who could read all of it or never take it; give a path in a \
                 folder of your own"
            ),
            Refusal::LinkOfSeveralNames(path) => write!(
                f,
                "the link {} has several names; another user, who may write to this folder, may have \
                 added this one to lead to a file of yours; give the path of the file itself, or one in \
                 a folder of your own",
                path_line(path)
            ),
            Refusal::SeveralNames => f.write_str(
                "it has several names, and another user, who may write to this folder, may have added \
                 this one; give a path in a folder of your own",
            ),
            Refusal::Replaced => f.write_str(
                "another file took its place meanwhile; give a path in a folder of your own",
            ),
            Refusal::NoReader => f.write_str(
                "no process reads this pipe; start its reader first, or give another path",
            ),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        io::Error::other(refusal)
    }
}

/// What a path leads to.
pub struct Destination {
    folder: File,
    name: CString,
    kind: Kind,
}

enum Kind {
    /// A regular file, or none yet.
    File(Option<Old>),
    /// What cannot be replaced. Behind a link of /proc, which the kernel alone can follow, or not.
    InPlace { is_behind_link: bool },
    /// An open file of this process, by its number: `/dev/stdout`, a `>(…)` of a shell.
    Descriptor(File),
}

/// A file that is to be replaced.
struct Old {
    /// Open for no access (`O_PATH`).
    entry: File,
    meta: Metadata,
}

impl Destination {
    /// Follows a path.
    ///
    /// # Errors
    /// A link that another user may have put there (2); a folder; what the kernel refuses.
    pub fn find(path: &Path) -> io::Result<Destination> {
        let mut names = Vec::new();
        let mut folder = push(&mut names, path.as_os_str().as_bytes())?;
        let mut shown = if path.is_absolute() { PathBuf::from("/") } else { PathBuf::new() };
        let mut links = 0;
        while let Some(name) = names.pop() {
            let is_last = names.is_empty();
            if !is_last {
                // As a directory first: that mounts what is mounted on demand.
                match open_at(&folder, &name, libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW) {
                    Ok(next) => {
                        folder = next;
                        shown.push(OsStr::from_bytes(name.to_bytes()));
                        continue;
                    }
                    Err(error) if is_one_of(&error, &[libc::ENOTDIR, libc::ELOOP]) => {}
                    Err(error) => return Err(error),
                }
            }
            let entry = match open_at(&folder, &name, libc::O_PATH | libc::O_NOFOLLOW) {
                Err(error) if is_last && is_one_of(&error, &[libc::ENOENT]) => {
                    return Ok(Destination { folder, name, kind: Kind::File(None) });
                }
                entry => entry?,
            };
            let meta = entry.metadata()?;
            if meta.is_symlink() {
                links += 1;
                if links > MOST_LINKS {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP));
                }
                let is_doubtful = !is_trusted(&meta) || meta.nlink() > 1;
                if is_doubtful && may_others_write(&folder.metadata()?) {
                    let path = shown.join(OsStr::from_bytes(name.to_bytes()));
                    return Err(match is_trusted(&meta) {
                        true => Refusal::LinkOfSeveralNames(path).into(),
                        false => Refusal::Link { path, owner: meta.uid() }.into(),
                    });
                }
                if !is_in_proc(&entry)? {
                    let target = target(&entry)?;
                    // Else it is relative to the directory that it stands in.
                    if target.first() == Some(&b'/') {
                        folder = push(&mut names, &target)?;
                        shown = PathBuf::from("/");
                    } else {
                        push(&mut names, &target)?;
                    }
                } else if !is_last {
                    folder = open_at(&folder, &name, libc::O_PATH | libc::O_DIRECTORY)?;
                    shown.push(OsStr::from_bytes(name.to_bytes()));
                } else {
                    let kind = match own_descriptor(&folder, &name)? {
                        Some(file) => Kind::Descriptor(file),
                        None => Kind::InPlace { is_behind_link: true },
                    };
                    return Ok(Destination { folder, name, kind });
                }
            } else if meta.is_dir() {
                if is_last {
                    return Err(ErrorKind::IsADirectory.into());
                }
                folder = entry;
                shown.push(OsStr::from_bytes(name.to_bytes()));
            } else if !is_last {
                return Err(ErrorKind::NotADirectory.into());
            } else {
                let kind = match meta.is_file() {
                    true => Kind::File(Some(Old { entry, meta })),
                    false => {
                        check_pipe(&meta)?;
                        Kind::InPlace { is_behind_link: false }
                    }
                };
                return Ok(Destination { folder, name, kind });
            }
        }
        Err(ErrorKind::NotFound.into())
    }

    /// Writes it, whole or not at all where it can be replaced (3).
    ///
    /// # Errors
    /// What the kernel refuses, or this does (3).
    pub fn write(self, content: &[u8]) -> io::Result<()> {
        match &self.kind {
            Kind::File(old) => {
                let (draft, mut file) = self.make(old.as_ref(), draft_name)?;
                let done = file
                    .write_all(content)
                    .and_then(|()| rename_at(&self.folder, &draft, &self.name));
                if done.is_err() {
                    // Nothing to add if this fails too: the first error is the one to tell.
                    let _ = unlink_at(&self.folder, &draft);
                }
                done
            }
            Kind::InPlace { is_behind_link } => self.open(*is_behind_link)?.write_all(content),
            Kind::Descriptor(file) => (&*file).write_all(content),
        }
    }

    /// Makes what it would be written to, and leaves nothing behind.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn try_out(self) -> io::Result<()> {
        let Kind::File(old) = &self.kind else { return Ok(()) };
        let (draft, _) = self.make(old.as_ref(), draft_name)?;
        unlink_at(&self.folder, &draft)
    }

    /// Makes the draft of a file, with no more rights than the one that it replaces gave (4). What has the draft's name
    /// already stays as it is: the draft gets the next name.
    fn make(
        &self,
        old: Option<&Old>,
        mut next_name: impl FnMut() -> CString,
    ) -> io::Result<(CString, File)> {
        // Another user's choice of rights is not ours.
        let old = old.filter(|old| is_trusted(&old.meta));
        // For its user alone until its group is right.
        let mode = old.map_or(0o666, |old| old.meta.mode() & 0o700);
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let mut tried = 0;
        let (draft, file) = loop {
            let draft = next_name();
            tried += 1;
            match open_at_with(&self.folder, &draft, flags, mode) {
                Err(error) if is_one_of(&error, &[libc::EEXIST]) && tried < MOST_DRAFTS => {}
                made => break (draft, made?),
            }
        };
        let done = match old {
            Some(old) => self.set_rights(&file, old),
            None => Ok(()),
        };
        if let Err(error) = done {
            let _ = unlink_at(&self.folder, &draft);
            return Err(error);
        }
        Ok((draft, file))
    }

    /// Gives a draft no more rights than the file that it replaces gave (4).
    fn set_rights(&self, file: &File, old: &Old) -> io::Result<()> {
        let mut mode = old.meta.mode() & 0o777;
        if has_access_list(&old.entry) || has_access_list(file) || self.is_doubtful(&old.meta)? {
            // An access list's users are not those of the mode, whose bits for the group are the list's limit. And the
            // mode of a file that another user has put here is not this user's choice.
            mode &= 0o700;
        } else if file.metadata()?.gid() != old.meta.gid()
            && std::os::unix::fs::fchown(file, None, Some(old.meta.gid())).is_err()
        {
            // The old group's users are among all others now.
            mode &= 0o700 | mode >> 3 & 0o007;
        }
        // Where a file system has no modes it has fewer rights now, or those of all files there.
        let _ = file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
        Ok(())
    }

    /// Whether another user may have given a file the name that it was found by, though it has another one.
    fn is_doubtful(&self, found: &Metadata) -> io::Result<bool> {
        Ok(found.nlink() > 1 && may_others_write(&self.folder.metadata()?))
    }

    /// Opens what is written in place.
    fn open(&self, is_behind_link: bool) -> io::Result<File> {
        let follow = if is_behind_link { 0 } else { libc::O_NOFOLLOW };
        let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOCTTY | follow;
        let file = match open_at(&self.folder, &self.name, flags) {
            Err(error) if is_one_of(&error, &[libc::ENXIO]) => return Err(Refusal::NoReader.into()),
            file => file?,
        };
        let meta = file.metadata()?;
        check_pipe(&meta)?;
        if !is_behind_link {
            // What was found was no regular file: another user may have put this one in its place.
            if meta.is_file() {
                return Err(Refusal::Replaced.into());
            }
            if self.is_doubtful(&meta)? {
                return Err(Refusal::SeveralNames.into());
            }
        }
        if meta.is_file() {
            if !is_own(&meta) {
                return Err(Refusal::Owner(meta.uid()).into());
            }
            file.set_len(0)?;
        }
        // A write waits for a slow reader: O_NONBLOCK was the only flag that this call can clear.
        // SAFETY: a descriptor and numbers.
        checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) })?;
        Ok(file)
    }
}

/// A name under which a file may be written first. The file's own name is not in it: one of 255 bytes leaves no room.
fn draft_name() -> CString {
    // No zero byte is in it.
    CString::new(format!(".corelocal.{:016x}.tmp", trusted::random())).unwrap_or_default()
}

/// Puts the names of a path onto those that are still to be looked up, the first on top; where its lookup begins.
fn push(names: &mut Vec<CString>, path: &[u8]) -> io::Result<File> {
    if path.is_empty() {
        return Err(ErrorKind::NotFound.into());
    }
    // A path that ends with a slash is a folder's.
    let end = path.ends_with(b"/").then_some(&b"."[..]);
    let parts = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).chain(end);
    let parts = parts.map(CString::new).collect::<Result<Vec<_>, _>>()?;
    names.extend(parts.into_iter().rev());
    let start = if path[0] == b'/' { c"/" } else { c"." };
    // SAFETY: a path that ends with NUL; the descriptor is ours alone.
    unsafe {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        checked(libc::open(start.as_ptr(), flags)).map(|descriptor| File::from_raw_fd(descriptor))
    }
}

fn open_at(folder: &File, name: &CString, flags: i32) -> io::Result<File> {
    open_at_with(folder, name, flags, 0)
}

fn open_at_with(folder: &File, name: &CString, flags: i32, mode: u32) -> io::Result<File> {
    let (folder, flags) = (folder.as_raw_fd(), flags | libc::O_CLOEXEC);
    loop {
        // SAFETY: a descriptor, and a name that ends with NUL.
        match checked(unsafe { libc::openat(folder, name.as_ptr(), flags, mode) }) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // SAFETY: just opened, and ours alone.
            opened => return opened.map(|descriptor| unsafe { File::from_raw_fd(descriptor) }),
        }
    }
}

fn rename_at(folder: &File, from: &CString, to: &CString) -> io::Result<()> {
    let folder = folder.as_raw_fd();
    // SAFETY: descriptors, and names that end with NUL.
    checked(unsafe { libc::renameat(folder, from.as_ptr(), folder, to.as_ptr()) }).map(drop)
}

fn unlink_at(folder: &File, name: &CString) -> io::Result<()> {
    // SAFETY: a descriptor, and a name that ends with NUL.
    checked(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// Where an open link leads to.
fn target(link: &File) -> io::Result<Vec<u8>> {
    let mut target = vec![0; libc::PATH_MAX as usize];
    let room = target.as_mut_ptr().cast();
    // SAFETY: a descriptor, an empty name, and so much room.
    let len = unsafe { libc::readlinkat(link.as_raw_fd(), c"".as_ptr(), room, target.len()) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    target.truncate(len);
    Ok(target)
}

/// Whether it is of the file system of /proc, some of whose links have no path to follow.
fn is_in_proc(file: &File) -> io::Result<bool> {
    // SAFETY: all bytes 0 is a `statfs`.
    let mut status: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a descriptor; `status` is writable.
    checked(unsafe { libc::fstatfs(file.as_raw_fd(), &mut status) })?;
    Ok(status.f_type as u32 == PROC)
}

/// The open file of this process that a name in /proc stands for: what the process was given, whoever owns it.
fn own_descriptor(folder: &File, name: &CString) -> io::Result<Option<File>> {
    let number = name.to_str().ok().and_then(|name| name.parse::<RawFd>().ok());
    let (Some(number), Ok(own)) = (number, std::fs::metadata("/proc/self/fd")) else {
        return Ok(None);
    };
    let folder = folder.metadata()?;
    if (folder.dev(), folder.ino()) != (own.dev(), own.ino()) {
        return Ok(None);
    }
    // SAFETY: a number; one that is no descriptor is refused.
    let copy = checked(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) })?;
    // SAFETY: just made, and ours alone.
    Ok(Some(unsafe { File::from_raw_fd(copy) }))
}

/// Whether more users than those of its mode may have rights to a file: it has an access control list. Also if the
/// kernel does not tell.
fn has_access_list(file: &File) -> bool {
    // fgetxattr(2) refuses a descriptor without access.
    let path = CString::new(format!("/proc/thread-self/fd/{}", file.as_raw_fd()));
    let (path, name) = (path.unwrap_or_default(), c"system.posix_acl_access");
    // SAFETY: strings that end with NUL, and no room.
    let len = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    len >= 0 || !is_one_of(&io::Error::last_os_error(), &[libc::ENODATA, libc::EOPNOTSUPP])
}

fn check_pipe(meta: &Metadata) -> io::Result<()> {
    let is_pipe = meta.file_type().is_fifo() || meta.file_type().is_socket();
    if is_pipe && !is_trusted(meta) {
        return Err(Refusal::Owner(meta.uid()).into());
    }
    Ok(())
}

fn is_own(meta: &Metadata) -> bool {
    // SAFETY: no preconditions.
    meta.uid() == unsafe { libc::geteuid() }
}

/// Whether it belongs to this user or root.
pub(crate) fn is_trusted(meta: &Metadata) -> bool {
    meta.uid() == 0 || is_own(meta)
}

/// Whether other users than this one and root may make names in a folder; a sticky one lets them.
fn may_others_write(folder: &Metadata) -> bool {
    !is_trusted(folder) || folder.mode() & 0o022 != 0
}

fn is_one_of(error: &io::Error, numbers: &[i32]) -> bool {
    error.raw_os_error().is_some_and(|number| numbers.contains(&number))
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, lchown, symlink};

    /// A user without rights.
    const ANOTHER: u32 = 65534;

    fn write(path: &Path, content: &str) -> Result<(), String> {
        let done = Destination::find(path).and_then(|found| found.write(content.as_bytes()));
        done.map_err(|error| error.to_string())
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A directory that all users may write to, as `/tmp` is.
    fn shared() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o1777);
        folder
    }

    /// Gives a file to another user, or says that the test is skipped.
    fn give_away(path: &Path) -> bool {
        let given = lchown(path, Some(ANOTHER), None).is_ok();
        if !given {
            eprintln!("skipped: a file of another user: needs root");
        }
        given
    }

    fn make_pipe(path: &Path) {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o666) }, 0);
    }

    #[test]
    fn links_of_other_users_are_not_followed() {
        let (folder, own) = (shared(), tempfile::tempdir().unwrap());
        let (link, kept) = (folder.path().join("link"), own.path().join("kept"));
        fs::write(&kept, "kept").unwrap();
        set_mode(&kept, 0o600);
        symlink(&kept, &link).unwrap();
        let through = folder.path().join("folder");
        symlink(own.path(), &through).unwrap();
        if !give_away(&link) || !give_away(&through) {
            return;
        }
        for path in [link.clone(), through.join("kept"), through.join("new")] {
            let why = write(&path, "new").unwrap_err();
            assert!(
                why.contains("belongs to user 65534") && why.contains("give the path"),
                "{why}"
            );
            assert!(Destination::find(&path).is_err());
        }
        assert_eq!((read(&kept).as_str(), mode(&kept)), ("kept", 0o600));
        assert_eq!(fs::read_dir(own.path()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        // Root's, or this user's, are.
        lchown(&link, Some(0), None).unwrap();
        write(&link, "new").unwrap();
        assert_eq!((read(&kept).as_str(), mode(&kept)), ("new", 0o600));
        // In a directory that no other user may write to its owner made it.
        set_mode(folder.path(), 0o755);
        write(&through.join("kept"), "newer").unwrap();
        assert_eq!(read(&kept), "newer");
    }

    #[test]
    fn links_of_several_names_are_not_followed_where_another_user_may_have_added_one() {
        let (folder, own) = (shared(), tempfile::tempdir().unwrap());
        let (kept, link) = (own.path().join("kept"), own.path().join("link"));
        fs::write(&kept, "kept").unwrap();
        symlink(&kept, &link).unwrap();
        symlink(own.path(), own.path().join("folder")).unwrap();
        let (again, through) = (folder.path().join("again"), folder.path().join("folder"));
        // Without following them.
        fs::hard_link(&link, &again).unwrap();
        fs::hard_link(own.path().join("folder"), &through).unwrap();
        for mode in [0o1777, 0o775] {
            set_mode(folder.path(), mode);
            for path in [again.clone(), through.join("kept"), through.join("new")] {
                let why = write(&path, "new").unwrap_err();
                assert!(why.contains("several names") && why.contains("give the path"), "{why}");
            }
        }
        assert_eq!(read(&kept), "kept");
        // In a folder of this user's own they are this user's.
        write(&link, "new").unwrap();
        assert_eq!(read(&kept), "new");
        set_mode(folder.path(), 0o755);
        write(&through.join("kept"), "newer").unwrap();
        assert_eq!(read(&kept), "newer");
    }

    #[test]
    fn a_file_put_in_the_place_of_a_pipe_is_not_emptied() {
        let folder = shared();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("kept"), "kept").unwrap();
        make_pipe(&at("pipe"));
        let found = Destination::find(&at("pipe")).unwrap();
        fs::remove_file(at("pipe")).unwrap();
        fs::hard_link(at("kept"), at("pipe")).unwrap();
        let why = found.write(b"new").unwrap_err().to_string();
        assert!(why.contains("took its place"), "{why}");
        assert_eq!(read(&at("kept")), "kept");
        // Nor is a pipe of several names written to.
        make_pipe(&at("other"));
        fs::hard_link(at("other"), at("another")).unwrap();
        let _reader =
            File::options().read(true).custom_flags(libc::O_NONBLOCK).open(at("other")).unwrap();
        assert!(write(&at("another"), "new").unwrap_err().contains("several names"));
        set_mode(folder.path(), 0o755);
        write(&at("another"), "new").unwrap();
    }

    #[test]
    fn a_replaced_file_with_an_access_list_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        set_mode(&path, 0o640);
        let has_list = |path: &Path| has_access_list(&File::open(path).unwrap());
        assert!(!has_list(&path));
        // Version 2. The owner, a user, the group, the most that these two have, and all others.
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, user) in [
            (1_u16, 6_u16, u32::MAX),
            (2, 4, ANOTHER),
            (4, 0, u32::MAX),
            (16, 4, u32::MAX),
            (32, 4, u32::MAX),
        ] {
            list.extend(tag.to_le_bytes());
            list.extend(rights.to_le_bytes());
            list.extend(user.to_le_bytes());
        }
        let set = |path: &Path, name: &std::ffi::CStr| {
            let path = CString::new(path.as_os_str().as_bytes()).unwrap();
            let list = (list.as_ptr().cast(), list.len());
            // SAFETY: strings that end with NUL, and so many bytes.
            unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), list.0, list.1, 0) == 0 }
        };
        if !set(&path, c"system.posix_acl_access") {
            return eprintln!("skipped: access lists: {}", io::Error::last_os_error());
        }
        assert!(has_list(&path));
        assert_eq!(mode(&path), 0o644);
        write(&path, "new").unwrap();
        assert_eq!((read(&path).as_str(), mode(&path)), ("new", 0o600));
        // A list that the folder gives to all new files lets no user in, either.
        fs::write(&path, "old").unwrap();
        set_mode(&path, 0o640);
        assert!(!has_list(&path));
        assert!(set(folder.path(), c"system.posix_acl_default"));
        write(&path, "new").unwrap();
        assert!(has_list(&path));
        assert_eq!((read(&path).as_str(), mode(&path)), ("new", 0o600));
    }

    #[test]
    fn rights_of_a_file_that_another_user_may_have_linked_are_not_taken_over() {
        let (folder, own) = (shared(), tempfile::tempdir().unwrap());
        let (open, path) = (own.path().join("open"), folder.path().join("file"));
        fs::write(&open, "kept").unwrap();
        set_mode(&open, 0o666);
        fs::hard_link(&open, &path).unwrap();
        write(&path, "new").unwrap();
        assert_eq!((read(&path).as_str(), mode(&path)), ("new", 0o600));
        assert_eq!((read(&open).as_str(), mode(&open)), ("kept", 0o666));
    }

    #[test]
    fn a_draft_takes_a_name_that_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let (target, taken) = (folder.path().join("target"), folder.path().join("taken"));
        fs::write(&target, "kept").unwrap();
        symlink(&target, &taken).unwrap();
        let found = Destination::find(&folder.path().join("file")).unwrap();
        let mut names = [c"taken", c"taken", c"free"].into_iter();
        let (draft, mut file) = found.make(None, || names.next().unwrap().to_owned()).unwrap();
        assert_eq!(draft.as_c_str(), c"free");
        file.write_all(b"new").unwrap();
        assert_eq!(read(&folder.path().join("free")), "new");
        let never = found.make(None, || c"taken".to_owned()).map(drop).unwrap_err();
        assert_eq!(never.kind(), ErrorKind::AlreadyExists);
        // What has the name stays, and is not followed.
        assert!(fs::symlink_metadata(&taken).unwrap().is_symlink());
        assert_eq!(read(&target), "kept");
        let names: std::collections::HashSet<_> = (0..8).map(|_| draft_name()).collect();
        assert!(names.len() > 1, "{names:?}");
    }

    #[test]
    fn a_name_may_be_as_long_as_the_kernel_lets_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n".repeat(255));
        for content in ["new", "newer"] {
            write(&path, content).unwrap();
            assert_eq!(read(&path), content);
        }
        Destination::find(&path).unwrap().try_out().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_of_this_user_are_followed_and_stay() {
        let folder = shared();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("in")).unwrap();
        symlink("../to", at("in/link")).unwrap();
        symlink("in", at("folder")).unwrap();
        symlink(at("folder"), at("whole")).unwrap();
        // One that leads nowhere yet, too.
        for content in ["new", "newer"] {
            write(&at("whole/./link"), content).unwrap();
            assert_eq!(read(&at("to")), content);
        }
        assert!(fs::symlink_metadata(at("in/link")).unwrap().is_symlink());
        symlink("loop", at("loop")).unwrap();
        assert!(write(&at("loop"), "new").unwrap_err().contains("symbolic link"));
        for path in ["in", "in/", "folder", "in/.."] {
            let found = Destination::find(&at(path)).err().map(|error| error.kind());
            assert_eq!(found, Some(ErrorKind::IsADirectory), "{path}");
        }
    }

    #[test]
    fn a_replaced_file_keeps_its_rights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for rights in [0o600, 0o640, 0o664] {
            fs::write(&path, "old").unwrap();
            set_mode(&path, rights);
            write(&path, "new").unwrap();
            assert_eq!((read(&path).as_str(), mode(&path)), ("new", rights));
        }
        // Another name of it stays the old one's.
        let other = folder.path().join("other");
        fs::hard_link(&path, &other).unwrap();
        write(&path, "newer").unwrap();
        assert_eq!((read(&path).as_str(), read(&other).as_str()), ("newer", "new"));
        // What another user allowed is not taken over.
        set_mode(&path, 0o666);
        if give_away(&path) {
            write(&path, "ours").unwrap();
            assert_eq!((read(&path).as_str(), mode(&path) & 0o022), ("ours", 0));
            assert_ne!(fs::metadata(&path).unwrap().uid(), ANOTHER);
        }
    }

    #[test]
    fn pipes_of_other_users_are_not_written_to() {
        let folder = shared();
        let path = folder.path().join("pipe");
        make_pipe(&path);
        assert!(write(&path, "new").unwrap_err().contains("start its reader first"));
        let mut reader =
            File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        write(&path, "new").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "new");
        if give_away(&path) {
            assert!(write(&path, "new").unwrap_err().contains("belongs to user 65534"));
            assert_eq!(reader.read_to_string(&mut text).unwrap(), 0);
        }
    }

    #[test]
    fn descriptors_and_devices_are_written_to_as_they_are() {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, which are then ours alone.
        let (mut reader, writer) = unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
        };
        write(Path::new(&format!("/proc/self/fd/{}", writer.as_raw_fd())), "one ").unwrap();
        // A link of this user to it, as /dev/stdout is one of root.
        let folder = shared();
        let link = folder.path().join("link");
        symlink(format!("/dev/fd/{}", writer.as_raw_fd()), &link).unwrap();
        write(&link, "two").unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two");
        write(Path::new("/dev/null"), "new").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let why = write(Path::new("/dev/full"), "new").unwrap_err();
        assert!(why.contains("No space"), "{why}");
    }
}
