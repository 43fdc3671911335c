//! Sites in the files of a running process, also those that were not reached yet.
//!
//! Each site is a static with a marker, in the data of the program or of a shared object.
//!
//! Invariant: a file that cannot be read, or is no ELF file, has no sites.

use std::path::PathBuf;

use corelocal::trace::format::{Kind, LINKED_MARKER, LinkedSite};
use corelocal_symbols::input;
use object::{Object as _, ObjectSegment as _, SegmentFlags};

use corelocal_support::process::proc_files;

/// Files that are larger are left out.
const LARGEST: u64 = 1 << 30;

/// Returns names and kinds of the sites of a process, without repetitions.
pub fn sites(process: u32) -> Vec<(String, Kind)> {
    let mut all: Vec<(String, Kind)> = Vec::new();
    for path in files(process) {
        let Ok(bytes) = input::read(&path, LARGEST) else { continue };
        all.extend(in_file(&bytes));
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all.dedup_by(|(a, _), (b, _)| a == b);
    all
}

/// Returns the files whose code a process has in memory, as it sees them.
fn files(process: u32) -> Vec<PathBuf> {
    let maps = proc_files::maps(process).ok().flatten().unwrap_or_default();
    let code = maps.lines().filter_map(|line| {
        let mut fields = line.splitn(6, ' ');
        let is_code = fields.nth(1)?.as_bytes().get(2) == Some(&b'x');
        let path = fields.nth(3)?.trim_start();
        (is_code && path.starts_with('/')).then(|| format!("/proc/{process}/root{path}").into())
    });
    let mut files: Vec<PathBuf> = code.collect();
    files.dedup();
    files
}

fn in_file(bytes: &[u8]) -> Vec<(String, Kind)> {
    let Ok(file) = object::File::parse(bytes) else { return Vec::new() };
    let mut found = Vec::new();
    for segment in file.segments() {
        let is_writable = matches!(
            segment.flags(),
            SegmentFlags::Elf { p_flags } if p_flags & object::elf::PF_W != 0
        );
        let Ok(data) = segment.data() else { continue };
        if !is_writable {
            continue;
        }
        for at in (0..data.len().saturating_sub(LINKED_MARKER.len())).step_by(8) {
            if let Some(site) = LinkedSite::read(&data[at..]) {
                found.push((String::from_utf8_lossy(site.name).into_owned(), site.kind));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_of_this_program() {
        if std::env::var_os("CORELOCAL_NEVER").is_some() {
            corelocal::event!(linked::never, nth = 1_u8);
            drop(corelocal::span!(linked::span));
        }
        let found = sites(std::process::id());
        assert!(found.contains(&("linked::never".into(), Kind::Event)), "{found:?}");
        assert!(found.contains(&("linked::span".into(), Kind::Span)), "{found:?}");
        assert!(in_file(b"no program").is_empty() && sites(u32::MAX).is_empty());
    }
}
