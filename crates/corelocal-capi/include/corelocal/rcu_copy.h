/* Values of up to 64 bytes that are read all the time, as one, and replaced now and then.
 *
 * Made from src/rcu_copy.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_RCU_COPY_H
#define CORELOCAL_RCU_COPY_H

#include "corelocal/base.h"

/* All members are 0: static and cleared memory needs no initialiser. */
#define CORELOCAL_RCU_COPY_INIT {{0}}

/* The most bytes of a value. */
#define CORELOCAL_RCU_COPY_MAX 64

/* A value of up to 64 bytes of which readers get a copy: all of it is of one version. Zeros at first. Limits, addresses,
 * settings.
 *
 * Declare it as CORELOCAL_RCU_COPY_INIT or as zeros. It takes 72 bytes, and 128 more after the first store.
 *
 * load may be called by any thread, in signal handlers, before main, at thread exit and in children of fork. It is
 * wait-free, and makes no store that another thread sees. A load sees what happened before the store of its version. The
 * others are not for signal handlers.
 *
 * Kernels: 5.10 and later for the fast path, as it takes membarrier(2) with the RSEQ command; else loads are under a guard. */
typedef struct corelocal_rcu_copy {
    uint64_t opaque[9];
} corelocal_rcu_copy;

#ifdef __cplusplus
extern "C" {
#endif

/* Copies the first n bytes of the current version to to; n counts as at most 64. corelocal/inline.h has it inline. */
void corelocal_rcu_copy_load(const struct corelocal_rcu_copy *copy,
                             void *to,
                             size_t n);

/* Makes n bytes, at most 64, the current version; the others are 0. Takes microseconds: two calls of membarrier(2) or more.
 * Of several threads that store at once each stores a whole version. */
void corelocal_rcu_copy_store(struct corelocal_rcu_copy *copy,
                              const void *from,
                              size_t n);

/* Gives its memory back. No other thread may use it meanwhile. Afterwards it is a new one, of zeros. */
void corelocal_rcu_copy_destroy(struct corelocal_rcu_copy *copy);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_RCU_COPY_H */
