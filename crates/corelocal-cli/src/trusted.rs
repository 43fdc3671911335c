//! Finds libraries in folders relative to this program, and names for files, without trust in other users.
//!
//! A build in `/tmp/build` makes `../../rivals` of its program a folder in `/tmp`, where every user may put one. A library
//! from there is loaded with the rights of the user of this program, and its constructors run.
//!
//! # Invariants
//! 1. A library is used if it, each folder above it and each link on the way belong to a trusted user, and no other
//!    user may write to them. Other users may write to a sticky folder: they cannot replace what is ours there. But the
//!    library itself is in no such folder.
//! 2. Trusted are this process's user, root, and the users that can replace this program's own file anyway: its owner,
//!    and the group that may write to its folder.
//! 3. The path that was judged is resolved. No name on it can be exchanged by an untrusted user.

use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::fmt;
use std::fs::Metadata;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use crate::output::path_line;
use crate::report::destination::{MOST_LINKS, is_trusted};

/// Others than the owner may delete and rename nothing in such a folder (`S_ISVTX`).
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Why a file is not used, though it is there.
#[derive(Debug)]
pub struct Refused {
    /// What was looked for.
    file: PathBuf,
    /// What on its way is not trusted.
    at: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Owner(u32),
    OthersMayWrite,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, at) = (path_line(&self.file), path_line(&self.at));
        match self.why {
            Why::Owner(owner) => write!(
                f,
                "{file} is not used: {at} belongs to user {owner}, who could run any code by it; remove it, or build \
                 in a folder of your own"
            ),
            Why::OthersMayWrite => write!(
                f,
                "{file} is not used: other users may write to {at}, and could run any code by it; take that right \
                 away (`chmod go-w`), or build in a folder of your own"
            ),
        }
    }
}

impl std::error::Error for Refused {}

/// Whom a library is taken from (2).
struct Trust {
    /// The owner of this program's file.
    owner: Option<u32>,
    /// The group that may write to its folder.
    group: Option<u32>,
}

impl Trust {
    fn in_program(program: &Path) -> Trust {
        let folder = program.parent().and_then(|folder| folder.metadata().ok());
        // In a sticky folder a group can add files, and replace none.
        let group = folder.filter(|meta| meta.mode() & (GROUP_WRITES | STICKY) == GROUP_WRITES);
        Trust {
            owner: program.metadata().ok().map(|meta| meta.uid()),
            group: group.map(|meta| meta.gid()),
        }
    }

    /// What is wrong with something on the way to a file.
    fn doubt(&self, meta: &Metadata, is_above_folder: bool) -> Option<Why> {
        if !is_trusted(meta) && self.owner != Some(meta.uid()) {
            return Some(Why::Owner(meta.uid()));
        }
        // The mode of a link says nothing.
        if meta.is_symlink() || is_above_folder && meta.mode() & STICKY != 0 {
            return None;
        }
        let is_groups = meta.mode() & GROUP_WRITES != 0 && self.group != Some(meta.gid());
        (is_groups || meta.mode() & OTHERS_WRITE != 0).then_some(Why::OthersMayWrite)
    }

    /// The file that an absolute path leads to.
    fn resolve(&self, file: &Path) -> io::Result<PathBuf> {
        let refused = |at: &Path, why| {
            let (file, at) = (file.to_owned(), at.to_owned());
            Err(io::Error::other(Refused { file, at, why }))
        };
        let mut names = parts(file);
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        while let Some(name) = names.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            let meta = next.symlink_metadata()?;
            if let Some(why) = self.doubt(&meta, meta.is_dir()) {
                return refused(&next, why);
            }
            if !meta.is_symlink() {
                at = next;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(io::Error::from_raw_os_error(libc::ELOOP));
            }
            let target = next.read_link()?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            names.extend(parts(&target));
        }
        if !at.is_file() {
            return Err(ErrorKind::NotFound.into());
        }
        let folder = at.parent().unwrap_or(Path::new("/"));
        match self.doubt(&folder.metadata()?, false) {
            Some(why) => refused(folder, why),
            None => Ok(at),
        }
    }
}

/// The names in a path, the first one last.
fn parts(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut names: Vec<OsString> = names.collect();
    names.reverse();
    names
}

/// The first file of this name that is there and trusted, resolved (1), in folders relative to that of this program.
///
/// # Errors
/// Why one is not used that is there, if no other one is.
pub fn beside_this_program(places: &[&str], name: &str) -> Result<Option<PathBuf>, Refused> {
    let program = std::env::current_exe().and_then(|path| path.canonicalize());
    program.map_or(Ok(None), |program| beside(&program, places, name))
}

/// As [`beside_this_program`], for the program of this resolved path.
fn beside(program: &Path, places: &[&str], name: &str) -> Result<Option<PathBuf>, Refused> {
    let folder = program.parent().unwrap_or(Path::new("/"));
    let trust = Trust::in_program(program);
    let mut first = None;
    for place in places {
        match trust.resolve(&folder.join(place).join(name)) {
            Ok(file) => return Ok(Some(file)),
            Err(error) => first = first.or(error.downcast::<Refused>().ok()),
        }
    }
    first.map_or(Ok(None), Err)
}

