//! What sections are made of, in the shape of the library's own; mutants exchange one part.

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

macro_rules! look_up {
    () => {
        "mov {scratch}, qword ptr [{offsets} + 8*{scratch}]\n"
    };
}

macro_rules! find_slot {
    () => {
        concat!("add {scratch}, qword ptr [{object}]\n", "jnc 34f\n")
    };
}

macro_rules! locate {
    () => {
        concat!(check_cpu!(), read_id!(), look_up!(), find_slot!())
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

/// A store before the commit that is declared.
macro_rules! prepare {
    ($store:expr) => {
        concat!(
            "38:\n",
            ".pushsection __rseq_prepare, \"a\", @progbits\n",
            "39: .long 38b - 39b\n",
            ".popsection\n",
            ".reloc 0, R_X86_64_NONE, 39b\n",
            $store
        )
    };
}
