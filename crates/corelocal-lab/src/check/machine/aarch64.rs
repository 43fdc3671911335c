//! AArch64. Registers: the general ones are bits 0 to 30, the vector ones 32 to 63. The stack pointer and the zero
//! register are none.
//!
//! What an instruction does is told by its name and by the places of its operands: loads begin with `ld` and stores
//! with `st`, and except in stores, comparisons and jumps the first operand is the result.

use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction as Decoded, Opcode, Operand, SizeCode};

use super::{Flow, Instruction, Raw, Value, Write};

/// The length of an instruction.
const LENGTH: u64 = 4;
/// The number that stands for the stack pointer, or for zero.
const NONE: u16 = 31;
/// The first bit of the vector registers.
const VECTORS: u32 = 32;

pub fn decode(bytes: &[u8], address: u64) -> impl Iterator<Item = Result<Instruction, u64>> {
    let decoder = InstDecoder::default();
    let mut failed = false;
    words(bytes, address).map_while(move |(at, word)| {
        if failed {
            return None;
        }
        let decoded = decoder.decode(&mut U8Reader::new(&word.to_le_bytes()));
        failed = decoded.is_err();
        Some(decoded.map(|decoded| instruction(&decoded, at)).map_err(|_| at))
    })
}

pub fn jumps(bytes: &[u8], address: u64) -> impl Iterator<Item = (u64, u64)> {
    words(bytes, address).filter_map(|(at, word)| {
        // The places and lengths of the offset: of `b` and `bl`, of `b.cond`, `cbz` and `cbnz`, of `tbz` and `tbnz`.
        let (from, bits) = match word {
            _ if word & 0x7c00_0000 == 0x1400_0000 => (0, 26),
            _ if word & 0xff00_0000 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 => (5, 19),
            _ if word & 0x7e00_0000 == 0x3600_0000 => (5, 14),
            _ => return None,
        };
        let offset = ((word >> from) << (32 - bits)) as i32 >> (32 - bits);
        Some((at, at.wrapping_add_signed(4 * i64::from(offset))))
    })
}

fn words(bytes: &[u8], address: u64) -> impl Iterator<Item = (u64, u32)> {
    let addresses = (0u64..).map(move |nth| address.wrapping_add(LENGTH * nth));
    addresses.zip(bytes.chunks_exact(LENGTH as usize).map(|word| {
        let mut four = [0; LENGTH as usize];
        four.copy_from_slice(word);
        u32::from_le_bytes(four)
    }))
}

pub fn name(register: u32) -> String {
    match register {
        0..VECTORS => format!("x{register}"),
        _ => format!("v{}", register - VECTORS),
    }
}

/// Returns a jump with this text as its target.
pub fn branch(raw: &Decoded, target: String) -> String {
    let operands = raw.operands.iter().filter_map(|operand| match operand {
        Operand::Nothing | Operand::PCOffset(_) => None,
        operand => Some(format!("{operand}, ")),
    });
    format!("{} {}{target}", raw.opcode, operands.collect::<String>())
}

fn instruction(raw: &Decoded, address: u64) -> Instruction {
    let name = raw.opcode.to_string();
    let (loads, stores) = (name.starts_with("ld"), name.starts_with("st"));
    let exchanges = name.starts_with("swp") || name.starts_with("cas");
    let adds = ["ldadd", "ldclr", "ldeor", "ldset", "ldsmax", "ldsmin", "ldumax", "ldumin"];
    let is_atomic = exchanges || adds.iter().any(|prefix| name.starts_with(prefix));
    let is_exclusive = name.contains("xr") || name.contains("xp");
    let flow = flow(raw, &name, address);
    let [first, rest @ ..] = &raw.operands;

    let (mut read, mut written, mut moves_stack) = (0, 0, false);
    let is_result = flow == Flow::Next && !stores && !is_atomic && !name.starts_with("prfm");
    let is_status = stores && is_exclusive;
    if is_result || is_status {
        written |= register(first);
        moves_stack |= matches!(first, Operand::RegisterOrSP(_, NONE));
        // These change a part of the result.
        read |= if matches!(&*name, "movk" | "bfm" | "ins") { register(first) } else { 0 };
    } else {
        read |= register(first);
    }
    let is_pair =
        loads && (name.starts_with("ldp") || name.starts_with("ldnp") || name.contains("xp"));
    for (nth, operand) in rest.iter().enumerate() {
        // The second register of a loaded pair; of an atomic instruction the old value.
        let is_result = nth == 0 && (is_pair || is_atomic && !name.starts_with("cas"));
        if is_result { written |= register(operand) } else { read |= register(operand) }
    }
    if name.starts_with("cas") {
        written |= register(first);
    }
    let (mut touches_memory, mut base) = (loads && !is_atomic, None);
    for operand in &raw.operands {
        let (at, index, is_changed) = match *operand {
            Operand::RegPreIndex(at, _, is_changed) => (at, NONE, is_changed),
            Operand::RegPostIndex(at, _) => (at, NONE, true),
            Operand::RegPostIndexReg(at, index) => (at, index, true),
            Operand::RegRegOffset(at, index, ..) => (at, index, false),
            _ => continue,
        };
        (touches_memory, base) = (!name.starts_with("prf"), Some(at));
        read |= general(at) | general(index);
        written |= if is_changed { general(at) } else { 0 };
        moves_stack |= is_changed && at == NONE;
    }
    let write = match () {
        () if is_atomic => Write::Update,
        // Interrupts may come between the words of a pair ("Taking an interrupt during a multiple-register store").
        () if stores && is_several(&name) => Write::InParts,
        () if stores => Write::Store,
        () => Write::No,
    };
    let stored = match *first {
        Operand::Register(SizeCode::X, from) if from != NONE && base != Some(NONE) => {
            matches!(&*name, "str" | "stur" | "stlr").then_some(Value::Sum(from as u8, 0))
        }
        _ => None,
    };
    Instruction {
        address,
        end: address.wrapping_add(LENGTH),
        flow,
        write,
        locked: is_atomic || is_exclusive && (loads || stores),
        moves_stack,
        touches_memory,
        read,
        written,
        sets: sets(raw, address),
        stores: stored,
        raw: Raw::Arm(*raw),
    }
}

