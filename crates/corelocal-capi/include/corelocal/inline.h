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
 * section after it. On x86-64 and AArch64; on other processors these functions are the calls. Not with -masm=intel.
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

#if defined(__LP64__) && defined(__x86_64__)
#include "corelocal/inline_x86_64.h"
#define CORELOCAL_HAS_INLINE 1
#elif defined(__LP64__) && defined(__aarch64__) && !defined(__AARCH64EB__)
#include "corelocal/inline_aarch64.h"
#define CORELOCAL_HAS_INLINE 1
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifdef CORELOCAL_HAS_INLINE

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
    CORELOCAL_INLINE_STAYS();
    if (corelocal_inline_words.area == 0)
        (void)corelocal_inline_bind(&corelocal_inline_words, CORELOCAL_INLINE_LAYOUT);
}

/* As corelocal_counter_add. */
static inline void corelocal_inline_counter_add(corelocal_counter *counter, int64_t n)
{
    struct corelocal_inline words;
    CORELOCAL_INLINE_READ(words);
    if (__builtin_expect(words.area == 0, 0))
        goto call;
    __asm__ goto(CORELOCAL_INLINE_ADD
                 :
                 : [area] "r"(words.area), [id] "r"(words.id), [offsets] "r"(words.offsets),
                   CORELOCAL_INLINE_BASE(counter->opaque[0]), CORELOCAL_INLINE_N(n)
                 : CORELOCAL_INLINE_CLOBBERS
                 : call);
    return;
call:
    corelocal_counter_add(counter, n);
}

/* As corelocal_counter_set_add. */
static inline int corelocal_inline_counter_set_add(corelocal_counter_set *set, size_t index, int64_t n)
{
    struct corelocal_inline words;
    CORELOCAL_INLINE_READ(words);
    __asm__("" : "+r"(set)); /* One register for it, where the compiler would take two. */
    if (__builtin_expect(words.area == 0 || index >= set->len, 0))
        goto call;
    __asm__ goto(CORELOCAL_INLINE_ADD_AT
                 :
                 : [area] "r"(words.area), [id] "r"(words.id), [offsets] "r"(words.offsets),
                   CORELOCAL_INLINE_BASE(set->base), [index] "r"(index), CORELOCAL_INLINE_N(n)
                 : CORELOCAL_INLINE_CLOBBERS
                 : call);
    return 0;
call:
    return corelocal_counter_set_add(set, index, n);
}

/* As corelocal_cell_add. */
static inline int corelocal_inline_cell_add(corelocal_cell *cell, size_t index, uint64_t n)
{
    struct corelocal_inline words;
    CORELOCAL_INLINE_READ(words);
    if (__builtin_expect(words.area == 0 || index >= cell->area->words, 0))
        goto call;
    __asm__ goto(CORELOCAL_INLINE_ADD_AT
                 :
                 : [area] "r"(words.area), [id] "r"(words.id), [offsets] "r"(words.offsets),
                   CORELOCAL_INLINE_BASE(cell->opaque[0]), [index] "r"(index), CORELOCAL_INLINE_N(n)
                 : CORELOCAL_INLINE_CLOBBERS
                 : call);
    return 0;
call:
    return corelocal_cell_add(cell, index, n);
}

#define CORELOCAL_INLINE_LOAD_WORDS(section)                                                                   \
    __asm__ goto(section                                                                                       \
                 :                                                                                             \
                 : [area] "r"(words.area), [version] "r"(copy->opaque), [to] "r"(loaded)                       \
                 : CORELOCAL_INLINE_LOAD_CLOBBERS                                                              \
                 : call)

/* As corelocal_rcu_copy_load. Fastest if n is a constant. */
static inline void corelocal_inline_rcu_copy_load(const corelocal_rcu_copy *copy, void *to, size_t n)
{
    struct corelocal_inline words;
    uint64_t loaded[8];
    CORELOCAL_INLINE_READ(words);
    if (__builtin_expect(words.area == 0, 0))
        goto call;
    if (n <= 8)
        CORELOCAL_INLINE_LOAD_WORDS(CORELOCAL_INLINE_LOAD_8);
    else if (n <= 16)
        CORELOCAL_INLINE_LOAD_WORDS(CORELOCAL_INLINE_LOAD_16);
    else
        CORELOCAL_INLINE_LOAD_WORDS(CORELOCAL_INLINE_LOAD_64);
    memcpy(to, loaded, n <= sizeof loaded ? n : sizeof loaded);
    return;
call:
    corelocal_rcu_copy_load(copy, to, n);
}

/* As corelocal_cid. */
static inline uint32_t corelocal_inline_cid(void)
{
    struct corelocal_inline words;
    uint32_t id;
    CORELOCAL_INLINE_READ(words);
    if (__builtin_expect(words.area == 0, 0))
        return corelocal_cid();
    CORELOCAL_INLINE_READ_ID(id, words);
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
