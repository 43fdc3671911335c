//! Rules about ways into a section other than by its start.
//!
//! All code is read from its start on, instruction by instruction. Data between functions may be read as an instruction
//! that it is not, so a finding is a warning.

use super::Breach;
use crate::check::load::{Descriptor, Image};
use crate::check::report::Rule;

/// Finds direct jumps and calls from outside of a section into it, behind its start. The handler's are judged with it.
pub fn check(image: &Image<'_>) -> Vec<(Option<usize>, Breach)> {
    let mut order: Vec<(usize, &Descriptor)> = image.descriptors.iter().enumerate().collect();
    order.sort_by_key(|(_, descriptor)| descriptor.start);
    let section_with = |address: u64| {
        let after = order.partition_point(|(_, descriptor)| descriptor.start <= address);
        let (index, descriptor) = *order.get(after.checked_sub(1)?)?;
        (descriptor.contains(address) && descriptor.start != address).then_some((index, descriptor))
    };
    let mut found = Vec::new();
    let Some(processor) = image.processor() else { return found };
    for region in image.regions() {
        for (at, target) in processor.jumps(&region.bytes, region.start) {
            let Some((index, descriptor)) = section_with(target) else { continue };
            if descriptor.contains(at) {
                continue;
            }
            let message = format!(
                "this jumps {} bytes into the section that starts at {:#x}",
                target - descriptor.start,
                descriptor.start
            );
            found.push((Some(index), Breach::new(Rule::JumpIn, at, message)));
        }
    }
    found
}
