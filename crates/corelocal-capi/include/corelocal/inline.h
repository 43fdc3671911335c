/* The fast paths inline: no call, about ten instructions on memory of this core.
 *
 * Each is a critical section that the kernel restarts (rseq(2)), specified in src/rseq.rs of the library. What is not there
 * in a moment (the section was interrupted, the thread is not registered, its core is new) is done by the call.
 *
 *     #include <corelocal/counter.h>
 *     #include <corelocal/inline.h>
 *
 *     static corelocal_counter hits = CORELOCAL_COUNTER_INIT;
 *     corelocal_inline_counter_add(&hits, 1);
 *
 * An object with these sections, such as a plugin, stays loaded until the program ends: the kernel reads what describes a
 * section after it. On x86-64; on other processors these functions are the calls. Not with -masm=intel.
 *
 * `corelocal check FILE` verifies the sections of a program or library. */
#ifndef CORELOCAL_INLINE_H
#define CORELOCAL_INLINE_H

#include <string.h>

#include "corelocal/area.h"
#include "corelocal/base.h"
#include "corelocal/counter.h"
#include "corelocal/ids.h"
#include "corelocal/rcu_copy.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__x86_64__) && defined(__LP64__)

/* The layout of what the sections below read: the library refuses another one. */
#define CORELOCAL_INLINE_LAYOUT 1

struct corelocal_inline {
    intptr_t area;       /* of the thread's rseq area, from the thread pointer; 0: make calls */
    intptr_t id;         /* of its concurrency id, from the thread pointer */
    const void *offsets; /* a word for each id: where its slot is */
};

/* One in each program or library. Sections name it, so that reading it takes no relocation. */
__attribute__((weak, used, visibility("hidden"))) struct corelocal_inline corelocal_inline_words = {0, 0, 0};

int corelocal_inline_bind(const struct corelocal_inline *words, uint32_t layout);

/* Before main, or when the library is loaded. */
__attribute__((constructor)) static void corelocal_inline_load(void)
{
    /* Tells `corelocal check` that the object stays loaded: the library sees to that. */
    __asm__ volatile(".pushsection __rseq_stays, \"a\", @progbits\n"
                     "40: .byte 0\n\t"
                     ".popsection\n\t"
                     ".reloc 0, R_X86_64_NONE, 40b");
    if (corelocal_inline_words.area == 0)
        (void)corelocal_inline_bind(&corelocal_inline_words, CORELOCAL_INLINE_LAYOUT);
}

/* The words, in one statement: a loop reads them once, and the other words after the area. */
static inline struct corelocal_inline corelocal_inline_read(void)
{
    struct corelocal_inline words;
    __asm__("movq corelocal_inline_words(%%rip), %0\n\t"
            "movq 8+corelocal_inline_words(%%rip), %1\n\t"
            "movq 16+corelocal_inline_words(%%rip), %2"
            : "=&r"(words.area), "=&r"(words.id), "=&r"(words.offsets));
    return words;
}

/* A section: it is announced, and ends with what follows `steps`, unless these leave it for a call. What is interrupted goes
 * on at 33. Labels are local numbers, as the compiler may copy it. The comments are those of rseq/arch/x86_64/frame.rs of the
 * library. */
#define CORELOCAL_INLINE_SECTION(steps)                         \
    ".pushsection __rseq_cs, \"aw\", @progbits\n\t"             \
    ".balign 32\n"                                              \
    "30: .long 0, 0\n\t"                                        \
    ".quad 31f, 32f - 31f, 33f\n\t"                             \
    ".popsection\n\t"                                           \
    ".pushsection __rseq_cs_ptr_array, \"aw\", @progbits\n"     \
    "35: .quad 30b\n\t"                                         \
    ".popsection\n\t"                                           \
    ".reloc 0, R_X86_64_NONE, 35b\n\t"                          \
    "leaq 30b(%%rip), %%rax\n\t"                                \
    "movq %%rax, %%fs:8(%[area])\n"                             \
    "31:\n\t"                                                   \
    "cmpl $0, %%fs:4(%[area])\n\t"                              \
    "jl %l[call]\n\t"                                           \
    steps                                                       \
    "32:\n\t"                                                   \
    ".pushsection __rseq_failure, \"ax\", @progbits\n\t"        \
    ".byte 0x0f, 0xb9, 0x3d\n\t"                                \
    ".long 0x53053053\n"                                        \
    "33: jmp %l[call]\n\t"                                      \
    ".popsection\n\t"

/* One on this core's slot of an object, which it finds in rax. */
#define CORELOCAL_INLINE_ON_SLOT(commit)                        \
    CORELOCAL_INLINE_SECTION("movl %%fs:(%[id]), %%eax\n\t"      \
                             "movq (%[offsets], %%rax, 8), %%rax\n\t" \
                             "addq %[base], %%rax\n\t"          \
                             "jnc %l[call]\n\t"                 \
                             commit "\n")

/* As corelocal_counter_add. */
static inline void corelocal_inline_counter_add(corelocal_counter *counter, int64_t n)
{
    struct corelocal_inline words = corelocal_inline_read();
    if (__builtin_expect(words.area == 0, 0))
        goto call;
    __asm__ goto(CORELOCAL_INLINE_ON_SLOT("addq %[n], (%%rax)")
                 :
                 : [area] "r"(words.area), [id] "r"(words.id), [offsets] "r"(words.offsets),
                   [base] "m"(counter->opaque[0]), [n] "er"(n)
                 : "rax", "cc", "memory"
                 : call);
    return;
call:
    corelocal_counter_add(counter, n);
}

