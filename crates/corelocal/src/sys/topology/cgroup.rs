//! The control groups of this process, under cgroup v1, v2 and both at once; and which cpus the cpuset controller
//! leaves to it.
//!
//! `sched_getaffinity` already honours the cpuset; this says *why* cpus are missing. What the memory controller leaves
//! is in `memory/limit.rs`. The way to a group:
//! `/proc/thread-self/cgroup` names the group, `/proc/thread-self/mountinfo` the file system it appears in, and
//! the group's directory, or the nearest ancestor that has the controller, holds the list. Formats:
//! cgroups(7), proc_pid_mountinfo(5), cpuset(7).
//!
//! # Invariants
//! 1. A group that the visible mounts do not contain is never mistaken for another one; the answer is then `None`.
//! 2. Paths and lines are long, and a malloc asks on any thread's stack: of both there are few at a time, in functions
//!    that are not inlined.

use super::{FsRoot, read_set};
use crate::sys::cpu::cpuset::CpuSet;
use crate::sys::file::lines::Lines;
use crate::sys::file::{File, OWN, PathBuf};

/// The two interfaces to control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum CgroupVersion {
    /// One hierarchy per controller.
    V1,
    /// The unified hierarchy.
    V2,
}

impl CgroupVersion {
    /// Returns the files with the list of cpus, best first. v1 has no effective list before Linux 3.17.
    fn files(self) -> &'static [&'static [u8]] {
        match self {
            CgroupVersion::V1 => &[b"/cpuset.effective_cpus", b"/cpuset.cpus"],
            CgroupVersion::V2 => &[b"/cpuset.cpus.effective"],
        }
    }

    /// Returns `true` if a mount of this type and these options shows the controller's groups.
    fn is_mounted_as(self, controller: &[u8], fs_type: &[u8], options: &[u8]) -> bool {
        match self {
            CgroupVersion::V1 => fs_type == b"cgroup" && has_item(options, controller),
            CgroupVersion::V2 => fs_type == b"cgroup2",
        }
    }
}

/// The cpus of this process's cpuset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CgroupCpus {
    /// The interface that governs cpusets here.
    pub version: CgroupVersion,
    /// The effective cpus.
    pub cpus: CpuSet,
}

/// Returns the cpuset of this process, as seen under `root`.
pub(crate) fn read(root: FsRoot<'_>) -> Option<CgroupCpus> {
    let mut group = Group::of(root, b"cpuset")?;
    // The controller may be switched off in the group: the parent's cpus are then ours.
    loop {
        let version = group.version;
        let sets = version.files().iter().filter_map(|file| group.with(file, read_set).flatten());
        let found = sets.into_iter().find(|cpus| !CpuSet::is_empty(cpus));
        if let Some(cpus) = found {
            return Some(CgroupCpus { version, cpus });
        }
        if !group.go_up() {
            return None;
        }
    }
}

/// A control group that this process is in, or one above it.
pub(in crate::sys) struct Group {
    pub(in crate::sys) version: CgroupVersion,
    directory: Directory,
}

impl Group {
    /// Returns the process's own, in the hierarchy of a controller.
    pub(in crate::sys) fn of(root: FsRoot<'_>, controller: &[u8]) -> Option<Group> {
        let (version, group) = own_group(root, controller)?;
        let directory = directory_of(root, version, controller, group.as_bytes())?;
        Some(Group { version, directory })
    }

    /// Calls `f` with the path of a file of the group, whose name begins with a slash; `None` if it is too long.
    pub(in crate::sys) fn with<T>(&self, file: &[u8], f: impl FnOnce(&PathBuf) -> T) -> Option<T> {
        let path = self.directory.path.with(file).ok()?;
        Some(f(&path))
    }

    /// Goes to the group above; false if there is none to be seen.
    pub(in crate::sys) fn go_up(&mut self) -> bool {
        // Both paths are absolute, so that there is a slash wherever a component is left to cut.
        let Directory { path, mount_length } = &mut self.directory;
        let below_mount = path.as_bytes().get(*mount_length..).unwrap_or_default();
        let cut = below_mount.iter().rposition(|&byte| byte == b'/');
        if let Some(cut) = cut {
            path.truncate(*mount_length + cut);
        }
        cut.is_some()
    }
}

/// Returns the group that a controller puts this process in: the one in its v1 hierarchy if there is such a hierarchy,
/// else the one in the unified hierarchy.
#[inline(never)]
fn own_group(root: FsRoot<'_>, controller: &[u8]) -> Option<(CgroupVersion, PathBuf)> {
    let mut lines = Lines::new(open_in(root, b"/cgroup")?);
    // One path for what comes of all lines.
    let (mut found, mut unified) = (PathBuf::join(&[]).ok()?, None);
    while let Some(line) = lines.next() {
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (Some(hierarchy), Some(controllers), Some(group)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if has_item(controllers, controller) {
            found.truncate(0);
            found.push(group).ok()?;
            return Some((CgroupVersion::V1, found));
        }
        if hierarchy == b"0" && controllers.is_empty() {
            found.truncate(0);
            unified = found.push(group).ok().map(|()| CgroupVersion::V2);
        }
    }
    unified.map(|version| (version, found))
}

/// A group's directory; the mount point is its first `mount_length` bytes.
struct Directory {
    path: PathBuf,
    mount_length: usize,
}

#[inline(never)]
fn directory_of(
    root: FsRoot<'_>,
    version: CgroupVersion,
    controller: &[u8],
    group: &[u8],
) -> Option<Directory> {
    // "/..": the group lies outside this cgroup namespace, whose mounts do not show it.
    if group.starts_with(b"/..") {
        return None;
    }
    let mut lines = Lines::new(open_in(root, b"/mountinfo")?);
    while let Some(line) = lines.next() {
        let Some(mount) = Mount::parse(line) else { continue };
        if !version.is_mounted_as(controller, mount.fs_type, mount.options) {
            continue;
        }
        match mount.directory_of(root, group)? {
            None => continue,
            found => return found,
        }
    }
    None
}

/// Opens a file of the process. The path is gone from the stack when it is read: see the invariants.
#[inline(never)]
fn open_in(root: FsRoot<'_>, name: &[u8]) -> Option<File> {
    File::open(&root.path(&[OWN.to_bytes(), name])?).ok()
}

/// The fields of a line of mountinfo that matter here, still escaped.
struct Mount<'a> {
    root: &'a [u8],
    point: &'a [u8],
    fs_type: &'a [u8],
    options: &'a [u8],
}

