//! Files for AArch64, linked by the cross compiler: what is sound is, and each fault is found.

use super::Rule;
use super::cross::{Machine, Section, finds};

/// A counter's increment: sound.
const SOUND: Section = Section {
    signature: ".inst 0xd428bc00",
    body: "ldr w9, [x0, #4]\n cmp w9, #0\n b.lt 7f\n ldr x9, [x1, x9, lsl #3]\n ldr x10, [x9]\n \
           add x10, x10, #1\n str x10, [x9]\n",
    after: "mov x0, #0\n ret\n 7: mov x0, #2\n ret\n",
    handler: "mov x0, #1\n ret\n",
    prepared: "",
};

const MACHINE: Machine =
    Machine { compiler: "aarch64-linux-gnu-gcc", options: &["-march=armv8.1-a"], assembly };

fn assembly(section: &Section) -> String {
    let Section { signature, body, after, handler, prepared } = section;
    format!(
        ".section __rseq_cs, \"aw\"\n .balign 32\n 3: .word 0, 0\n .xword 4f, 5f - 4f, 6f\n\
         .section __rseq_cs_ptr_array, \"aw\"\n .xword 3b\n\
         .text\n .globl add\n .hidden add\n .type add, %function\n\
         add: adrp x9, 3b\n add x9, x9, :lo12:3b\n str x9, [x0, #8]\n\
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
                    body: "ldr x9, [x1]\n cmp x9, x2\n b.hs 7f\n add x10, x1, x9, lsl #3\n \
                           8: str x3, [x10, #8]\n add x9, x9, #1\n stlr x9, [x1]\n",
                    prepared,
                    ..SOUND
                },
                &[],
            ),
            (
                "a constant",
                Section { body: "mov x9, #1\n str x9, [x1]\n", after: "7: ret\n", ..SOUND },
                &[],
            ),
            ("a handler that begins anew", Section { handler: "b add\n", ..SOUND }, &[]),
            (
                "a handler that announces the section itself",
                Section {
                    handler: "adrp x11, 3b\n add x12, x11, :lo12:3b\n mov x13, x12\n str x13, [x0, #8]\n b 4b\n",
                    ..SOUND
                },
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
                Section { signature: ".inst 0xd428bc01", ..SOUND },
                &[Rule::Signature],
            ),
            (
                "nothing is stored",
                with("ldr x9, [x1]\n cbz x9, 7f\n add x9, x9, #1\n"),
                &[Rule::NoCommit],
            ),
            (
                "the store is behind the end",
                Section {
                    body: "ldr x9, [x1]\n add x9, x9, #1\n",
                    after: "str x9, [x1]\n 7: ret\n",
                    ..SOUND
                },
                &[Rule::CommitOutside],
            ),
            (
                "a store before the commit",
                with("str x2, [x1, #8]\n stlr x3, [x1]\n"),
                &[Rule::StoreBeforeCommit],
            ),
            (
                "it goes on after the commit",
                with("str x2, [x1]\n ldr x9, [x1]\n"),
                &[Rule::CommitNotLast],
            ),
            (
                "a pair, between whose words an interrupt may come",
                with("ldp x9, x10, [x1]\n stp x10, x9, [x1]\n"),
                &[Rule::CommitInParts],
            ),
            ("a call", with("bl add\n str x2, [x1]\n"), &[Rule::Call]),
            ("a system call", with("svc #0\n str x2, [x1]\n"), &[Rule::Call]),
            ("the stack", with("sub sp, sp, #16\n str x2, [x1]\n"), &[Rule::Stack]),
            (
                "a computed jump",
                with("cbz x9, 8f\n br x9\n 8: str x2, [x1]\n"),
                &[Rule::IndirectBranch],
            ),
            ("an atomic addition", with("ldadd x2, x9, [x1]\n"), &[Rule::Locked]),
            (
                "no way out",
                with("9: cbz x9, 9b\n b 9b\n str x2, [x1]\n"),
                &[Rule::NeverLeaves, Rule::NoCommit],
            ),
            ("data", with(".inst 0xffffffff\n str x2, [x1]\n"), &[Rule::Undecodable]),
            (
                "a retry without an announcement",
                Section { handler: "b 4b\n", ..SOUND },
                &[Rule::RetryUnarmed],
            ),
            (
                "another address",
                Section { handler: "adrp x11, 4b\n str x11, [x0, #8]\n b 4b\n", ..SOUND },
                &[Rule::RetryUnproved],
            ),
            (
                "an operand that the section changes",
                Section {
                    body: "ldr x2, [x1]\n add x2, x2, #1\n str x2, [x1]\n",
                    after: "7: ret\n",
                    handler: "mov x0, x2\n ret\n",
                    ..SOUND
                },
                &[Rule::InputOverwritten],
            ),
            (
                "a way into it",
                Section {
                    body: "ldr x9, [x1]\n add x9, x9, #1\n 8: str x9, [x1]\n",
                    after: "ret\n 7: tbz x9, #3, 8b\n ret\n",
                    ..SOUND
                },
                &[Rule::JumpIn],
            ),
        ],
    );
}
