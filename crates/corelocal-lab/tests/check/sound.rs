//! No false alarm: shapes known to be sound, our own machine code, and files without sections.

use super::{As, EVERY, Rule, SOUND, Section, Severity, build, check, rules, skip};

/// Shapes of sections in use, with the warnings they deserve.
fn shapes() -> Vec<(&'static str, Section, &'static [Rule])> {
    vec![
        ("an increment", SOUND, &[]),
        (
            "exits to the handler's neighbours, outcome in the scratch register",
            Section {
                body: "cmpl $0, %fs:4(%rdi)\n jl 7f\n mov %fs:24(%rdi), %eax\n cmp 8(%rsi), %eax\n\
                       jae 7f\n shl $16, %rax\n add (%rsi), %rax\n cmp %rdx, (%rax)\n jge 8f\n\
                       mov %rdx, (%rax)\n",
                signature: "7: mov $3, %eax\n jmp 5b\n 8: mov $1, %eax\n jmp 5b\n\
                            .byte 0x0f, 0xb9, 0x3d\n .long 0x53053053\n",
                handler: "mov $2, %eax\n jmp 5b\n",
                ..SOUND
            },
            &[],
        ),
        (
            "compare and store, which leaves to its own handler when the cpu is another",
            Section {
                body: "cmp %edx, %fs:4(%rdi)\n jnz 6f\n cmp %rcx, (%rsi)\n jne 9f\n mov %r8, (%rsi)\n",
                after: "xor %eax, %eax\n ret\n 9: mov $1, %eax\n ret\n",
                ..SOUND
            },
            &[],
        ),
        (
            "a push: the item first, then the index that shows it",
            Section {
                body: "mov 16(%rdi), %r8\n btr $63, %r8\n jnc 5f\n movzwq (%r8, %rsi, 4), %r9\n\
                       cmp 2(%r8, %rsi, 4), %r9w\n jae 5f\n mov %rdx, (%r8, %r9, 8)\n\
                       lea 1(%r9), %r9\n mov %r9w, (%r8, %rsi, 4)\n",
                handler: "jmp add\n",
                ..SOUND
            },
            &[Rule::StoreBeforeCommit],
        ),
        (
            "a push whose author declares that nobody looks at the item before",
            Section {
                body: "mov (%rsi), %r9\n cmp %r8, %r9\n jae 5f\n 9: mov %rdx, 8(%rsi, %r9, 8)\n\
                       inc %r9\n mov %r9, (%rsi)\n",
                prepared: "9b",
                ..SOUND
            },
            &[],
        ),
        (
            "a load of a pointer and the word there, declared to store nothing, and a store of the word afterwards",
            Section {
                body: "mov (%rsi), %rax\n test %rax, %rax\n jle 5f\n mov (%rax), %rax\n",
                after: "mov %rax, -8(%rsp)\n ret\n",
                prepared: "4b",
                ..SOUND
            },
            &[],
        ),
        (
            "a batch: a loop of copies, then the index; retried from the store to rseq_cs",
            Section {
                body: "mov 16(%rdi), %r8\n movzwq (%r8), %r9\n mov %rdx, %r11\n 7: dec %r11\n\
                       mov (%rsi, %r11, 8), %rax\n mov %rax, (%r8, %r9, 8)\n inc %r9\n\
                       cmp %r9, %rdx\n jne 7b\n mov %r9w, (%r8)\n",
                handler: "jmp add\n",
                ..SOUND
            },
            &[Rule::StoreBeforeCommit],
        ),
        (
            "a retry that may exit before its output is written, which is then stored all the same",
            Section {
                body: "mov (%rsi), %rax\n cmp %rdx, %rax\n jae 5f\n lea 1(%rax), %r8\n\
                       mov %r8, (%rsi)\n",
                after: "mov %r8, -8(%rsp)\n ret\n",
                handler: "jmp add\n",
                ..SOUND
            },
            &[],
        ),
        (
            "a section that begins before it is announced, and is retried from there",
            Section { start: "add", length: "5f - add", handler: "jmp add\n", ..SOUND },
            &[],
        ),
        (
            "a handler that announces the section itself, through another register",
            Section {
                handler: "lea 3b(%rip), %rcx\n mov %rcx, %rax\n mov %rax, %fs:8(%rdi)\n jmp 4b\n",
                ..SOUND
            },
            &[],
        ),
        (
            "a handler that counts aborts, and goes back to before the announcement",
            Section { handler: "incq (%rcx)\n jmp add\n", ..SOUND },
            &[],
        ),
        (
            "a handler that puts the overwritten inputs back",
            Section {
                body: "add %rdx, %rsi\n mov %rdx, (%rsi)\n",
                handler: "mov -8(%rsp), %rsi\n jmp add\n",
                ..SOUND
            },
            &[],
        ),
    ]
}

