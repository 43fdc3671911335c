/* The sections of inline.h in x86-64's instructions. Private to it.
 *
 * The comments are those of src/rseq/arch/x86_64/frame.rs of the library. rax is free in a section. Labels are local numbers,
 * as the compiler may copy it. */
#ifndef CORELOCAL_INLINE_X86_64_H
#define CORELOCAL_INLINE_X86_64_H

/* The words. Each statement has one result and touches no memory that the compiler knows, so that loops read them once. The
 * others have the area as an operand, so that it is read first. */
#define CORELOCAL_INLINE_READ(words)                                       \
    __asm__("movq corelocal_inline_words(%%rip), %0" : "=r"((words).area)); \
    CORELOCAL_INLINE_READ_NEXT((words).id, "8", (words).area);             \
    CORELOCAL_INLINE_READ_NEXT((words).offsets, "16", (words).area)
#define CORELOCAL_INLINE_READ_NEXT(word, distance, area)                   \
    __asm__("movq " distance "+corelocal_inline_words(%%rip), %0" : "=r"(word) : "r"(area))

#define CORELOCAL_INLINE_READ_ID(into, words) __asm__ volatile("movl %%fs:(%1), %0" : "=r"(into) : "r"((words).id))

/* Tells `corelocal check` that the object stays loaded: see corelocal_inline_bind. */
#define CORELOCAL_INLINE_STAYS()                                           \
    __asm__ volatile(".pushsection __rseq_stays, \"a\", @progbits\n"       \
                     "40: .byte 0\n\t"                                     \
                     ".popsection\n\t"                                     \
                     ".reloc 0, R_X86_64_NONE, 40b")

/* A section: it is announced, and ends with what follows `steps`, unless these leave it for a call. What is interrupted goes
 * on at 33. */
#define CORELOCAL_INLINE_SECTION(steps)                                    \
    ".pushsection __rseq_cs, \"aw\", @progbits\n\t"                        \
    ".balign 32\n"                                                         \
    "30: .long 0, 0\n\t"                                                   \
    ".quad 31f, 32f - 31f, 33f\n\t"                                        \
    ".popsection\n\t"                                                      \
    ".pushsection __rseq_cs_ptr_array, \"aw\", @progbits\n"                \
    "35: .quad 30b\n\t"                                                    \
    ".popsection\n\t"                                                      \
    ".reloc 0, R_X86_64_NONE, 35b\n\t"                                     \
    "leaq 30b(%%rip), %%rax\n\t"                                           \
    "movq %%rax, %%fs:8(%[area])\n"                                        \
    "31:\n\t"                                                              \
    "cmpl $0, %%fs:4(%[area])\n\t"                                         \
    "jl %l[call]\n\t"                                                      \
    steps                                                                  \
    "32:\n\t"                                                              \
    ".pushsection __rseq_failure, \"ax\", @progbits\n\t"                   \
    ".byte 0x0f, 0xb9, 0x3d\n\t"                                           \
    ".long 0x53053053\n"                                                   \
    "33: jmp %l[call]\n\t"                                                 \
    ".popsection\n\t"

/* One on this core's slot of an object, which it finds in rax. */
#define CORELOCAL_INLINE_ON_SLOT(commit)                                   \
    CORELOCAL_INLINE_SECTION("movl %%fs:(%[id]), %%eax\n\t"                \
                             "movq (%[offsets], %%rax, 8), %%rax\n\t"      \
                             "addq %[base], %%rax\n\t"                     \
                             "jnc %l[call]\n\t" commit "\n")
#define CORELOCAL_INLINE_ADD CORELOCAL_INLINE_ON_SLOT("addq %[n], (%%rax)")
#define CORELOCAL_INLINE_ADD_AT CORELOCAL_INLINE_ON_SLOT("addq %[n], (%%rax, %[index], 8)")
#define CORELOCAL_INLINE_BASE(word) [base] "m"(word)
#define CORELOCAL_INLINE_N(number) [n] "er"(number)
#define CORELOCAL_INLINE_CLOBBERS "rax", "cc", "memory"

/* One that loads words of a version into registers, which are stored once it has ended. */
#define CORELOCAL_INLINE_LOAD(loads, stores)                               \
    ".pushsection __rseq_prepare, \"a\", @progbits\n"                      \
    "39: .long 31f - 39b\n\t"                                              \
    ".popsection\n\t"                                                      \
    ".reloc 0, R_X86_64_NONE, 39b\n\t"                                     \
    CORELOCAL_INLINE_SECTION("movq (%[version]), %%rax\n\t"                \
                             "testq %%rax, %%rax\n\t"                      \
                             "jle %l[call]\n\t" loads) stores
#define CORELOCAL_INLINE_LOAD_8 CORELOCAL_INLINE_LOAD("movq (%%rax), %%rax\n", "movq %%rax, (%[to])")
#define CORELOCAL_INLINE_LOAD_16 CORELOCAL_INLINE_LOAD("movaps (%%rax), %%xmm0\n", "movups %%xmm0, (%[to])")
#define CORELOCAL_INLINE_LOAD_64                                           \
    CORELOCAL_INLINE_LOAD("movaps (%%rax), %%xmm0\n\t"                     \
                          "movaps 16(%%rax), %%xmm1\n\t"                   \
                          "movaps 32(%%rax), %%xmm2\n\t"                   \
                          "movaps 48(%%rax), %%xmm3\n",                    \
                          "movups %%xmm0, (%[to])\n\t"                     \
                          "movups %%xmm1, 16(%[to])\n\t"                   \
                          "movups %%xmm2, 32(%[to])\n\t"                   \
                          "movups %%xmm3, 48(%[to])")
#define CORELOCAL_INLINE_LOAD_CLOBBERS "rax", "xmm0", "xmm1", "xmm2", "xmm3", "cc", "memory"

#endif
