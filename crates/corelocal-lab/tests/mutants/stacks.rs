//! Sections that push and pop, sound and broken.
//!
//! Invariants: as in `word_sections.rs`. One of a pair is broken at most, the push or the pop.

use std::arch::asm;

use corelocal_lab::torture::Workload;

use crate::object::{CAPACITY, Ended, Index, Object, stack};

/// A module with a workload of the same name on a stack, whose sections are made of these parts.
macro_rules! stack {
    ($name:ident, $start:expr, $model:ident, push($($push:expr),+), pop($($pop:expr),+) $(,)?) => {
        mod $name {
            use super::*;

            static OBJECT: Object = Object::new();

            #[inline(always)]
            fn push(index: Index, item: i64) -> Ended {
                let scratch: u64;
                // SAFETY: as in `workload`.
                unsafe {
                    asm!(
                        $($push,)+
                        area = in(reg) index.area,
                        id = in(reg) index.id,
                        offsets = in(reg) index.offsets,
                        object = in(reg) &OBJECT,
                        item = in(reg) item,
                        scratch = out(reg) scratch,
                        count = out(reg) _,
                        out("r11") _,
                        options(nostack),
                    );
                }
                (scratch, stack::DONE)
            }

            #[inline(always)]
            fn pop(index: Index) -> Ended {
                let (scratch, item);
                // SAFETY: as in `workload`.
                unsafe {
                    asm!(
                        $($pop,)+
                        area = in(reg) index.area,
                        id = in(reg) index.id,
                        offsets = in(reg) index.offsets,
                        object = in(reg) &OBJECT,
                        item = out(reg) item,
                        scratch = out(reg) scratch,
                        count = out(reg) _,
                        options(nostack),
                    );
                }
                (scratch, item)
            }

            #[inline(never)]
            fn operate(n: i64) -> i64 {
                let index = Index::cpu();
                let ended = if n == stack::TAKE {
                    OBJECT.run(index, || pop(index), stack::pop_given_up)
                } else {
                    OBJECT.run(index, || push(index, n), |part| stack::push_given_up(part, n))
                };
                ended.unwrap_or(stack::NONE)
            }

            pub fn workload() -> Workload {
                Workload {
                    name: stringify!($name),
                    begin: |start| stack::begin(&OBJECT, start),
                    start: $start as u64,
                    operate,
                    look: || stack::look(&OBJECT),
                    end: || stack::content(&OBJECT),
                    model: stack::$model,
                    by_cpu: true,
                    to_slot: true,
                }
            }
        }
    };
}

macro_rules! load_count {
    () => {
        "mov {count}, qword ptr [{scratch}]\n"
    };
}

macro_rules! check_full {
    () => {
        concat!("cmp {count}, 4\n", "jae 36f\n")
    };
}

macro_rules! store_item {
    () => {
        "mov qword ptr [{scratch} + 8*{count} + 8], {item}\n"
    };
}

macro_rules! count_up {
    () => {
        concat!("add {count}, 1\n", "mov qword ptr [{scratch}], {count}\n")
    };
}

macro_rules! begin {
    () => {
        concat!(descriptor!(), arm!(), "31:\n", locate!())
    };
}

/// A sound push and a sound pop.
macro_rules! push {
    () => {
        concat!(
            begin!(),
            load_count!(),
            check_full!(),
            prepare!("mov qword ptr [{scratch} + 8*{count} + 8], {item}\n"),
            count_up!(),
            "32:\n",
            exits!(),
        )
    };
}

macro_rules! take_item {
    () => {
        concat!(
            "mov {item}, qword ptr [{scratch} + 8*{count} + 8]\n",
            "mov qword ptr [{scratch}], {count}\n",
        )
    };
}

macro_rules! pop_exits {
    () => {
        exits!("0x53053053", "mov {scratch:e}, 1\n xor {item:e}, {item:e}")
    };
}

macro_rules! pop {
    () => {
        concat!(
            begin!(),
            load_count!(),
            "sub {count}, 1\n",
            "jb 36f\n",
            take_item!(),
            "32:\n",
            pop_exits!(),
        )
    };
}

stack!(sound_push, 2, PUSH, push(push!()), pop(pop!()));
stack!(sound_push_taken, 2, PUSH_TAKEN, push(push!()), pop(pop!()));
stack!(sound_pop, 2, POP, push(push!()), pop(pop!()));

stack!(
    item_after_the_commit,
    2,
    PUSH_TAKEN,
    push(
        begin!(),
        load_count!(),
        check_full!(),
        "lea r11, [{scratch} + 8*{count} + 8]",
        count_up!(),
        "32:",
        "cmp {scratch}, 3",
        "jbe 38f",
        "mov qword ptr [r11], {item}",
        "38:",
        exits!()
    ),
    pop(pop!()),
);

stack!(
    count_before_the_item,
    2,
    PUSH,
    push(
        begin!(),
        load_count!(),
        check_full!(),
        "lea r11, [{scratch} + 8*{count} + 8]",
        count_up!(),
        "mov qword ptr [r11], {item}",
        "32:",
        exits!()
    ),
    pop(pop!()),
);

stack!(
    item_not_declared,
    2,
    PUSH,
    push(begin!(), load_count!(), check_full!(), store_item!(), count_up!(), "32:", exits!()),
    pop(pop!()),
);

stack!(
    full_not_checked,
    CAPACITY,
    PUSH,
    push(
        begin!(),
        load_count!(),
        prepare!("mov qword ptr [{scratch} + 8*{count} + 8], {item}\n"),
        count_up!(),
        "32:",
        exits!()
    ),
    pop(pop!()),
);

stack!(
    empty_not_checked,
    0,
    POP,
    push(push!()),
    pop(begin!(), load_count!(), "sub {count}, 1", take_item!(), "32:", pop_exits!()),
);

stack!(
    start_after_the_count,
    2,
    PUSH,
    push(
        descriptor!(),
        arm!(),
        locate!(),
        load_count!(),
        "31:",
        check_full!(),
        prepare!("mov qword ptr [{scratch} + 8*{count} + 8], {item}\n"),
        count_up!(),
        "32:",
        exits!()
    ),
    pop(pop!()),
);

stack!(
    end_before_the_count,
    2,
    POP,
    push(push!()),
    pop(
        begin!(),
        load_count!(),
        "sub {count}, 1",
        "jb 36f",
        "mov {item}, qword ptr [{scratch} + 8*{count} + 8]",
        "32:",
        "cmp {scratch}, 3",
        "jbe 38f",
        "mov qword ptr [{scratch}], {count}",
        "38:",
        pop_exits!()
    ),
);

/// Sections as they should be.
pub fn sound() -> Vec<Workload> {
    vec![sound_push::workload(), sound_push_taken::workload(), sound_pop::workload()]
}

/// Sections with one fault each.
pub fn mutants() -> Vec<Workload> {
    vec![
        item_after_the_commit::workload(),
        count_before_the_item::workload(),
        item_not_declared::workload(),
        full_not_checked::workload(),
        empty_not_checked::workload(),
        start_after_the_count::workload(),
        end_before_the_count::workload(),
    ]
}
