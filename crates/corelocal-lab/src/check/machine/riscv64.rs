//! RISC-V of 64 bits. Registers: the general ones are bits 0 to 31, those of floating-point numbers 32 to 63. The stack
//! pointer and the zero register are none; vector registers are not told apart.
//!
//! What an instruction does is told by its name and its operands, as the decoder writes them: stores begin with `s` and
//! branches with `b`, and but for these the first operand is the result.

use disc_v::Isa;

pub use disc_v::Instruction as Decoded;

use super::{Flow, Instruction, Raw, Value, Write};

/// Whether these instructions are decoded.
pub const IS_DECODED: bool = true;

/// The names of the general registers, by number.
const GENERAL: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4",
    "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
    "t5", "t6",
];
/// The names of the registers of floating-point numbers, by number.
const FLOATS: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2",
    "fa3", "fa4", "fa5", "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9",
    "fs10", "fs11", "ft8", "ft9", "ft10", "ft11",
];
/// The first bit of these.
const FIRST_FLOAT: u32 = 32;
/// The return address, which calls write.
const RA: u64 = 1 << 1;
/// Branches: to an address, by one or two registers.
const BRANCHES: [&str; 16] = [
    "beq", "bne", "blt", "bge", "bltu", "bgeu", "beqz", "bnez", "blez", "bgez", "bltz", "bgtz",
    "bgt", "ble", "bgtu", "bleu",
];
const STORES: [&str; 8] = ["sb", "sh", "sw", "sd", "fsh", "fsw", "fsd", "fsq"];

pub fn decode(bytes: &[u8], address: u64) -> impl Iterator<Item = Result<Instruction, u64>> + '_ {
    let mut failed = false;
    disc_v::disassemble(Isa::Rv64, address, bytes).map_while(move |decoded| {
        if failed {
            return None;
        }
        // `unimp` is valid, and ends a program.
        failed = decoded.is_illegal() && decoded.mnemonic() != "unimp";
        Some(if failed { Err(decoded.pc()) } else { Ok(instruction(&decoded)) })
    })
}

pub fn jumps(bytes: &[u8], address: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    disc_v::disassemble(Isa::Rv64, address, bytes)
        .filter(|decoded| is_jump(decoded.mnemonic()) || decoded.mnemonic() == "jal")
        .filter_map(|decoded| Some((decoded.pc(), target(&decoded)?)))
}

pub fn name(register: u32) -> String {
    let names = if register < FIRST_FLOAT { GENERAL } else { FLOATS };
    names[register as usize % names.len()].to_owned()
}

/// Returns a jump with this text as its target.
pub fn branch(raw: &Decoded, target: &str) -> String {
    let operands = raw.operands().to_string();
    let before =
        operands.rsplit_once(',').map_or(String::new(), |(before, _)| format!("{before},"));
    format!("{} {before}{target}", raw.mnemonic())
}

pub fn is_filler(raw: &Decoded) -> bool {
    raw.mnemonic() == "nop"
}

fn is_jump(name: &str) -> bool {
    name == "j" || BRANCHES.contains(&name)
}

/// Returns where a direct jump or call goes: its last operand.
fn target(raw: &Decoded) -> Option<u64> {
    let operands = raw.operands().to_string();
    u64::from_str_radix(operands.rsplit(',').next()?.strip_prefix("0x")?, 16).ok()
}

fn flow(raw: &Decoded) -> Flow {
    match (raw.mnemonic(), target(raw)) {
        ("j", Some(target)) => Flow::Jump(target),
        (name, Some(target)) if BRANCHES.contains(&name) => Flow::Branch(target),
        ("jal" | "jalr" | "ecall" | "ebreak" | "unimp" | "wfi", _) => Flow::Call,
        ("jr" | "ret" | "mret" | "sret", _) => Flow::Indirect,
        _ => Flow::Next,
    }
}

/// Returns the bit of the register of this name; 0 if it is none.
fn register(name: &str) -> u64 {
    let number = |names: [&str; 32]| names.iter().position(|is| *is == name);
    match (number(GENERAL), number(FLOATS)) {
        (Some(0 | 2), _) | (None, None) => 0,
        (Some(general), _) => 1 << general,
        (None, Some(float)) => 1 << (FIRST_FLOAT as usize + float),
    }
}

/// Returns the offset and the name of the base register of a memory operand.
fn memory(operand: &str) -> Option<(i64, &str)> {
    let (offset, base) = operand.strip_suffix(')')?.split_once('(')?;
    Some((if offset.is_empty() { 0 } else { offset.parse().ok()? }, base))
}