/// A number that no other user can guess, for a name in a folder that others may write to. Processes of two containers
/// may have one process number.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    /// A user without rights.
    const ANOTHER: u32 = 65534;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A program in a folder of a folder as `/tmp` is, and what it looks for.
    struct Case {
        _shared: tempfile::TempDir,
        program: PathBuf,
        library: PathBuf,
    }

    impl Case {
        fn new() -> Case {
            let shared = tempfile::tempdir().unwrap();
            set_mode(shared.path(), 0o1777);
            let at = shared.path().canonicalize().unwrap();
            for folder in ["build", "build/release", "rivals"] {
                fs::create_dir(at.join(folder)).unwrap();
                set_mode(&at.join(folder), 0o755);
            }
            let (program, library) = (at.join("build/release/program"), at.join("rivals/x.so"));
            for file in [&program, &library] {
                fs::write(file, "").unwrap();
                set_mode(file, 0o755);
            }
            Case { _shared: shared, program, library }
        }

        fn folder(&self) -> &Path {
            self.library.parent().unwrap()
        }

        fn found(&self) -> Result<Option<PathBuf>, String> {
            let found = beside(&self.program, &["none", "../../rivals"], "x.so");
            found.map_err(|refused| refused.to_string())
        }

        #[track_caller]
        fn is_used(&self) {
            assert_eq!(self.found(), Ok(Some(self.library.clone())));
        }

        #[track_caller]
        fn is_refused(&self, at: &Path, why: &str) {
            let said = self.found().unwrap_err();
            let named = [" ", ", "].map(|end| format!("{}{end}", at.display()));
            assert!(named.iter().any(|name| said.contains(name)) && said.contains(why), "{said}");
            assert!(said.contains("x.so is not used") && said.contains("of your own"), "{said}");
        }
    }

    #[test]
    fn a_library_that_other_users_may_write_is_refused() {
        let case = Case::new();
        case.is_used();
        for mode in [0o775, 0o757] {
            set_mode(&case.library, mode);
            case.is_refused(&case.library, "other users may write");
        }
        set_mode(&case.library, 0o755);
        // A sticky folder is good enough above that of the library, and for the library itself it is not.
        for mode in [0o775, 0o757, 0o1777] {
            set_mode(case.folder(), mode);
            case.is_refused(case.folder(), "other users may write");
        }
        set_mode(case.folder(), 0o755);
        case.is_used();
        let above = case.folder().parent().unwrap();
        set_mode(above, 0o777);
        case.is_refused(above, "other users may write");
        set_mode(above, 0o1777);
        case.is_used();
        fs::remove_file(&case.library).unwrap();
        assert_eq!(case.found(), Ok(None));
        fs::create_dir(&case.library).unwrap();
        assert_eq!(case.found(), Ok(None));
    }

    #[test]
    fn a_library_of_another_user_is_refused() {
        let case = Case::new();
        if lchown(&case.library, Some(ANOTHER), None).is_err() {
            return eprintln!("skipped: a_library_of_another_user_is_refused: needs root");
        }
        case.is_refused(&case.library, "belongs to user 65534");
        // That user can replace the program, too.
        lchown(&case.program, Some(ANOTHER), None).unwrap();
        case.is_used();
        lchown(&case.program, Some(0), None).unwrap();
        lchown(&case.library, Some(0), None).unwrap();
        case.is_used();
        lchown(case.folder(), Some(ANOTHER), None).unwrap();
        case.is_refused(case.folder(), "belongs to user 65534");
        // A link of that user to a library of ours.
        let moved = case.folder().with_file_name("moved");
        lchown(case.folder(), Some(0), None).unwrap();
        fs::rename(case.folder(), &moved).unwrap();
        symlink(&moved, case.folder()).unwrap();
        assert_eq!(case.found(), Ok(Some(moved.join("x.so"))));
        lchown(case.folder(), Some(ANOTHER), None).unwrap();
        case.is_refused(case.folder(), "belongs to user 65534");
    }

    #[test]
    fn a_group_that_may_replace_the_program_is_trusted() {
        let case = Case::new();
        let folder = case.program.parent().unwrap();
        set_mode(case.folder(), 0o775);
        set_mode(&case.library, 0o775);
        case.is_refused(case.folder(), "other users may write");
        set_mode(folder, 0o775);
        case.is_used();
        set_mode(folder, 0o1775);
        case.is_refused(case.folder(), "other users may write");
        set_mode(folder, 0o775);
        if std::os::unix::fs::chown(&case.library, None, Some(ANOTHER)).is_err() {
            return eprintln!(
                "skipped: a_group_that_may_replace_the_program_is_trusted: another group: needs root"
            );
        }
        case.is_refused(&case.library, "other users may write");
    }

    #[test]
    fn links_are_resolved_and_may_form_circles() {
        let case = Case::new();
        fs::rename(&case.library, case.library.with_file_name("real.so")).unwrap();
        symlink("../rivals/./real.so", &case.library).unwrap();
        assert_eq!(case.found(), Ok(Some(case.library.with_file_name("real.so"))));
        fs::remove_file(&case.library).unwrap();
        symlink("x.so", &case.library).unwrap();
        assert_eq!(case.found(), Ok(None));
    }
}
