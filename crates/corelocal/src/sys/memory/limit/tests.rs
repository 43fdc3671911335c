//! Limits in trees of files as the kernel shows them.

use super::*;
use std::path::Path;
use std::string::{String, ToString};
use std::{format, fs};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A folder with files, removed at the end.
struct Tree(TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        files.iter().for_each(|(file, text)| tree.write(file, text));
        tree
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.path().join(file);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(path, text).unwrap();
    }

    fn nearest(&self) -> Option<MemoryUse> {
        nearest(FsRoot::at(self.0.path().to_str().unwrap()))
    }

    fn stalled(&self) -> Option<u32> {
        stalled(FsRoot::at(self.0.path().to_str().unwrap()))
    }
}

const V2: &[(&str, &str)] = &[
    ("proc/thread-self/cgroup", "0::/a/b\n"),
    ("proc/thread-self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
    ("sys/fs/cgroup/a/b/memory.max", "max\n"),
    ("sys/fs/cgroup/a/b/memory.high", "max\n"),
    ("sys/fs/cgroup/a/b/memory.current", "104857600\n"),
];

fn mib(mib: u64) -> String {
    format!("{}\n", mib * MIB)
}

#[test]
fn the_nearest_of_the_groups_above_counts() {
    let tree = Tree::new(V2);
    assert_eq!(tree.nearest(), None);
    // The group above is at a third of its limit, and then at nine tenths of its soft one.
    tree.write("sys/fs/cgroup/a/memory.max", &mib(600));
    tree.write("sys/fs/cgroup/a/memory.current", &mib(200));
    let third = MemoryUse { limit: 600 * MIB, used: 200 * MIB };
    assert_eq!(tree.nearest(), Some(third));
    assert!(!third.is_near());
    tree.write("sys/fs/cgroup/a/memory.high", &mib(220));
    let near = MemoryUse { limit: 220 * MIB, used: 200 * MIB };
    assert_eq!(tree.nearest(), Some(near));
    assert!(near.is_near());
    // The process's own group is nearer, except for unused files.
    tree.write("sys/fs/cgroup/a/b/memory.max", &mib(100));
    assert_eq!(tree.nearest().map(|it| it.limit), Some(100 * MIB));
    tree.write("sys/fs/cgroup/a/b/memory.stat", "anon 1\ninactive_file 52428800\nfile 3\n");
    assert_eq!(tree.nearest(), Some(near));
}

#[test]
fn limits_of_v1() {
    let tree = Tree::new(&[
        ("proc/thread-self/cgroup", "9:name=systemd:/\n4:memory:/box/inner\n0::/\n"),
        // A container sees its part of the hierarchy.
        ("proc/thread-self/mountinfo", "40 1 0:30 /box /cg/memory rw - cgroup cgroup rw,memory\n"),
        ("cg/memory/inner/memory.limit_in_bytes", "9223372036854771712\n"),
        ("cg/memory/inner/memory.usage_in_bytes", "1048576\n"),
        ("cg/memory/memory.limit_in_bytes", "8388608\n"),
        ("cg/memory/memory.usage_in_bytes", "8000000\n"),
        ("cg/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 500000\n"),
    ]);
    let found = tree.nearest().unwrap();
    assert_eq!(found, MemoryUse { limit: 8 * MIB, used: 7_500_000 });
    assert!(found.is_near());
    assert_eq!(tree.stalled(), None);
}

#[test]
fn what_is_not_understood_is_no_limit() {
    for (file, text) in [
        ("sys/fs/cgroup/a/b/memory.max", "-1\n"),
        ("sys/fs/cgroup/a/b/memory.max", "0\n"),
        ("sys/fs/cgroup/a/b/memory.max", ""),
        ("proc/thread-self/cgroup", "nonsense"),
        ("proc/thread-self/cgroup", "0::/../outside\n"),
        ("proc/thread-self/mountinfo", ""),
    ] {
        let tree = Tree::new(V2);
        tree.write(file, text);
        assert_eq!(tree.nearest(), None, "{file}: {text}");
    }
    let tree = Tree::new(V2);
    tree.write("sys/fs/cgroup/a/b/memory.max", &mib(1));
    tree.write("sys/fs/cgroup/a/b/memory.current", "much\n");
    assert_eq!(tree.nearest(), None);
}

#[test]
fn stalls_of_the_group_or_the_machine() {
    let tree = Tree::new(V2);
    assert_eq!(tree.stalled(), None);
    let full = "full avg10=9.00 avg60=0.00 avg300=0.00 total=1\n";
    tree.write(
        "proc/pressure/memory",
        &(String::from("some avg10=1.53 avg60=0.8 total=7\n") + full),
    );
    assert_eq!(tree.stalled(), Some(153));
    tree.write("sys/fs/cgroup/a/b/memory.pressure", &(full.to_string() + "some avg10=100.00 x\n"));
    assert_eq!(tree.stalled(), Some(10_000));
    for line in [
        "some avg10=1",
        "some avg10=1.5 x",
        "some avg10=a.00",
        "some",
        "",
        "some avg10=99999999.00",
    ] {
        assert_eq!(stall(line.as_bytes()), None, "{line}");
    }
}
