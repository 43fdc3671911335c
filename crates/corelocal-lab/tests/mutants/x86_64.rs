//! Sound sections and broken ones, in the shape of the library's own.
//!
//! Invariants:
//! - Each mutant differs from a sound section in one point, which its name tells.
//! - Nothing here is part of a library or a program: this is a test's own text.

use std::arch::asm;

use corelocal_lab::torture::Workload;

use crate::object::{Index, Object, add, largest};

/// The parts of a section; mutants exchange one.
macro_rules! descriptor {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", @progbits\n",
            ".balign 32\n",
            "30: .long 0, 0\n",
            ".quad 31f, 32f - 31f, 33f\n",
            ".popsection\n",
            ".pushsection __rseq_cs_ptr_array, \"aw\", @progbits\n",
            "35: .quad 30b\n",
            ".popsection\n",
            ".reloc 0, R_X86_64_NONE, 35b\n",
        )
    };
}

macro_rules! arm {
    () => {
        concat!("lea {scratch}, [rip + 30b]\n", "mov qword ptr fs:[{area} + 8], {scratch}\n")
    };
}

macro_rules! check_cpu {
    () => {
        concat!("cmp dword ptr fs:[{area} + 4], 0\n", "jl 34f\n")
    };
}

macro_rules! read_id {
    () => {
        "mov {scratch:e}, dword ptr fs:[{id}]\n"
    };
}

macro_rules! check_opened {
    () => {
        concat!("cmp {scratch:e}, dword ptr [{object} + 8]\n", "jae 34f\n")
    };
}

macro_rules! find_slot {
    () => {
        concat!("shl {scratch}, 6\n", "add {scratch}, qword ptr [{object}]\n")
    };
}

macro_rules! locate {
    () => {
        concat!(check_cpu!(), read_id!(), check_opened!(), find_slot!())
    };
}

macro_rules! exits {
    ($signature:literal, $abort:literal) => {
        concat!(
            ".pushsection __rseq_failure, \"ax\", @progbits\n",
            "34: mov {scratch:e}, 2\n",
            "jmp 37f\n",
            "36: mov {scratch:e}, 3\n",
            "jmp 37f\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long ",
            $signature,
            "\n",
            "33: ",
            $abort,
            "\n",
            "jmp 37f\n",
            ".popsection\n",
            "37:\n",
        )
    };
    () => {
        exits!("0x53053053", "mov {scratch:e}, 1")
    };
}

/// A module with a workload of the same name, whose section is made of `$part`s.
macro_rules! workload {
    ($name:ident, $make:ident, $index:ident, $($part:expr),+ $(,)?) => {
        mod $name {
            use super::*;

            static OBJECT: Object = Object::new();

            #[inline(always)]
            fn attempt(index: Index, n: i64) -> u64 {
                let scratch: u64;
                // SAFETY: sound sections store to the slot of an opened id alone. The others break
                // this or another promise: they run in a process that is there to find out.
                unsafe {
                    asm!(
                        $($part,)+
                        area = in(reg) index.area,
                        id = in(reg) index.id,
                        object = in(reg) &OBJECT,
                        n = in(reg) n,
                        scratch = out(reg) scratch,
                        out("r11") _,
                        options(nostack),
                    );
                }
                scratch
            }

            #[inline(never)]
            fn operate(n: i64) {
                let index = Index::$index();
                OBJECT.run(index, || attempt(index, n), |shared| $make::give_up(shared, n));
            }

            fn read() -> i64 {
                $make::read(&OBJECT)
            }

            pub fn workload() -> Workload {
                let by_cpu = stringify!($index) == "cpu";
                $make::workload(stringify!($name), operate, read, by_cpu)
            }
        }
    };
}

macro_rules! add {
    () => {
        "add qword ptr [{scratch}], {n}\n"
    };
}

macro_rules! mismatch {
    () => {
        concat!("cmp qword ptr [{scratch}], {n}\n", "jge 36f\n")
    };
}

