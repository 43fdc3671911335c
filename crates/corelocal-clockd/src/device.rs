//! The hypervisor's page, `/dev/vmclock0`, if it exists: the count of disruptions of this machine's counter, and the
//! machine's generation.
//!
//! Both are copied into the published page, so that its readers need no other.
//!
//! Invariant: a marker is taken only from a page that was read consistently. Until the next such reading the last one
//! holds.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use corelocal::clock::page::{Refusal, Subscriber, vmclock};

use corelocal_support::output::path_line;

/// The path of the device on Linux.
pub const DEVICE: &str = "/dev/vmclock0";

/// An open one.
pub struct Device {
    page: Subscriber<vmclock::Page>,
    path: PathBuf,
    last: Marks,
}

/// The marks of the page besides its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The disruption marker: it changes when the counter was disrupted.
    pub disruptions: u64,
    /// The generation: it changes when the machine was restored or cloned.
    pub generation: Option<u64>,
}

impl Device {
    /// Returns the device; `None` if there is none.
    ///
    /// # Errors
    /// A sentence, if there is something that is not such a page.
    pub fn open(path: &Path) -> Result<Option<Device>, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| "a file name cannot contain a NUL byte".to_owned())?;
        let refused = |why: &dyn std::fmt::Display| format!("{}: {why}", path_line(path));
        let page = match Subscriber::open(&name) {
            Ok(page) => page,
            Err(Refusal::System(corelocal::sys::Errno::ENOENT)) => return Ok(None),
            Err(refusal) => return Err(refused(&refusal)),
        };
        let mut device = Device { page, path: path.to_owned(), last: Marks::default() };
        device.last = device.read().map_err(|doubt| refused(&doubt))?;
        Ok(Some(device))
    }

    /// Returns its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the marker at the last look.
    pub fn marker(&self) -> u64 {
        self.last.disruptions
    }

    /// Returns what it said at the last look, and by how much the marker has risen since, which is 1 where it fell or
    /// the generation is another one.
    pub fn look(&mut self) -> (Marks, u64) {
        // While it is being written, the last look holds.
        let now = self.read().unwrap_or(self.last);
        let last = std::mem::replace(&mut self.last, now);
        let rose = match now.disruptions.checked_sub(last.disruptions) {
            Some(0) => u64::from(now.generation != last.generation),
            Some(rose) => rose,
            None => 1,
        };
        (now, rose)
    }

    fn read(&mut self) -> Result<Marks, corelocal::clock::page::ReadError> {
        let content = self.page.content()?;
        let has_generation = content.flags & vmclock::flags::GENERATION_PRESENT != 0;
        Ok(Marks {
            disruptions: content.disruptions,
            generation: has_generation.then_some(content.generation),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelocal::clock::page::Publisher;

    #[test]
    fn a_file_in_its_place() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("vmclock0");
        assert!(Device::open(&path).unwrap().is_none());
        std::fs::write(&path, [0; 4096]).unwrap();
        assert!(Device::open(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut hypervisor = Publisher::<vmclock::Page>::create(&name).unwrap();
        let mut says = |disruptions, generation: Option<u64>| {
            let flags = generation.map_or(0, |_| vmclock::flags::GENERATION_PRESENT);
            let generation = generation.unwrap_or(0);
            let content = vmclock::Content { disruptions, generation, flags, ..Default::default() };
            hypervisor.publish(&content).unwrap();
        };
        says(7, None);
        let mut device = Device::open(&path).unwrap().unwrap();
        assert_eq!(device.look(), (Marks { disruptions: 7, generation: None }, 0));
        says(9, None);
        assert_eq!(device.look(), (Marks { disruptions: 9, generation: None }, 2));
        says(9, Some(5));
        assert_eq!(device.look(), (Marks { disruptions: 9, generation: Some(5) }, 1));
        says(3, Some(5));
        assert_eq!(device.look().1, 1);
        assert_eq!(device.look(), (Marks { disruptions: 3, generation: Some(5) }, 0));
    }
}
