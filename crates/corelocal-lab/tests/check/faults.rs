//! One file per fault: its rule finds it, and no other rule finds anything.

use std::collections::BTreeSet;

use super::{As, Rule, SOUND, Section, Severity, check, rules, skip};

/// Which rule a section breaks. A rule may have several.
fn faults() -> Vec<(Rule, Section)> {
    let body = |rule, body| (rule, Section { body, ..SOUND });
    let retry = |handler: &'static str| {
        let handler = Box::leak(format!("{handler} jmp 4b\n").into_boxed_str());
        (Rule::RetryUnarmed, Section { handler, ..SOUND })
    };
    let jump = |code: &str| {
        let after = Box::leak(format!("xor %eax, %eax\n ret\n {code}").into_boxed_str());
        let body = "mov %fs:4(%rdi), %eax\n shl $16, %rax\n 7: addq %rdx, (%rsi, %rax)\n";
        (Rule::JumpIn, Section { body, after, ..SOUND })
    };
    let declared = |rule, body, prepared| (rule, Section { body, prepared, ..SOUND });
    vec![
        (Rule::Version, Section { head: ".long 1, 0", ..SOUND }),
        (Rule::Flags, Section { head: ".long 0, 4", ..SOUND }),
        (Rule::Range, Section { start: "0", length: "16", ..SOUND }),
        (Rule::Range, Section { start: "3b", length: "16", ..SOUND }),
        (Rule::Range, Section { length: "0", ..SOUND }),
        (Rule::Range, Section { length: "4f - 5f", ..SOUND }),
        (Rule::Range, Section { length: "4000", ..SOUND }),
        (Rule::AbortInside, Section { abort: "4f + 5", ..SOUND }),
        (Rule::AbortNotCode, Section { abort: "3b", ..SOUND }),
        (Rule::AbortNotCode, Section { abort: "0", ..SOUND }),
        (Rule::Signature, Section { signature: "", ..SOUND }),
        (Rule::Signature, Section { signature: ".long 0x53053054", ..SOUND }),
        (Rule::Signature, Section { signature: ".long 0x53053053\n nop", ..SOUND }),
        (
            Rule::Layout,
            Section {
                rest: ".section __rseq_cs_ptr_array, \"aw\"\n .quad 3b\n .section __rseq_cs, \"aw\"\n .quad 0\n",
                ..SOUND
            },
        ),
        (Rule::Unlisted, Section { rest: "", ..SOUND }),
        (
            Rule::StrayEntry,
            Section { rest: ".section __rseq_cs_ptr_array, \"aw\"\n .quad 3b, 3b + 8\n", ..SOUND },
        ),
        (
            Rule::Duplicate,
            Section {
                rest: ".section __rseq_cs_ptr_array, \"aw\"\n .quad 3b, 3b + 32\n\
                   .section __rseq_cs, \"aw\"\n .long 0, 0\n .quad 4b, 5b - 4b, 6b\n",
                ..SOUND
            },
        ),
        (
            Rule::Overlap,
            Section {
                rest: ".section __rseq_cs_ptr_array, \"aw\"\n .quad 3b, 3b + 32\n\
                   .section __rseq_cs, \"aw\"\n .long 0, 0\n .quad 4b + 5, 5b - 4b - 5, 6b\n",
                ..SOUND
            },
        ),
        body(Rule::Undecodable, "mov %fs:4(%rdi), %eax\n .byte 0x06\n addq %rdx, (%rsi)\n"),
        (Rule::Boundary, Section { length: "5f - 4f - 1", ..SOUND }),
        body(
            Rule::Boundary,
            "cmp $0, %rdx\n je 7f + 1\n 7: movabs $0x9090909090909090, %rax\n addq %rdx, (%rsi)\n",
        ),
        body(Rule::Call, "call add\n addq %rdx, (%rsi)\n"),
        body(Rule::Call, "call *%rcx\n addq %rdx, (%rsi)\n"),
        body(Rule::Call, "syscall\n addq %rdx, (%rsi)\n"),
        body(Rule::Call, "sysenter\n addq %rdx, (%rsi)\n"),
        body(Rule::Call, "int $0x80\n addq %rdx, (%rsi)\n"),
        body(Rule::Call, "int3\n addq %rdx, (%rsi)\n"),
        body(Rule::Call, "ud2\n addq %rdx, (%rsi)\n"),
        body(Rule::Stack, "push %rdx\n addq %rdx, (%rsi)\n"),
        body(Rule::Stack, "pop %rax\n addq %rdx, (%rsi)\n"),
        body(Rule::Stack, "sub $8, %rsp\n addq %rdx, (%rsi)\n"),
        body(Rule::Stack, "pushfq\n addq %rdx, (%rsi)\n"),
        body(Rule::Stack, "leave\n addq %rdx, (%rsi)\n"),
        body(Rule::IndirectBranch, "cmp $0, %rdx\n je 7f\n jmp *%rax\n 7: addq %rdx, (%rsi)\n"),
        body(Rule::IndirectBranch, "cmp $0, %rdx\n je 7f\n ret\n 7: addq %rdx, (%rsi)\n"),
        body(Rule::Locked, "lock addq %rdx, (%rsi)\n"),
        body(Rule::Locked, "lock cmpxchg %rdx, (%rsi)\n"),
        body(Rule::Locked, "xchg %rax, (%rsi)\n"),
        body(
            Rule::NeverLeaves,
            "cmp $0, %rdx\n je 8f\n 7: pause\n jmp 7b\n 8: addq %rdx, (%rsi)\n",
        ),
        body(Rule::NoCommit, "mov (%rsi), %rax\n"),
        declared(Rule::StrayPrepare, SOUND.body, "4b"),
        (
            Rule::CommitOutside,
            Section { body: "mov (%rsi), %rax\n", after: "mov %rax, (%rdx)\n ret\n", ..SOUND },
        ),
        body(Rule::CommitNotLast, "addq %rdx, (%rsi)\n mov $0, %eax\n"),
        body(
            Rule::CommitNotLast,
            "cmp $0, %rdx\n je 7f\n addq %rdx, (%rsi)\n jmp 5f\n 7: addq %rdx, (%rdi)\n",
        ),
        body(Rule::CommitNotLast, "addq %rdx, (%rsi)\n cmp (%rdx), %rax\n jne 6f\n"),
        body(Rule::CommitInParts, "mov %rdx, %rax\n rep stosb\n"),
        body(Rule::StoreBeforeCommit, "mov %rdx, 8(%rsi)\n addq %rdx, (%rsi)\n"),
        body(Rule::StoreBeforeCommit, "mov %rdx, -8(%rsp)\n addq %rdx, (%rsi)\n"),
        body(
            Rule::StoreBeforeCommit,
            "7: mov %rdx, (%r8)\n dec %rax\n jnz 7b\n mov %rdx, (%rsi)\n",
        ),
        // Two of them, one declared.
        declared(
            Rule::StoreBeforeCommit,
            "9: mov %rdx, 8(%rsi)\n mov %rdx, 16(%rsi)\n addq %rdx, (%rsi)\n",
            "9b",
        ),
        // One of them, and two declared; the commit declared; one behind the section.
        declared(Rule::StrayPrepare, "9: mov %rdx, 8(%rsi)\n 8: addq %rdx, (%rsi)\n", "9b, 8b"),
        declared(Rule::StrayPrepare, "9: addq %rdx, (%rsi)\n", "9b"),
        declared(Rule::StrayPrepare, "addq %rdx, (%rsi)\n", "5b"),
        // No declaration makes this right.
        declared(Rule::UpdateBeforeCommit, "9: incq 8(%rsi)\n addq %rdx, (%rsi)\n", "9b"),
        body(Rule::UpdateBeforeCommit, "incq 8(%rsi)\n addq %rdx, (%rsi)\n"),
        body(Rule::UpdateBeforeCommit, "cmpxchg %rdx, 8(%rsi)\n mov %rdx, (%rsi)\n"),
        (Rule::RetryUnarmed, Section { handler: "jmp 4b\n", ..SOUND }),
        // Stores that announce nothing, and then the retry.
        retry("addl $1, (%rdx)\n"),
        retry("addq $1, (%rdx)\n"),
        retry("movq $0, %fs:8(%rdi)\n"),
        retry("movl $1, (%rdx)\n"),
        retry("mov %rdx, -8(%rsp)\n"),
        retry("lea 3b(%rip), %rax\n"),
        retry("lea 3b(%rip), %rax\n mov %rax, -8(%rsp)\n"),
        retry("lea 3b(%rip), %rax\n mov %eax, (%rdx)\n"),
        retry("lea 3b(%rip), %rax\n lock xadd %rax, (%rdx)\n"),
        // One path announces, the other does not.
        retry("test %rdx, %rdx\n je 4b\n lea 3b(%rip), %rax\n mov %rax, %fs:8(%rdi)\n"),
        // It begins before it is announced, and the retry comes in behind that.
        (
            Rule::RetryUnarmed,
            Section { start: "add", length: "5f - add", handler: "jmp 4b\n", ..SOUND },
        ),
        (Rule::RetryUnproved, Section { handler: "mov %rcx, %fs:8(%rdi)\n jmp 4b\n", ..SOUND }),
        (
            Rule::RetryUnproved,
            Section {
                handler: "lea 3b + 32(%rip), %rcx\n mov %rcx, %fs:8(%rdi)\n jmp 4b\n",
                ..SOUND
            },
        ),
        jump("xor %eax, %eax\n jmp 7b\n"),
        jump("test %rdx, %rdx\n jne 7b\n ret\n"),
        jump("call 7b\n ret\n"),
        (
            Rule::InputOverwritten,
            Section { body: "add %rdx, %rsi\n mov %rdx, (%rsi)\n", handler: "jmp add\n", ..SOUND },
        ),
        (
            Rule::InputOverwritten,
            Section {
                body: "mov $0, %r8d\n mov %rdx, (%rsi)\n",
                handler: "mov %r8, %rax\n ret\n",
                ..SOUND
            },
        ),
    ]
}

