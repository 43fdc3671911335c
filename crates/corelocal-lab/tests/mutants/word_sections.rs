//! Sections on one word, sound and broken.
//!
//! Invariants:
//! - Each mutant differs from a sound section in one point, which its name tells.
//! - Nothing here is part of a library or a program: this is a test's own text.

use std::arch::asm;

use corelocal_lab::torture::{Content, Workload};

use crate::object::{Ended, Index, Object, add, largest};

/// A module with a workload of the same name, whose section is made of `$part`s.
macro_rules! workload {
    ($name:ident, $make:ident, $index:ident, $($part:expr),+ $(,)?) => {
        mod $name {
            use super::*;

            static OBJECT: Object = Object::new();

            #[inline(always)]
            fn attempt(index: Index, n: i64) -> Ended {
                let scratch: u64;
                // SAFETY: sound sections store to the slot of an id alone. The others break this or
                // another promise: they run in a process that is there to find out.
                unsafe {
                    asm!(
                        $($part,)+
                        area = in(reg) index.area,
                        id = in(reg) index.id,
                        offsets = in(reg) index.offsets,
                        object = in(reg) &OBJECT,
                        n = in(reg) n,
                        scratch = out(reg) scratch,
                        out("r11") _,
                        options(nostack),
                    );
                }
                (scratch, 0)
            }

            #[inline(never)]
            fn operate(n: i64) -> i64 {
                let index = Index::$index();
                OBJECT.run(index, || attempt(index, n), |shared| $make::give_up(shared, n));
                0
            }

            fn look() -> i64 {
                $make::look(&OBJECT)
            }

            pub fn workload() -> Workload {
                Workload {
                    name: stringify!($name),
                    begin: |_| Content::of([look()]),
                    start: 0,
                    operate,
                    look,
                    end: || Content::of([look()]),
                    model: $make::MODEL,
                    by_cpu: stringify!($index) == "cpu",
                    to_slot: true,
                }
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
    look_up!(),
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
    look_up!(),
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
    look_up!(),
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
    look_up!(),
    find_slot!(),
    add!(),
    "32:",
    exits!(),
);

workload!(
    carry_not_checked,
    add,
    cpu,
    descriptor!(),
    arm!(),
    "31:",
    check_cpu!(),
    read_id!(),
    look_up!(),
    "add {scratch}, qword ptr [{object}]",
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

workload!(
    slot_before_arming,
    add,
    cpu,
    descriptor!(),
    check_cpu!(),
    read_id!(),
    look_up!(),
    "lea r11, [rip + 30b]",
    "mov qword ptr fs:[{area} + 8], r11",
    "31:",
    find_slot!(),
    add!(),
    "32:",
    exits!(),
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
        slot_before_arming::workload(),
        start_after_the_index::workload(),
        cpu_not_checked::workload(),
        carry_not_checked::workload(),
        never_armed::workload(),
        abort_taken_for_commit::workload(),
        abort_taken_for_mismatch::workload(),
        retry_not_armed::workload(),
        wrong_signature::workload(),
    ]
}
