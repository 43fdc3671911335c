//! A folder for what the processes of a program leave, and where it is.
//!
//! A profile of locks is memory that its process maps and stores to at each wait: on a disk these stores would wait for
//! writes at times, so it is in memory where that has room. A heap profile is written once, and may be large: 64 MiB of
//! memory for files, as a container has by default, are some thousand samples. So it is where there is most room, or
//! where the user says.
//!
//! Invariants:
//! - The folder belongs to this user alone, and goes away with its [`Folder`]. Other users cannot know its name before:
//!   else they could take all names in a shared place.
//! - Its path can be a word in the environment of a program: it is text, has no comma, and is not too long.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::bail;
use tempfile::TempDir;

use crate::output::path_line;

/// Files there are memory.
const MEMORY: &str = "/dev/shm";
/// Room for the locks of some processes, of 5 MiB each.
const ENOUGH: f64 = (32 << 20) as f64;
/// The maximum length of the folder's path: corelocal's malloc takes 511 bytes, with the name of a file.
const LONGEST: usize = 400;

/// A folder that is ours.
pub struct Folder(TempDir);

impl Folder {
    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Creates a folder for files of a few MiB that are to be in memory.
    pub fn new(what: &str) -> anyhow::Result<Folder> {
        let mut places = roomy(wished());
        if room(Path::new(MEMORY)) >= ENOUGH {
            places.insert(0, MEMORY.into());
        }
        Folder::within(&places, what)
    }

    /// Creates a folder for files that may be large.
    pub fn with_room(what: &str) -> anyhow::Result<Folder> {
        Folder::within(&roomy(wished()), what)
    }

    /// Creates it in the first place that takes it.
    fn within(places: &[PathBuf], what: &str) -> anyhow::Result<Folder> {
        let mut refused: Vec<String> = Vec::new();
        for place in places {
            let place = fs::canonicalize(place).unwrap_or_else(|_| place.clone());
            match make(&place, what) {
                Ok(folder) => return Ok(Folder(folder)),
                Err(why) => refused.push(format!("{} ({why})", path_line(&place))),
            }
        }
        refused.dedup();
        bail!(
            "cannot make a folder for profiles in {}; set TMPDIR to a folder that you may write to",
            refused.join(", nor in ")
        )
    }

    /// Returns what is in it, by name.
    pub fn profiles(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path()).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }
}

/// Returns what the user says.
fn wished() -> Option<PathBuf> {
    std::env::var_os("TMPDIR").filter(|place| !place.is_empty()).map(PathBuf::from)
}

/// Returns the user's place, and then those with most room.
fn roomy(wished: Option<PathBuf>) -> Vec<PathBuf> {
    let mut places = [MEMORY, "/tmp"].map(PathBuf::from);
    places.sort_by(|a, b| room(b).total_cmp(&room(a)));
    wished.into_iter().chain(places).collect()
}

/// Returns the bytes that we may write there; none where that is not known.
fn room(place: &Path) -> f64 {
    let Ok(place) = CString::new(place.as_os_str().as_bytes()) else { return 0.0 };
    // SAFETY: the path ends with a zero byte; a zeroed statvfs is valid, and is written to only.
    unsafe {
        let mut told: libc::statvfs = std::mem::zeroed();
        match libc::statvfs(place.as_ptr(), &mut told) {
            0 => told.f_bavail as f64 * told.f_frsize as f64,
            _ => 0.0,
        }
    }
}

/// Returns a new folder there; or why there is none.
fn make(place: &Path, what: &str) -> Result<TempDir, String> {
    match place.to_str() {
        None => return Err("its name is not valid UTF-8".to_owned()),
        Some(name) if name.contains(',') => return Err("its name has a comma".to_owned()),
        Some(name) if name.len() > LONGEST => return Err("its name is too long".to_owned()),
        Some(_) => {}
    }
    let name = format!("corelocal-{what}-{}-", std::process::id());
    let mut builder = tempfile::Builder::new();
    let made = builder.prefix(&name).permissions(Permissions::from_mode(0o700)).tempdir_in(place);
    made.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_away() {
        let folder = Folder::new("test").expect("a folder");
        let path = folder.path().to_owned();
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o700);
        fs::write(path.join("corelocal-locks.1"), "").expect("a file in it");
        assert_eq!(folder.profiles().len(), 1);
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn the_first_place_that_takes_it() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let good = dir.path().canonicalize().expect("a path");
        let comma = good.join("a,b");
        fs::create_dir(&comma).expect("a new folder");
        let (missing, long) = (good.join("missing"), good.join("l".repeat(LONGEST)));
        let places = [missing.clone(), comma.clone(), long.clone(), good.clone(), "/".into()];
        let folder = Folder::within(&places, "test").expect("a folder");
        assert_eq!(folder.path().parent(), Some(&*good));
        let places = [missing.clone(), comma, long];
        let said = Folder::within(&places, "test").map(|_| ()).expect_err("no place").to_string();
        for text in [missing.to_str().unwrap(), "No such file", "a comma", "too long", "TMPDIR"] {
            assert!(said.contains(text), "{text}: {said}");
        }
    }

    #[test]
    fn the_users_place_comes_first_and_then_the_one_with_most_room() {
        let places = roomy(Some("/x".into()));
        assert_eq!((places.len(), &*places[0]), (3, Path::new("/x")));
        // Others write there meanwhile: only what is far apart is looked at.
        assert!(room(&places[1]) * 2.0 >= room(&places[2]), "{places:?}");
        assert_eq!(roomy(None).len(), 2);
        assert_eq!(room(Path::new("/no/such/folder")), 0.0);
    }
}
