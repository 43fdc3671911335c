//! RISC-V without the feature that decodes it: there are no instructions.

use std::iter;

use super::Instruction;

/// Whether these instructions are decoded.
pub const IS_DECODED: bool = false;

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub enum Decoded {}

impl std::fmt::Display for Decoded {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

pub fn decode(_: &[u8], _: u64) -> impl Iterator<Item = Result<Instruction, u64>> {
    iter::empty()
}

pub fn jumps(_: &[u8], _: u64) -> impl Iterator<Item = (u64, u64)> {
    iter::empty()
}

pub fn name(register: u32) -> String {
    format!("x{register}")
}

pub fn branch(raw: &Decoded, _: &str) -> String {
    match *raw {}
}

pub fn is_filler(raw: &Decoded) -> bool {
    match *raw {}
}
