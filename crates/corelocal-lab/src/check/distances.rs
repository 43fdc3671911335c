//! Relocations of RISC-V for jumps.

use object::elf;

/// Returns an instruction with the distance that a relocation of this type puts into it, as object files have for each
/// jump: linkers may change what lies in between. `None` for other types.
pub fn with_distance(kind: u32, instruction: u32, distance: u64) -> Option<u32> {
    // Of each part of the distance the first bit, the number of bits, and the place in the instruction.
    let parts: &[(u32, u32, u32)] = match kind {
        elf::R_RISCV_BRANCH => &[(11, 1, 7), (1, 4, 8), (5, 6, 25), (12, 1, 31)],
        elf::R_RISCV_JAL => &[(12, 8, 12), (11, 1, 20), (1, 10, 21), (20, 1, 31)],
        elf::R_RISCV_RVC_BRANCH => &[(5, 1, 2), (1, 2, 3), (6, 2, 5), (3, 2, 10), (8, 1, 12)],
        elf::R_RISCV_RVC_JUMP => &[
            (5, 1, 2),
            (1, 3, 3),
            (7, 1, 6),
            (6, 1, 7),
            (10, 1, 8),
            (8, 2, 9),
            (4, 1, 11),
            (11, 1, 12),
        ],
        _ => return None,
    };
    Some(parts.iter().fold(instruction, |instruction, (from, bits, to)| {
        let mask = (1 << bits) - 1;
        let part = (distance >> from) as u32 & mask;
        instruction & !(mask << to) | part << to
    }))
}

#[cfg(all(test, any(feature = "riscv", target_arch = "riscv64")))]
mod tests {
    use super::*;
    use crate::check::machine::{Flow, Processor};

    #[test]
    fn distances_are_put_into_jumps() {
        // bgeu s1, s4; j; c.beqz a0; c.j: all with a distance of 0.
        for (kind, jump, distances) in [
            (elf::R_RISCV_BRANCH, 0x0144_f063_u32, [0x7fe_i64, -0x1000, 0xaaa]),
            (elf::R_RISCV_JAL, 0x0000_006f, [0xf_fffe, -0x10_0000, 0x5_5554]),
            (elf::R_RISCV_RVC_BRANCH, 0xc101, [0xfe, -0x100, 0xaa]),
            (elf::R_RISCV_RVC_JUMP, 0xa001, [0x7fe, -0x800, 0x2aa]),
        ] {
            for distance in distances {
                let placed = with_distance(kind, jump, distance as u64).unwrap();
                let target = 0x1000_u64.wrapping_add_signed(distance);
                let bytes = placed.to_le_bytes();
                let flow = Processor::RiscV.decode(&bytes, 0x1000).next().unwrap().unwrap().flow;
                assert!(
                    flow == Flow::Jump(target) || flow == Flow::Branch(target),
                    "{kind} {distance:x}: {flow:?}"
                );
                assert_eq!(with_distance(kind, placed, 0), Some(jump));
            }
        }
    }
}