/// Returns `true` for stores of several registers.
fn is_several(name: &str) -> bool {
    matches!(name, "stp" | "stnp" | "st1" | "st2" | "st3" | "st4")
}

fn flow(raw: &Decoded, name: &str, address: u64) -> Flow {
    let target = raw.operands.iter().find_map(|operand| match operand {
        Operand::PCOffset(offset) => Some(address.wrapping_add_signed(*offset)),
        _ => None,
    });
    match (raw.opcode, target) {
        (Opcode::B, Some(target)) => Flow::Jump(target),
        (
            Opcode::Bcc(_)
            | Opcode::BCcc(_)
            | Opcode::CBZ
            | Opcode::CBNZ
            | Opcode::TBZ
            | Opcode::TBNZ,
            Some(target),
        ) => Flow::Branch(target),
        _ if matches!(name, "bl" | "svc" | "hvc" | "smc" | "brk" | "hlt" | "udf")
            || name.starts_with("blr") =>
        {
            Flow::Call
        }
        _ if name.starts_with("br") || name.starts_with("ret") || name == "eret" => Flow::Indirect,
        _ => Flow::Next,
    }
}

/// Returns the bit of a register that is an operand; 0 if it is none.
fn register(operand: &Operand) -> u64 {
    match *operand {
        Operand::Register(_, number)
        | Operand::RegisterOrSP(_, number)
        | Operand::RegShift(_, _, _, number) => general(number),
        Operand::SIMDRegister(_, number)
        | Operand::SIMDRegisterElements(_, number, _)
        | Operand::SIMDRegisterElementsLane(_, number, ..)
        | Operand::SIMDRegisterElementsMultipleLane(_, number, ..) => vector(number),
        Operand::RegisterPair(_, number) => general(number) | general(number + 1),
        Operand::SIMDRegisterGroup(_, first, _, count) => {
            (0..u16::from(count)).fold(0, |mask, nth| mask | vector((first + nth) % 32))
        }
        Operand::SIMDRegisterGroupLane(first, _, count, _) => {
            (0..u16::from(count)).fold(0, |mask, nth| mask | vector((first + nth) % 32))
        }
        _ => 0,
    }
}

fn general(number: u16) -> u64 {
    if number < NONE { 1 << number } else { 0 }
}

fn vector(number: u16) -> u64 {
    1 << (VECTORS + u32::from(number % 32))
}

fn sets(raw: &Decoded, address: u64) -> Option<(u8, Value)> {
    const PAGE: u64 = 4096;
    let number = |register: u16| (register != NONE).then_some(register as u8);
    let to = match raw.operands[0] {
        Operand::Register(SizeCode::X, to) | Operand::RegisterOrSP(SizeCode::X, to) => number(to)?,
        _ => return None,
    };
    let value = match (raw.opcode, &raw.operands[1], &raw.operands[2]) {
        (Opcode::ADR, Operand::PCOffset(offset), _) => {
            Value::Number(address.wrapping_add_signed(*offset))
        }
        (Opcode::ADRP, Operand::PCOffset(offset), _) => {
            Value::Number((address & !(PAGE - 1)).wrapping_add_signed(*offset))
        }
        (Opcode::ADD, Operand::RegisterOrSP(_, from), Operand::Immediate(more)) => {
            Value::Sum(number(*from)?, u64::from(*more))
        }
        (Opcode::ORR, Operand::Register(_, NONE), Operand::RegShift(_, 0, _, from)) => {
            Value::Sum(number(*from)?, 0)
        }
        _ => return None,
    };
    Some((to, value))
}