fn instruction(raw: &Decoded) -> Instruction {
    let (name, operands) = (raw.mnemonic(), raw.operands().to_string());
    let operands: Vec<&str> = operands.split(',').collect();
    let flow = flow(raw);
    let stores = STORES.contains(&name);
    let is_conditional = name.starts_with("sc.");
    let is_atomic = name.starts_with("amo");
    let of_vectors =
        name.starts_with('v') && operands.iter().any(|operand| memory(operand).is_some());
    let first = operands.first().copied().unwrap_or_default();
    let is_jump_to_register = matches!(flow, Flow::Call | Flow::Indirect) || flow != Flow::Next;
    let has_result = !stores && !is_jump_to_register && memory(first).is_none();
    let (mut read, mut written) = (0, if has_result { register(first) } else { 0 });
    for operand in operands.iter().skip(usize::from(has_result)) {
        read |= register(memory(operand).map_or(*operand, |(_, base)| base));
    }
    if flow == Flow::Call && name.starts_with("jal") {
        written |= RA;
    }
    let at = operands.iter().find_map(|operand| memory(operand));
    let stored = (name == "sd" && at.is_some_and(|(_, base)| base != "sp"))
        .then(|| general(first).map(|from| Value::Sum(from, 0)))
        .flatten();
    Instruction {
        address: raw.pc(),
        end: raw.pc().wrapping_add(raw.length() as u64),
        flow,
        write: match () {
            () if is_atomic => Write::Update,
            () if of_vectors && name.starts_with("vs") => Write::InParts,
            () if stores || is_conditional || name == "cbo.zero" => Write::Store,
            () => Write::No,
        },
        locked: is_atomic || is_conditional || name.starts_with("lr."),
        moves_stack: has_result && first == "sp",
        touches_memory: at.is_some() && flow == Flow::Next,
        read,
        written,
        sets: sets(raw.pc(), name, &operands),
        stores: stored,
        raw: Raw::RiscV(*raw),
    }
}

/// Returns the number of a general register that holds a value.
fn general(name: &str) -> Option<u8> {
    let number = GENERAL.iter().position(|is| *is == name)?;
    (!matches!(number, 0 | 2)).then_some(number as u8)
}

fn sets(address: u64, name: &str, operands: &[&str]) -> Option<(u8, Value)> {
    let (to, rest) = operands.split_first()?;
    let to = general(to)?;
    let value = match (name, rest) {
        ("auipc", [pages]) => {
            let pages = u64::from_str_radix(pages.strip_prefix("0x")?, 16).ok()?;
            // 20 bits, of which the highest is the sign.
            let offset = ((pages as i64) << 44) >> 32;
            Value::Number(address.wrapping_add_signed(offset))
        }
        ("addi", [from, more]) => Value::Sum(general(from)?, more.parse::<i64>().ok()? as u64),
        ("mv", [from]) => Value::Sum(general(from)?, 0),
        ("li", [number]) => Value::Number(number.parse::<i64>().ok()? as u64),
        _ => return None,
    };
    Some((to, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bytes: &[u8]) -> Instruction {
        decode(bytes, 0x1000).next().unwrap().unwrap()
    }

    #[test]
    fn what_instructions_do() {
        // sd a3, 8(a1)
        let store = one(&0x00d5_b423_u32.to_le_bytes());
        assert_eq!((store.write, store.locked, store.written), (Write::Store, false, 0));
        assert_eq!((store.read, store.stores), (1 << 11 | 1 << 13, Some(Value::Sum(13, 0))));
        // c.sd a3, 8(a1): the same in two bytes.
        let short = one(&[0x94, 0xe5]);
        assert_eq!((short.end, short.write, short.read), (0x1002, Write::Store, store.read));
        // auipc a3, 0xfffff
        let page = one(&0xffff_f697_u32.to_le_bytes());
        assert_eq!((page.sets, page.written), (Some((13, Value::Number(0))), 1 << 13));
        // addi a3, a3, -800
        let more = one(&0xce06_8693_u32.to_le_bytes());
        assert_eq!(more.sets, Some((13, Value::Sum(13, -800_i64 as u64))));
        // addi sp, sp, -32
        assert!(one(&[0x01, 0x11]).moves_stack);
        // amoadd.d a1, a2, (a1); sc.d.rl a0, s1, (s4); ld a2, 0(a1)
        let atomic = one(&0x00c5_b5af_u32.to_le_bytes());
        assert_eq!(
            (atomic.write, atomic.locked, atomic.touches_memory),
            (Write::Update, true, true)
        );
        let conditional = one(&0x1a9a_352f_u32.to_le_bytes());
        assert_eq!((conditional.write, conditional.locked), (Write::Store, true));
        let load = one(&[0x90, 0x61]);
        assert_eq!((load.write, load.touches_memory, load.written), (Write::No, true, 1 << 12));
    }

    #[test]
    fn where_instructions_go() {
        // bgeu s1, s4, +0x18; j -16; ret; ecall; jalr -1718(ra)
        assert_eq!(one(&0x0144_fc63_u32.to_le_bytes()).flow, Flow::Branch(0x1018));
        assert_eq!(one(&0xff1f_f06f_u32.to_le_bytes()).flow, Flow::Jump(0xff0));
        assert_eq!(one(&[0x82, 0x80]).flow, Flow::Indirect);
        assert_eq!(one(&0x0000_0073_u32.to_le_bytes()).flow, Flow::Call);
        let call = one(&0x94a0_80e7_u32.to_le_bytes());
        assert_eq!((call.flow, call.written, call.read), (Flow::Call, RA, RA));
        let text = one(&0x0144_fc63_u32.to_le_bytes()).text(|to| format!("to {to:x}"));
        assert_eq!(text, "bgeu s1,s4,to 1018");
    }
}
