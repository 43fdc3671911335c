//! Rules about ways into a section other than by its start.
//!
//! All code is read from its start on, instruction by instruction. Data between functions may be read as an instruction
//! that it is not, so a finding is a warning.

use iced_x86::{Decoder, DecoderOptions, OpKind};

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
    for region in image.regions() {
        let mut decoder = Decoder::with_ip(64, &region.bytes, region.start, DecoderOptions::NONE);
        let mut instruction = iced_x86::Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() || instruction.op0_kind() != OpKind::NearBranch64 {
                continue;
            }
            let target = instruction.near_branch_target();
            let Some((index, descriptor)) = section_with(target) else { continue };
            if descriptor.contains(instruction.ip()) {
                continue;
            }
            let message = format!(
                "this jumps {} bytes into the section that starts at {:#x}",
                target - descriptor.start,
                descriptor.start
            );
            found.push((Some(index), Breach::new(Rule::JumpIn, instruction.ip(), message)));
        }
    }
    found
}
