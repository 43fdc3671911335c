/* The numbers that the kernel publishes: cpu, concurrency id and node; and the slots that index per-core data.
 *
 * Made from src/ids.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_IDS_H
#define CORELOCAL_IDS_H

#include "corelocal/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the cpu that the calling thread runs on: one load. A hint, as the thread may have moved since.
 *
 * All functions of this header may be called by any thread, in signal handlers, before main, and in children of fork.
 *
 * Kernels: 4.18 and later for the load, others by getcpu(2). Source: rseq(2), cpu_id. */
uint32_t corelocal_cpu(void);

/* Returns the concurrency id of the calling thread: a number that no other running thread of the process has, close to 0
 * if few threads run or few cpus may be used. A hint, as the thread may have got another since. corelocal/inline.h has
 * it inline.
 *
 * Kernels: 6.3 and later; before, and in threads without restartable sequences, the cpu number. Source: rseq(2), mm_cid. */
uint32_t corelocal_cid(void);

/* Returns the NUMA node of the cpu that the calling thread runs on. A hint.
 *
 * Kernels: 6.3 and later by one load, others by getcpu(2). */
uint32_t corelocal_node(void);

/* Returns the calling thread's slot: a number below corelocal_slot_capacity that indexes arrays with an element for each
 * core. A hint: use it to spread work, not to own data. A few nanoseconds; microseconds the first time. */
uint32_t corelocal_slot(void);

/* Returns the upper bound of slots and of concurrency ids, at least 1: the highest cpu number that the machine may have,
 * plus one. It never changes. */
uint32_t corelocal_slot_capacity(void);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_IDS_H */