#[test]
fn each_fault_is_found_by_its_rule_and_by_no_other() {
    let test = "each_fault_is_found_by_its_rule_and_by_no_other";
    for (rule, section) in faults() {
        for kind in [As::Object, As::SharedForEver] {
            let text = section.assembly();
            let report = match check(&text, kind) {
                Ok(report) => report,
                Err(reason) => return skip(test, &reason),
            };
            let found: BTreeSet<Rule> = rules(&report).into_iter().collect();
            assert_eq!(found, [rule].into(), "{kind:?}, {text}\n{:#?}", report.findings);
            let errors = report.count(Severity::Error);
            assert_eq!(errors > 0, rule.severity() == Severity::Error, "{rule}");
        }
    }
}

#[test]
fn a_shared_object_that_can_be_unloaded_is_found() {
    let test = "a_shared_object_that_can_be_unloaded_is_found";
    match check(&SOUND.assembly(), As::Shared) {
        Ok(report) => assert_eq!(rules(&report), [Rule::Nodelete], "{:#?}", report.findings),
        Err(reason) => skip(test, &reason),
    }
}

#[test]
fn no_rule_is_without_a_fault() {
    let tested: BTreeSet<Rule> =
        faults().iter().map(|(rule, _)| *rule).chain([Rule::Nodelete]).collect();
    assert_eq!(tested, Rule::ALL.iter().copied().collect());
}

