//! The guest's program: what a guest's kernel does about its clock, and nothing else.
//!
//! It is 16-bit code, since that is the mode a cpu starts in: no page tables, no descriptors. The bytes
//! stand here by hand, each instruction in a line of its own; a test disassembles them and compares.
//!
//! Registers at the start: `edx:eax` is the address of the cpu's clock page with bit 0 set, `ecx` the
//! number of the register that takes it, `bx` the page, `si` the mailbox.
//!
//! Invariants:
//! 1. The code changes no memory but the mailbox's counter and the flags of its own page, and the latter
//!    on request only.
//! 2. Whenever the cpu has left guest mode at the port, the mailbox holds the counter of that step.

/// The model-specific register of KVM that takes the address of a cpu's clock page.
pub const KVM_SYSTEM_TIME_NEW: u32 = 0x4b56_4d01;

/// The port to which a step's end is written.
pub const STEP_PORT: u16 = 0x10;

/// The word that the guest finds in its mailbox after a step: what it does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Request {
    /// Another step.
    Step = 0,
    /// Clears "this guest was stopped" in its page, as a guest's kernel does once it has seen it; then
    /// another step.
    Acknowledge = 1,
    /// Halts. The next step begins after it.
    Halt = 2,
}

/// Offset of the counter in a mailbox: 8 bytes, written by the guest.
pub const COUNTER_AT: usize = 0;
/// Offset of the request in a mailbox: a [`Request`] as one byte, read by the guest.
pub const REQUEST_AT: usize = 8;

/// The program.
#[rustfmt::skip]
pub const CODE: &[u8] = &[
    0x0f, 0x30,                   //        wrmsr                     ; registers the page
    0x0f, 0x31,                   // again: rdtsc
    0x66, 0x89, 0x04,             //        mov [si], eax             ; the mailbox's counter
    0x66, 0x89, 0x54, 0x04,       //        mov [si+4], edx
    0xe6, STEP_PORT as u8,        //        out 10h, al               ; the step ends
    0x80, 0x7c, 0x08, 0x01,       //        cmp byte ptr [si+8], 1    ; the mailbox's request
    0x72, 0xef,                   //        jb again
    0x77, 0x06,                   //        ja halt
    0x80, 0x67, 0x1d, 0xfd,       //        and byte ptr [bx+1Dh], FDh; the page's flags, without bit 1
    0xeb, 0xe7,                   //        jmp again
    0xf4,                         // halt:  hlt
    0xeb, 0xe4,                   //        jmp again
];

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

    #[test]
    fn the_bytes_are_the_program() {
        let mut formatter = IntelFormatter::new();
        let listing: Vec<String> = Decoder::new(16, super::CODE, DecoderOptions::NONE)
            .iter()
            .map(|instruction| {
                let mut text = String::new();
                formatter.format(&instruction, &mut text);
                format!("{:02x} {text}", instruction.ip())
            })
            .collect();
        let expected = [
            "00 wrmsr",
            "02 rdtsc",
            "04 mov [si],eax",
            "07 mov [si+4],edx",
            "0b out 10h,al",
            "0d cmp byte ptr [si+8],1",
            "11 jb short 2",
            "13 ja short 001Bh",
            "15 and byte ptr [bx+1Dh],0FDh",
            "19 jmp short 2",
            "1b hlt",
            "1c jmp short 2",
        ];
        assert_eq!(listing, expected);
    }
}
