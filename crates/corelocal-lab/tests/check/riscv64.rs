//! Files for RISC-V, linked by the cross compiler: what is sound is, and each fault is found. Object files have pairs of
//! relocations for lengths, and linkers shorten what announces a section.

use super::Rule;
use super::cross::{Machine, Section, finds};

/// A counter's increment: sound.
const SOUND: Section = Section {
    signature: ".balign 4\n csrrw x0, 0xf14, x0",
    body: "lw t0, 4(a0)\n bltz t0, 7f\n slli t0, t0, 3\n add t0, t0, a1\n ld t0, 0(t0)\n ld t1, 0(t0)\n \
           addi t1, t1, 1\n sd t1, 0(t0)\n",
    after: "li a0, 0\n ret\n 7: li a0, 2\n ret\n",
    handler: "li a0, 1\n ret\n",
    prepared: "",
};

const MACHINE: Machine =
    Machine { compiler: "riscv64-linux-gnu-gcc", options: &["-march=rv64gc"], assembly };

fn assembly(section: &Section) -> String {
    let Section { signature, body, after, handler, prepared } = section;
    format!(
        ".section __rseq_cs, \"aw\"\n .balign 32\n 3: .word 0, 0\n .dword 4f, 5f - 4f, 6f\n\
         .section __rseq_cs_ptr_array, \"aw\"\n .dword 3b\n\
         .text\n .globl add\n .hidden add\n .type add, @function\n\
         add: lla t0, 3b\n sd t0, 8(a0)\n\
         4: {body}\n 5: {after}\n {signature}\n 6: {handler}\n nop\n .size add, . - add\n\
         {prepared}\n .section .note.GNU-stack, \"\"\n"
    )
}

#[test]
fn sound_sections_are() {
    let prepared = ".section __rseq_prepare, \"a\"\n 39: .word 8b - 39b\n";
    finds(
        "sound_sections_are",
        &MACHINE,
        &[
            ("an increment", SOUND, &[]),
            (
                "an item, then the count that shows it",
                Section {
                    body: "ld t0, 0(a1)\n bgeu t0, a2, 7f\n slli t1, t0, 3\n add t1, t1, a1\n \
                           8: sd a3, 8(t1)\n addi t0, t0, 1\n fence rw, w\n sd t0, 0(a1)\n",
                    prepared,
                    ..SOUND
                },
                &[],
            ),
            (
                "a constant, in the last register",
                Section { body: "li t6, 1\n sd t6, 0(a1)\n", after: "7: ret\n", ..SOUND },
                &[],
            ),
            ("a handler that begins anew", Section { handler: "j add\n", ..SOUND }, &[]),
            (
                "a handler that announces the section itself",
                Section { handler: "lla t2, 3b\n mv t3, t2\n sd t3, 8(a0)\n j 4b\n", ..SOUND },
                &[],
            ),
        ],
    );
}

#[test]
fn faults_are_found() {
    let with = |body| Section { body, after: "7: ret\n", ..SOUND };
    finds(
        "faults_are_found",
        &MACHINE,
        &[
            (
                "another signature",
                Section { signature: ".balign 4\n csrrw x0, 0xf15, x0", ..SOUND },
                &[Rule::Signature],
            ),
            (
                "nothing is stored",
                with("ld t0, 0(a1)\n beqz t0, 7f\n addi t0, t0, 1\n"),
                &[Rule::NoCommit],
            ),
            (
                "the store is behind the end",
                Section {
                    body: "ld t0, 0(a1)\n addi t0, t0, 1\n",
                    after: "sd t0, 0(a1)\n 7: ret\n",
                    ..SOUND
                },
                &[Rule::CommitOutside],
            ),
            (
                "a store before the commit",
                with("sd a2, 8(a1)\n fence rw, w\n sd a3, 0(a1)\n"),
                &[Rule::StoreBeforeCommit],
            ),
            (
                "it goes on after the commit",
                with("sd a2, 0(a1)\n ld t0, 0(a1)\n"),
                &[Rule::CommitNotLast],
            ),
            ("a call", with("call add\n sd a2, 0(a1)\n"), &[Rule::Call]),
            ("a system call", with("ecall\n sd a2, 0(a1)\n"), &[Rule::Call]),
            ("the stack", with("addi sp, sp, -16\n sd a2, 0(a1)\n"), &[Rule::Stack]),
            (
                "a computed jump",
                with("beqz t0, 8f\n jr t0\n 8: sd a2, 0(a1)\n"),
                &[Rule::IndirectBranch],
            ),
            ("an atomic addition", with("amoadd.d t0, a2, (a1)\n"), &[Rule::Locked]),
            (
                "a conditional store",
                with("lr.d t0, (a1)\n addi t0, t0, 1\n sc.d t1, t0, (a1)\n"),
                &[Rule::Locked, Rule::Locked],
            ),
            (
                "no way out",
                with("9: beqz t0, 9b\n j 9b\n sd a2, 0(a1)\n"),
                &[Rule::NeverLeaves, Rule::NoCommit],
            ),
            ("data", with(".word 0xffffffff\n sd a2, 0(a1)\n"), &[Rule::Undecodable]),
            (
                "a retry without an announcement",
                Section { handler: "j 4b\n", ..SOUND },
                &[Rule::RetryUnarmed],
            ),
            (
                "another address",
                Section { handler: "lla t2, 4b\n sd t2, 8(a0)\n j 4b\n", ..SOUND },
                &[Rule::RetryUnproved],
            ),
            (
                "an operand that the section changes",
                Section {
                    body: "ld a2, 0(a1)\n addi a2, a2, 1\n sd a2, 0(a1)\n",
                    after: "7: ret\n",
                    handler: "mv a0, a2\n ret\n",
                    ..SOUND
                },
                &[Rule::InputOverwritten],
            ),
            (
                "a way into it",
                Section {
                    body: "ld t0, 0(a1)\n addi t0, t0, 1\n 8: sd t0, 0(a1)\n",
                    after: "ret\n 7: bnez t0, 8b\n ret\n",
                    ..SOUND
                },
                &[Rule::JumpIn],
            ),
        ],
    );
}
