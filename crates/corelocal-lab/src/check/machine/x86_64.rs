//! x86-64. Registers: the general ones are bits 0 to 15, the vector ones 16 to 47. The stack pointer is none.

use iced_x86::{
    Decoder, DecoderError, DecoderOptions, FlowControl, Formatter as _, Instruction as Decoded,
    InstructionInfo, InstructionInfoFactory, IntelFormatter, Mnemonic, OpAccess, OpKind, Register,
};

use super::{Flow, Instruction, Raw, Value, Write};

pub fn decode(bytes: &[u8], address: u64) -> impl Iterator<Item = Result<Instruction, u64>> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut factory = InstructionInfoFactory::new();
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed || !decoder.can_decode() {
            return None;
        }
        let decoded = decoder.decode();
        failed = decoder.last_error() != DecoderError::None;
        Some(if failed || decoded.is_invalid() {
            Err(decoded.ip())
        } else {
            Ok(instruction(&decoded, factory.info(&decoded)))
        })
    })
}

pub fn jumps(bytes: &[u8], address: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut decoded = Decoded::default();
    std::iter::from_fn(move || {
        while decoder.can_decode() {
            decoder.decode_out(&mut decoded);
            if !decoded.is_invalid() && decoded.op0_kind() == OpKind::NearBranch64 {
                return Some((decoded.ip(), decoded.near_branch_target()));
            }
        }
        None
    })
}

pub fn name(register: u32) -> String {
    let register = match register {
        0..=15 => Register::RAX + register,
        _ => Register::ZMM0 + (register - 16),
    };
    format!("{register:?}").to_lowercase()
}

/// Returns the instruction in Intel syntax.
pub fn text(raw: &Decoded, target: impl FnOnce(u64) -> String) -> String {
    if raw.op0_kind() == OpKind::NearBranch64 {
        let mnemonic = format!("{:?}", raw.mnemonic()).to_lowercase();
        return format!("{mnemonic} {}", target(raw.near_branch_target()));
    }
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_rip_relative_addresses(true);
    let mut text = String::new();
    formatter.format(raw, &mut text);
    text
}

fn instruction(raw: &Decoded, info: &InstructionInfo) -> Instruction {
    let is_general = |access: OpAccess| {
        use OpAccess::{CondRead, CondWrite, Read, ReadCondWrite, ReadWrite, Write};
        match access {
            Read | CondRead => (true, false),
            Write | CondWrite => (false, true),
            ReadWrite | ReadCondWrite => (true, true),
            _ => (false, false),
        }
    };
    let (mut read, mut written, mut moves_stack) = (0, 0, false);
    for used in info.used_registers() {
        let (reads, writes) = is_general(used.access());
        let register = used.register().full_register();
        let bit = bit(register);
        read |= if reads { bit } else { 0 };
        written |= if writes { bit } else { 0 };
        moves_stack |= writes && register == Register::RSP;
    }
    Instruction {
        address: raw.ip(),
        end: raw.next_ip(),
        flow: flow(raw),
        write: write(raw, info),
        locked: raw.has_lock_prefix() || is_exchange(raw),
        moves_stack,
        touches_memory: !info.used_memory().is_empty() && raw.mnemonic() != Mnemonic::Lea,
        read,
        written,
        sets: sets(raw),
        stores: stores(raw),
        raw: Raw::X86(*raw),
    }
}

fn flow(raw: &Decoded) -> Flow {
    match raw.flow_control() {
        FlowControl::UnconditionalBranch => Flow::Jump(raw.near_branch_target()),
        FlowControl::ConditionalBranch => Flow::Branch(raw.near_branch_target()),
        FlowControl::IndirectBranch | FlowControl::Return => Flow::Indirect,
        FlowControl::Call
        | FlowControl::IndirectCall
        | FlowControl::Interrupt
        | FlowControl::Exception
        | FlowControl::XbeginXabortXend => Flow::Call,
        _ => Flow::Next,
    }
}

/// Returns `true` for `xchg` with memory, which locks the bus without a prefix.
fn is_exchange(raw: &Decoded) -> bool {
    raw.mnemonic() == Mnemonic::Xchg
        && (0..raw.op_count()).any(|operand| raw.op_kind(operand) == OpKind::Memory)
}

fn write(raw: &Decoded, info: &InstructionInfo) -> Write {
    let mut write = Write::No;
    for memory in info.used_memory() {
        match memory.access() {
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => return Write::Update,
            OpAccess::Write | OpAccess::CondWrite => write = Write::Store,
            _ => {}
        }
    }
    let repeats = raw.has_rep_prefix() || raw.has_repne_prefix();
    if write != Write::No && raw.is_string_instruction() && repeats {
        Write::InParts
    } else {
        write
    }
}

fn bit(register: Register) -> u64 {
    match register {
        Register::RSP => 0,
        _ if register.is_gpr() => 1 << (register.number() & 15),
        _ if register.is_vector_register() => 1 << (16 + (register.number() & 31)),
        _ => 0,
    }
}

/// Returns the number of a general register of full width.
fn general(register: Register) -> Option<u8> {
    (register.is_gpr64() && register != Register::RSP).then(|| register.number() as u8)
}

fn sets(raw: &Decoded) -> Option<(u8, Value)> {
    if raw.op0_kind() != OpKind::Register {
        return None;
    }
    if raw.mnemonic() == Mnemonic::Mov && raw.op0_register().is_gpr32() {
        // The upper half becomes 0: as `mov eax, offset` in code that is linked to one place.
        let to = general(raw.op0_register().full_register())?;
        return Some((to, Value::Number(immediate(raw)?)));
    }
    let to = general(raw.op0_register())?;
    let value = match (raw.mnemonic(), raw.op1_kind()) {
        (Mnemonic::Lea, OpKind::Memory) if raw.is_ip_rel_memory_operand() => {
            Value::Number(raw.ip_rel_memory_address())
        }
        (Mnemonic::Mov, OpKind::Register) => Value::Sum(general(raw.op1_register())?, 0),
        (Mnemonic::Mov, _) => Value::Number(immediate(raw)?),
        _ => return None,
    };
    Some((to, value))
}

fn stores(raw: &Decoded) -> Option<Value> {
    let is_plain = raw.mnemonic() == Mnemonic::Mov
        && raw.op0_kind() == OpKind::Memory
        && raw.memory_size().size() == 8
        // A slot of the stack is not the area.
        && raw.memory_base() != Register::RSP;
    match raw.op1_kind() {
        _ if !is_plain => None,
        OpKind::Register => Some(Value::Sum(general(raw.op1_register())?, 0)),
        _ => immediate(raw).map(Value::Number),
    }
}

fn immediate(raw: &Decoded) -> Option<u64> {
    let is_one = matches!(
        raw.op1_kind(),
        OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64
    );
    is_one.then(|| raw.immediate(1))
}
