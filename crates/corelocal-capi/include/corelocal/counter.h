/* Counters, and sets of counters that lie side by side.
 *
 * Made from src/counter.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_COUNTER_H
#define CORELOCAL_COUNTER_H

#include "corelocal/base.h"

/* All members are 0: static and cleared memory needs no initialiser. */
#define CORELOCAL_COUNTER_INIT {{0}}

/* The most counters of a set: 1 MiB on each core. */
#define CORELOCAL_COUNTER_SET_MAX 131072

/* A counter that threads on different cores add to without contention: a signed number of 64 bits that wraps.
 *
 * An addition costs about as much as an increment of a plain variable, whatever the number of threads. Reading costs a
 * cache miss for each core that has added.
 *
 * Declare it as CORELOCAL_COUNTER_INIT or as zeros, in static or any other memory. It takes 24 bytes, and 8 bytes on
 * each core that used it.
 *
 * All functions may be called by any thread, in signal handlers, before main, during thread exit and in children of
 * fork, which have their own copy. They do not block or allocate. In a child of vfork an addition may be lost. Their
 * memory order is relaxed: a reader sees the additions that happen before the read.
 *
 * Kernels: restartable sequences since Linux 4.18; without them additions are atomic, on lines that few threads share. */
typedef struct corelocal_counter {
    uint64_t opaque[3];
} corelocal_counter;

/* Many counters that lie next to each other on each core, eight in a cache line. What touches several of them touches
 * one or two lines.
 *
 * Make it by corelocal_counter_set_create. A set of n counters takes 8 n bytes rounded up to a power of two, at least
 * 64, on each core that used it, and once more for the process. Only pages that were touched are resident.
 *
 * Where its functions may be called is as for corelocal_counter, but for create and destroy, which use malloc and free. */
typedef struct corelocal_counter_set {
    /* What inline.h finds this core's counters by. Null: it makes calls. */
    const uint8_t *base;
    const void *counters;
    /* The number of counters. */
    size_t len;
    /* How many there is room for, as a base-2 logarithm. */
    size_t shift;
} corelocal_counter_set;

#ifdef __cplusplus
extern "C" {
#endif

/* Adds n, wrapping. Constant time. corelocal/inline.h has it inline. */
void corelocal_counter_add(struct corelocal_counter *counter, int64_t n);

/* Returns the value. Each addition made meanwhile is included or not. Linear in the cores in use. */
int64_t corelocal_counter_get(const struct corelocal_counter *counter);

/* Takes the value and leaves 0. Of several threads that take at once, each addition goes to exactly one. Linear in the
 * cores in use. */
int64_t corelocal_counter_take(struct corelocal_counter *counter);

/* Gives the counter's memory on each core back. No other thread may use it meanwhile. Afterwards it is a new one, of
 * value 0. Not needed for counters that live as long as the program. */
void corelocal_counter_destroy(struct corelocal_counter *counter);

/* Makes n counters of value 0, between 1 and CORELOCAL_COUNTER_SET_MAX.
 *
 * Returns 0, -EINVAL for another n, or -ENOMEM. Not for signal handlers. */
int corelocal_counter_set_create(struct corelocal_counter_set *set, size_t n);

/* Ends a set that was made by corelocal_counter_set_create, or is zeros. No other thread may use it meanwhile. Not for
 * signal handlers. */
void corelocal_counter_set_destroy(struct corelocal_counter_set *set);

/* Adds n, wrapping, to the counter at index. Returns 0, or -ERANGE if there is no such counter. Constant time.
 * corelocal/inline.h has it inline. */
int corelocal_counter_set_add(struct corelocal_counter_set *set, size_t index, int64_t n);

/* Returns the value of the counter at index, as corelocal_counter_get does; 0 if there is no such counter. */
int64_t corelocal_counter_set_get(const struct corelocal_counter_set *set, size_t index);

/* Takes the value of the counter at index, as corelocal_counter_take does; 0 if there is no such counter. */
int64_t corelocal_counter_set_take(struct corelocal_counter_set *set, size_t index);

/* Stores the values of the first n counters to values, or of all if there are fewer. Returns how many were stored. Each is
 * exact, as corelocal_counter_get has it. Linear in n times the cores in use. */
size_t corelocal_counter_set_get_all(const struct corelocal_counter_set *set,
                                     int64_t *values,
                                     size_t n);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_COUNTER_H */
