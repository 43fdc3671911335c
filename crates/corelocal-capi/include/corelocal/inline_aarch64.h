/* The sections of inline.h in AArch64's instructions. Private to it.
 *
 * The comments are those of src/rseq/arch/aarch64/frame.rs of the library. x9, x10 and x11 are free in a section: x10 is the
 * thread pointer, x11 the thread's rseq area at first. Labels are local numbers, as the compiler may copy it. */
#ifndef CORELOCAL_INLINE_AARCH64_H
#define CORELOCAL_INLINE_AARCH64_H

/* The words. Each statement has one result and touches no memory that the compiler knows, so that loops read them once. The
 * first one acquires, and the others have the area as an operand, so that it is read first. */
#define CORELOCAL_INLINE_READ(words)                                       \
    __asm__("adrp %0, corelocal_inline_words\n\t"                          \
            "add %0, %0, :lo12:corelocal_inline_words\n\t"                 \
            "ldar %0, [%0]"                                                \
            : "=r"((words).area));                                         \
    CORELOCAL_INLINE_READ_NEXT((words).id, "8", (words).area);             \
    CORELOCAL_INLINE_READ_NEXT((words).offsets, "16", (words).area)
#define CORELOCAL_INLINE_READ_NEXT(word, distance, area)                   \
    __asm__("adrp %0, corelocal_inline_words\n\t"                          \
            "add %0, %0, :lo12:corelocal_inline_words\n\t"                 \
            "ldr %0, [%0, #" distance "]"                                  \
            : "=&r"(word)                                                  \
            : "r"(area))

#define CORELOCAL_INLINE_READ_ID(into, words)                              \
    __asm__ volatile("mrs x9, tpidr_el0\n\t"                               \
                     "ldr %w0, [x9, %1]"                                   \
                     : "=r"(into)                                          \
                     : "r"((words).id)                                     \
                     : "x9")

/* Tells `corelocal check` that the object stays loaded: see corelocal_inline_bind. */
#define CORELOCAL_INLINE_STAYS()                                           \
    __asm__ volatile(".pushsection __rseq_stays, \"a\", %progbits\n"       \
                     "40: .byte 0\n\t"                                     \
                     ".popsection\n\t"                                     \
                     ".reloc 0, R_AARCH64_NONE, 40b")

/* A section: it is announced, and ends with what follows `steps`, unless these leave it for a call. What is interrupted goes
 * on at 33, in subsection 1 of the function's own section: a branch reaches it without a linker's help. */
#define CORELOCAL_INLINE_SECTION(steps)                                    \
    ".pushsection __rseq_cs, \"aw\", %%progbits\n\t"                       \
    ".balign 32\n"                                                         \
    "30: .word 0, 0\n\t"                                                   \
    ".xword 31f, 32f - 31f, 33f\n\t"                                       \
    ".popsection\n\t"                                                      \
    ".pushsection __rseq_cs_ptr_array, \"aw\", %%progbits\n"               \
    "35: .xword 30b\n\t"                                                   \
    ".popsection\n\t"                                                      \
    ".reloc 0, R_AARCH64_NONE, 35b\n\t"                                    \
    "adrp x9, 30b\n\t"                                                     \
    "add x9, x9, :lo12:30b\n\t"                                            \
    "mrs x10, tpidr_el0\n\t"                                               \
    "add x11, x10, %[area]\n\t"                                            \
    "str x9, [x11, #8]\n"                                                  \
    "31:\n\t"                                                              \
    "ldr w9, [x11, #4]\n\t"                                                \
    "cmp w9, #0\n\t"                                                       \
    "b.lt %l[call]\n\t"                                                    \
    steps                                                                  \
    "32:\n\t"                                                              \
    ".subsection 1\n\t"                                                    \
    ".inst 0xd428bc00\n"                                                   \
    "33: b %l[call]\n\t"                                                   \
    ".previous\n\t"

/* One on this core's slot of an object, which it finds in x9. */
#define CORELOCAL_INLINE_ON_SLOT(commit)                                   \
    CORELOCAL_INLINE_SECTION("ldr w9, [x10, %[id]]\n\t"                    \
                             "ldr x9, [%[offsets], x9, lsl #3]\n\t"        \
                             "ldr x11, [%[base]]\n\t"                      \
                             "adds x9, x9, x11\n\t"                        \
                             "b.cc %l[call]\n\t" commit "\n")
#define CORELOCAL_INLINE_ADD                                               \
    CORELOCAL_INLINE_ON_SLOT("ldr x11, [x9]\n\t"                           \
                             "add x11, x11, %[n]\n\t"                      \
                             "str x11, [x9]")
#define CORELOCAL_INLINE_ADD_AT                                            \
    CORELOCAL_INLINE_ON_SLOT("ldr x11, [x9, %[index], lsl #3]\n\t"         \
                             "add x11, x11, %[n]\n\t"                      \
                             "str x11, [x9, %[index], lsl #3]")
#define CORELOCAL_INLINE_BASE(word) [base] "r"(&(word))
#define CORELOCAL_INLINE_N(number) [n] "r"(number)
#define CORELOCAL_INLINE_CLOBBERS "x9", "x10", "x11", "cc", "memory"

/* One that loads words of a version into registers, which are stored once it has ended. */
#define CORELOCAL_INLINE_LOAD(loads, stores)                               \
    ".pushsection __rseq_prepare, \"a\", %%progbits\n"                     \
    "39: .word 31f - 39b\n\t"                                              \
    ".popsection\n\t"                                                      \
    ".reloc 0, R_AARCH64_NONE, 39b\n\t"                                    \
    CORELOCAL_INLINE_SECTION("ldar x11, [%[version]]\n\t"                  \
                             "cmp x11, #0\n\t"                             \
                             "b.le %l[call]\n\t" loads) stores
#define CORELOCAL_INLINE_LOAD_8 CORELOCAL_INLINE_LOAD("ldr x9, [x11]\n", "str x9, [%[to]]")
#define CORELOCAL_INLINE_LOAD_16 CORELOCAL_INLINE_LOAD("ldp x9, x10, [x11]\n", "stp x9, x10, [%[to]]")
#define CORELOCAL_INLINE_LOAD_64                                           \
    CORELOCAL_INLINE_LOAD("ldp q0, q1, [x11]\n\t"                          \
                          "ldp q2, q3, [x11, #32]\n",                      \
                          "stp q0, q1, [%[to]]\n\t"                        \
                          "stp q2, q3, [%[to], #32]")
#define CORELOCAL_INLINE_LOAD_CLOBBERS "x9", "x10", "x11", "v0", "v1", "v2", "v3", "cc", "memory"

#endif