macro_rules! store {
    () => {
        "mov qword ptr [{scratch}], {n}\n"
    };
}

workload!(sound_add, add, cpu, descriptor!(), arm!(), "31:", locate!(), add!(), "32:", exits!());

workload!(
    sound_largest,
    largest,
    cpu,
    descriptor!(),
    arm!(),
    "31:",
    locate!(),
    mismatch!(),
    store!(),
    "32:",
    exits!(),
);

workload!(
    store_after_the_end,
    largest,
    cpu,
    descriptor!(),
    arm!(),
    "31:",
    locate!(),
    mismatch!(),
    "32:",
    store!(),
    exits!(),
);

workload!(
    end_after_the_commit,
    add,
    cpu,
    descriptor!(),
    arm!(),
    "31:",
    locate!(),
    add!(),
    "mov {scratch}, {scratch}",
    "32:",
    exits!(),
);

workload!(
    store_before_the_checks,
    add,
    cpu,
    descriptor!(),
    arm!(),
    "31:",
    read_id!(),
    check_opened!(),
    find_slot!(),
    add!(),
    check_cpu!(),
    "32:",
    exits!(),
);

workload!(
    index_before_arming,
    add,
    cpu,
    descriptor!(),
    read_id!(),
    "lea r11, [rip + 30b]",
    "mov qword ptr fs:[{area} + 8], r11",
    "31:",
    check_cpu!(),
    check_opened!(),
    find_slot!(),
    add!(),
    "32:",
    exits!(),
);

workload!(
    start_after_the_index,
    add,
    cpu,
    descriptor!(),
    arm!(),
    check_cpu!(),
    read_id!(),
    "31:",
    check_opened!(),
    find_slot!(),
    add!(),
    "32:",
    exits!(),
);

workload!(
    cpu_not_checked,
    add,
    cid,
    descriptor!(),
    arm!(),
    "31:",
    read_id!(),
    check_opened!(),
    find_slot!(),
    add!(),
    "32:",
    exits!(),
);

workload!(
    opened_not_checked,
    add,
    cpu,
    descriptor!(),
    arm!(),
    "31:",
    check_cpu!(),
    read_id!(),
    find_slot!(),
    add!(),
    "32:",
    exits!(),
);

workload!(never_armed, add, cpu, descriptor!(), "31:", locate!(), add!(), "32:", exits!(),);

workload!(
    abort_taken_for_commit,
    add,
    cpu,
    descriptor!(),
    arm!(),
    "31:",
    locate!(),
    add!(),
    "32:",
    exits!("0x53053053", "xor {scratch:e}, {scratch:e}"),
);

workload!(
    abort_taken_for_mismatch,
    add,
    cpu,
    descriptor!(),
    arm!(),
    "31:",
    locate!(),
    add!(),
    "32:",
    exits!("0x53053053", "mov {scratch:e}, 3"),
);

workload!(
    retry_not_armed,
    add,
    cpu,
    descriptor!(),
    arm!(),
    "31:",
    locate!(),
    add!(),
    "32:",
    exits!("0x53053053", "jmp 31b"),
);

workload!(
    wrong_signature,
    add,
    cpu,
    descriptor!(),
    arm!(),
    "31:",
    locate!(),
    add!(),
    "32:",
    exits!("0x53053054", "mov {scratch:e}, 1"),
);

/// Sections as they should be.
pub fn sound() -> Vec<Workload> {
    vec![sound_add::workload(), sound_largest::workload()]
}

/// Sections with one fault each.
pub fn mutants() -> Vec<Workload> {
    vec![
        store_after_the_end::workload(),
        end_after_the_commit::workload(),
        store_before_the_checks::workload(),
        index_before_arming::workload(),
        start_after_the_index::workload(),
        cpu_not_checked::workload(),
        opened_not_checked::workload(),
        never_armed::workload(),
        abort_taken_for_commit::workload(),
        abort_taken_for_mismatch::workload(),
        retry_not_armed::workload(),
        wrong_signature::workload(),
    ]
}