/* As corelocal_counter_set_add. */
static inline int corelocal_inline_counter_set_add(corelocal_counter_set *set, size_t index, int64_t n)
{
    struct corelocal_inline words = corelocal_inline_read();
    if (__builtin_expect(words.area == 0 || index >= set->len, 0))
        goto call;
    __asm__ goto(CORELOCAL_INLINE_ON_SLOT("addq %[n], (%%rax, %[index], 8)")
                 :
                 : [area] "r"(words.area), [id] "r"(words.id), [offsets] "r"(words.offsets),
                   [base] "m"(*(const uint64_t *)set->counters), [index] "r"(index), [n] "er"(n)
                 : "rax", "cc", "memory"
                 : call);
    return 0;
call:
    return corelocal_counter_set_add(set, index, n);
}

/* As corelocal_cell_add. */
static inline int corelocal_inline_cell_add(corelocal_cell *cell, size_t index, uint64_t n)
{
    struct corelocal_inline words = corelocal_inline_read();
    if (__builtin_expect(words.area == 0 || index >= cell->area->words, 0))
        goto call;
    __asm__ goto(CORELOCAL_INLINE_ON_SLOT("addq %[n], (%%rax, %[index], 8)")
                 :
                 : [area] "r"(words.area), [id] "r"(words.id), [offsets] "r"(words.offsets),
                   [base] "m"(cell->opaque[0]), [index] "r"(index), [n] "er"(n)
                 : "rax", "cc", "memory"
                 : call);
    return 0;
call:
    return corelocal_cell_add(cell, index, n);
}

/* Loads words of a version into registers, which are stored once the section has ended. */
#define CORELOCAL_INLINE_LOAD(loads, stores)                                       \
    ".pushsection __rseq_prepare, \"a\", @progbits\n"                              \
    "39: .long 31f - 39b\n\t"                                                      \
    ".popsection\n\t"                                                              \
    ".reloc 0, R_X86_64_NONE, 39b\n\t"                                             \
    CORELOCAL_INLINE_SECTION("movq %[version], %%rax\n\t"                          \
                             "testq %%rax, %%rax\n\t"                              \
                             "jle %l[call]\n\t" loads) stores

/* As corelocal_rcu_copy_load. Fastest if n is a constant. */
static inline void corelocal_inline_rcu_copy_load(const corelocal_rcu_copy *copy, void *to, size_t n)
{
    struct corelocal_inline words = corelocal_inline_read();
    uint64_t loaded[8];
    if (__builtin_expect(words.area == 0, 0))
        goto call;
    if (n <= 8)
        __asm__ goto(CORELOCAL_INLINE_LOAD("movq (%%rax), %%rax\n", "movq %%rax, (%[to])")
                     :
                     : [area] "r"(words.area), [version] "m"(copy->opaque[0]), [to] "r"(loaded)
                     : "rax", "cc", "memory"
                     : call);
    else if (n <= 16)
        __asm__ goto(CORELOCAL_INLINE_LOAD("movaps (%%rax), %%xmm0\n", "movups %%xmm0, (%[to])")
                     :
                     : [area] "r"(words.area), [version] "m"(copy->opaque[0]), [to] "r"(loaded)
                     : "rax", "xmm0", "cc", "memory"
                     : call);
    else
        __asm__ goto(CORELOCAL_INLINE_LOAD("movaps (%%rax), %%xmm0\n\t"
                                           "movaps 16(%%rax), %%xmm1\n\t"
                                           "movaps 32(%%rax), %%xmm2\n\t"
                                           "movaps 48(%%rax), %%xmm3\n",
                                           "movups %%xmm0, (%[to])\n\t"
                                           "movups %%xmm1, 16(%[to])\n\t"
                                           "movups %%xmm2, 32(%[to])\n\t"
                                           "movups %%xmm3, 48(%[to])")
                     :
                     : [area] "r"(words.area), [version] "m"(copy->opaque[0]), [to] "r"(loaded)
                     : "rax", "xmm0", "xmm1", "xmm2", "xmm3", "cc", "memory"
                     : call);
    memcpy(to, loaded, n <= sizeof loaded ? n : sizeof loaded);
    return;
call:
    corelocal_rcu_copy_load(copy, to, n);
}

/* As corelocal_cid. */
static inline uint32_t corelocal_inline_cid(void)
{
    struct corelocal_inline words = corelocal_inline_read();
    uint32_t id;
    if (__builtin_expect(words.area == 0, 0))
        return corelocal_cid();
    __asm__ volatile("movl %%fs:(%1), %0" : "=r"(id) : "r"(words.id));
    /* A thread that is not registered shows a number that is no id. */
    return __builtin_expect(id >= 8192, 0) ? corelocal_cid() : id;
}

#else

#define corelocal_inline_counter_add corelocal_counter_add
#define corelocal_inline_counter_set_add corelocal_counter_set_add
#define corelocal_inline_cell_add corelocal_cell_add
#define corelocal_inline_rcu_copy_load corelocal_rcu_copy_load
#define corelocal_inline_cid corelocal_cid

#endif

#ifdef __cplusplus
}
#endif

#endif