#[test]
fn sound_shapes_raise_no_error_and_no_other_warning() {
    let test = "sound_shapes_raise_no_error_and_no_other_warning";
    for (shape, section, expected) in shapes() {
        for kind in EVERY {
            let report = match check(&section.assembly(), kind) {
                Ok(report) => report,
                Err(reason) => return skip(test, &reason),
            };
            let mut found = rules(&report);
            found.retain(|rule| *rule != Rule::Nodelete || kind != As::Shared);
            assert_eq!(found, expected, "{shape} as {kind:?}: {:#?}", report.findings);
            assert_eq!((report.sections.len(), report.count(Severity::Error)), (1, 0));
            assert!(report.decoded && report.notes.is_empty(), "{:?}", report.notes);
        }
    }
}

/// Code that is linked to one place has addresses as numbers.
#[test]
fn a_handler_may_announce_an_immediate() {
    let test = "a_handler_may_announce_an_immediate";
    for handler in
        ["mov $3b, %ecx\n mov %rcx, %fs:8(%rdi)\n jmp 4b\n", "movq $3b, %fs:8(%rdi)\n jmp 4b\n"]
    {
        match check(&Section { handler, ..SOUND }.assembly(), As::Object) {
            Ok(report) => assert_eq!(rules(&report), [], "{handler}: {:#?}", report.findings),
            Err(reason) => return skip(test, &reason),
        }
    }
}

/// Two copies of one inlined section in one file, as compilers make them.
#[test]
fn copies_of_a_section_are_sections_of_their_own() {
    let test = "copies_of_a_section_are_sections_of_their_own";
    let one = SOUND.assembly();
    let both = format!("{one}\n{}", one.replace(".globl add\n", "").replace("add", "sub"));
    let both = both.replace("subq", "addq");
    for kind in [As::Object, As::SharedForEver] {
        match check(&both, kind) {
            Ok(report) => {
                assert_eq!((report.sections.len(), rules(&report).len()), (2, 0), "{report:#?}");
                let starts: Vec<_> =
                    report.sections.iter().map(|s| s.start.function.clone()).collect();
                assert_eq!(starts, [Some("add+0xc".to_owned()), Some("sub+0xc".to_owned())]);
            }
            Err(reason) => return skip(test, &reason),
        }
    }
}

/// What a library does that asks the dynamic linker to keep it: not in the code, so it is declared.
#[test]
fn an_object_that_keeps_itself_loaded_may_say_so() {
    let test = "an_object_that_keeps_itself_loaded_may_say_so";
    let text = format!("{}\n .section __rseq_stays, \"a\"\n .byte 0\n", SOUND.assembly());
    match check(&text, As::Shared) {
        Ok(report) => assert_eq!(rules(&report), [], "{:#?}", report.findings),
        Err(reason) => skip(test, &reason),
    }
}

#[test]
fn a_program_without_sections_has_nothing_to_report() {
    let program = std::env::current_exe().expect("this program");
    let checked = corelocal_lab::check::file(&program).expect("a readable file");
    assert!(checked.reports.iter().all(|report| report.sections.is_empty()));
    assert!(checked.reports.iter().all(|report| report.findings.is_empty()));
}

/// A file without the code is not one without sections.
#[test]
fn debug_information_alone_is_refused() {
    let test = "debug_information_alone_is_refused";
    let built = match build(&SOUND.assembly(), As::Shared) {
        Ok(built) => built,
        Err(reason) => return skip(test, &reason),
    };
    let debug = built.path.with_extension("debug");
    let mut objcopy = std::process::Command::new("objcopy");
    match objcopy.arg("--only-keep-debug").arg(&built.path).arg(&debug).status() {
        Ok(status) if status.success() => {}
        _ => return skip(test, "objcopy cannot be run"),
    }
    let why = corelocal_lab::check::file(&debug).expect_err("no code");
    assert!(why.is_debug_only() && why.to_string().contains("split from"), "{why}");
    assert!(
        !corelocal_lab::check::bytes("text", b"text").expect_err("no ELF file").is_debug_only()
    );
}
