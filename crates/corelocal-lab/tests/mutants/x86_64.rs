//! One sound section and broken ones, in the shape of the library's own.
//!
//! Invariants:
//! - Each mutant differs from a sound section in one point, which its name tells.
//! - Nothing here is part of a library or a program: this is a test's own text.

use std::arch::asm;
use std::array;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, Ordering};

use corelocal::sys::Registration;
use corelocal_lab::torture::{Operands, Workload};

/// More cpus than this are not told apart; the target uses the first two it may.
const CPUS: usize = 1024;
const ATTEMPTS: usize = 32;

/// A word for each cpu, on a line of its own.
#[repr(C, align(64))]
struct Slot(AtomicI64);

/// An object like the library's: `base` and `opened` are known to the assembly. `shared` is used
/// by atomics, when no section could run.
#[repr(C)]
struct Object {
    base: AtomicPtr<Slot>,
    opened: AtomicU32,
    shared: AtomicI64,
}

impl Object {
    const fn new() -> Object {
        Object {
            base: AtomicPtr::new(std::ptr::null_mut()),
            opened: AtomicU32::new(0),
            shared: AtomicI64::new(0),
        }
    }

    fn words(&self) -> impl Iterator<Item = i64> {
        // Acquire: partner is the Release in `prepare`.
        let (opened, base) =
            (self.opened.load(Ordering::Acquire), self.base.load(Ordering::Acquire));
        let slots = (0..opened as usize).map(move |slot| {
            // SAFETY: `opened` leaves 0 after `base` was set to CPUS slots, and stays below that.
            unsafe { &*base.add(slot) }.0.load(Ordering::Relaxed)
        });
        slots.chain([self.shared.load(Ordering::Relaxed)])
    }

    /// Makes another attempt worthwhile; false where none is.
    fn prepare(&self, index: Index) -> bool {
        let id = index.read();
        if !index.is_registered() || id as usize >= CPUS {
            return false;
        }
        if self.base.load(Ordering::Acquire).is_null() {
            let slots: Box<[Slot; CPUS]> = Box::new(array::from_fn(|_| Slot(AtomicI64::new(0))));
            self.base.store(Box::leak(slots).as_mut_ptr(), Ordering::Release);
        }
        // Release: partner is the Acquire in `words` and the section's compare.
        self.opened.fetch_max(id + 1, Ordering::Release);
        true
    }

    fn run(&self, index: Index, attempt: impl Fn() -> u64, give_up: impl Fn(&AtomicI64)) {
        for _ in 0..ATTEMPTS {
            match attempt() {
                ABORTED => {}
                UNAVAILABLE if !self.prepare(index) => break,
                UNAVAILABLE => {}
                _mismatch_or_slot => return,
            }
        }
        give_up(&self.shared);
    }
}

const ABORTED: u64 = 1;
const UNAVAILABLE: u64 = 2;

/// Offsets from the thread pointer: of the rseq area, and of the id in it.
#[derive(Clone, Copy)]
struct Index {
    area: isize,
    id: isize,
}

impl Index {
    /// The cpu number's.
    fn cpu() -> Index {
        // A thread without a registration shows it in the same place.
        static AREA: AtomicI64 = AtomicI64::new(0);
        let area = match AREA.load(Ordering::Relaxed) {
            0 => {
                let found = Registration::of_this_thread().offset.unwrap_or(0);
                AREA.store(found as i64, Ordering::Relaxed);
                found
            }
            known => known as isize,
        };
        Index { area, id: area + 4 }
    }

    /// The concurrency id's.
    fn cid() -> Index {
        let Index { area, .. } = Index::cpu();
        Index { area, id: area + 24 }
    }

    fn read(self) -> u32 {
        let id: u32;
        // SAFETY: a field of this thread's area.
        unsafe {
            asm!("mov {:e}, dword ptr fs:[{}]", out(reg) id, in(reg) self.id, options(nostack));
        }
        id
    }

    fn is_registered(self) -> bool {
        let cpu = Index { id: self.area + 4, ..self };
        (cpu.read() as i32) >= 0
    }
}

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

mod add {
    use super::*;

    pub fn give_up(shared: &AtomicI64, n: i64) {
        shared.fetch_add(n, Ordering::Relaxed);
    }

    pub fn read(object: &Object) -> i64 {
        object.words().sum()
    }

    pub fn workload(
        name: &'static str,
        operate: fn(i64),
        read: fn() -> i64,
        by_cpu: bool,
    ) -> Workload {
        let operands = |_| Operands { target: 1, other: 1 << 20 };
        Workload { name, operate, read, after: i64::wrapping_add, operands, by_cpu }
    }
}

mod largest {
    use super::*;

    pub fn give_up(shared: &AtomicI64, n: i64) {
        shared.fetch_max(n, Ordering::Relaxed);
    }

    pub fn read(object: &Object) -> i64 {
        object.words().max().unwrap_or(0)
    }

    pub fn workload(
        name: &'static str,
        operate: fn(i64),
        read: fn() -> i64,
        by_cpu: bool,
    ) -> Workload {
        let operands = |state| Operands { target: state + 1, other: state + 2 };
        Workload { name, operate, read, after: |state, n| state.max(n), operands, by_cpu }
    }
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