impl<'a> Mount<'a> {
    /// Returns the directory of a group, or `None` in `Some` if it is not mounted here; `None` if a path is too long.
    fn directory_of(&self, root: FsRoot<'_>, group: &[u8]) -> Option<Option<Directory>> {
        let Some(relative) = self.relative(group)? else { return Some(None) };
        let mut path = root.path(&[])?;
        unescape(self.point, &mut path)?;
        let mount_length = path.as_bytes().len();
        path.push(relative).ok()?;
        Some(Some(Directory { path, mount_length }))
    }

    /// Returns what is left of the group's path below what is mounted.
    #[inline(never)]
    fn relative<'g>(&self, group: &'g [u8]) -> Option<Option<&'g [u8]>> {
        let mut mounted_group = PathBuf::join(&[]).ok()?;
        unescape(self.root, &mut mounted_group)?;
        Some(below(group, mounted_group.as_bytes()))
    }

    fn parse(line: &'a [u8]) -> Option<Mount<'a>> {
        let mut fields = line.split(|&byte| byte == b' ');
        let root = fields.nth(3)?;
        let point = fields.next()?;
        // Optional fields, as many as there are, end with a lone dash.
        fields.find(|&field| field == b"-")?;
        let fs_type = fields.next()?;
        let options = fields.nth(1)?;
        Some(Mount { root, point, fs_type, options })
    }
}

/// Returns what is left of the absolute path `path` below `ancestor`: empty or beginning with a slash.
fn below<'a>(path: &'a [u8], ancestor: &[u8]) -> Option<&'a [u8]> {
    let ancestor = ancestor.strip_suffix(b"/").unwrap_or(ancestor);
    let rest = path.strip_prefix(ancestor)?;
    let rest = rest.strip_suffix(b"/").unwrap_or(rest);
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// Returns `true` if the comma-separated `list` contains `item`.
fn has_item(list: &[u8], item: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|candidate| candidate == item)
}

/// Appends `escaped` to `path`; mountinfo writes blanks and backslashes as `\` and three octal
/// digits.
fn unescape(escaped: &[u8], path: &mut PathBuf) -> Option<()> {
    let mut rest = escaped;
    loop {
        let plain = rest.iter().position(|&byte| byte == b'\\').unwrap_or(rest.len());
        path.push(&rest[..plain]).ok()?;
        let Some(digits) = rest.get(plain + 1..plain + 4) else {
            return (plain == rest.len()).then_some(());
        };
        let mut code = 0u32;
        for digit in digits {
            code = code * 8 + char::from(*digit).to_digit(8)?;
        }
        path.push(&[u8::try_from(code).ok()?]).ok()?;
        rest = &rest[plain + 4..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let line =
            b"34 31 0:31 /docker/a /sys/fs/cgroup/cpu\\040set ro,nosuid shared:9 master:2 - \
                     cgroup cgroup rw,cpuset,clone_children";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.root, b"/docker/a");
        assert_eq!(mount.fs_type, b"cgroup");
        assert!(CgroupVersion::V1.is_mounted_as(b"cpuset", mount.fs_type, mount.options));
        assert!(!CgroupVersion::V2.is_mounted_as(b"cpuset", mount.fs_type, mount.options));
        let mut point = PathBuf::join(&[b"/root"]).unwrap();
        unescape(mount.point, &mut point).unwrap();
        assert_eq!(point.as_bytes(), b"/root/sys/fs/cgroup/cpu set");

        assert!(Mount::parse(b"34 31 0:31 / /sys rw - sysfs sysfs").is_none());
        assert!(Mount::parse(b"").is_none());
        for broken in [&b"\\04"[..], b"a\\", b"\\999", b"\\400"] {
            assert!(unescape(broken, &mut point).is_none(), "{}", broken.escape_ascii());
        }
    }

    #[test]
    fn paths_below_a_mount() {
        assert_eq!(below(b"/a/b", b"/"), Some(&b"/a/b"[..]));
        assert_eq!(below(b"/", b"/"), Some(&b""[..]));
        assert_eq!(below(b"/a/b", b"/a"), Some(&b"/b"[..]));
        assert_eq!(below(b"/a", b"/a"), Some(&b""[..]));
        assert_eq!(below(b"/ab", b"/a"), None);
        assert_eq!(below(b"/", b"/a"), None);
    }
}