#[test]
fn every_rule_is_documented() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verification.md");
    let page = std::fs::read_to_string(page).expect("docs/verification.md");
    for rule in Rule::ALL {
        assert!(page.contains(&format!("| `{rule}` |")), "docs/verification.md lacks `{rule}`");
    }
}

#[test]
fn a_finding_says_where_it_is() {
    let test = "a_finding_says_where_it_is";
    let section = Section { body: "nop\n push %rdx\n addq %rdx, (%rsi)\n", ..SOUND };
    for kind in [As::Object, As::SharedForEver, As::Archive] {
        let report = match check(&section.assembly(), kind) {
            Ok(report) => report,
            Err(reason) => return skip(test, &reason),
        };
        let finding = &report.findings[0];
        // lea and mov have 7 and 5 bytes, the nop one.
        assert_eq!(finding.place.function.as_deref(), Some("add+0xd"), "{finding:#?}");
        assert_eq!(finding.place.elf_section, ".text");
        let shown: Vec<(&str, bool)> =
            finding.disassembly.iter().map(|line| (line.text.as_str(), line.spot)).collect();
        assert_eq!(shown, [("nop", false), ("push rdx", true), ("add [rsi], rdx", false)]);
        assert_eq!(finding.section, Some(0));
        assert_eq!(finding.disassembly[1].address, finding.place.address);
        if kind != As::SharedForEver {
            assert_eq!(finding.place.address, 0xd, "offsets in object files");
        }
    }
}

#[test]
fn source_lines_are_told_where_the_file_has_them() {
    let test = "source_lines_are_told_where_the_file_has_them";
    let text = Section { body: "push %rdx\n addq %rdx, (%rsi)\n", ..SOUND }.assembly();
    let text =
        format!(".file 1 \"ring.c\"\n{}", text.replace("push %rdx", ".loc 1 42\n push %rdx"));
    for kind in [As::Object, As::SharedForEver] {
        match check(&text, kind) {
            Ok(report) => {
                let source = &report.findings[0].place.source;
                assert!(
                    source.len() == 1 && source[0].ends_with("ring.c:42"),
                    "{kind:?}: {source:?}"
                );
            }
            Err(reason) => return skip(test, &reason),
        }
    }
}
