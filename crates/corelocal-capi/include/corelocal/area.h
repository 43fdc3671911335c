/* Words for each core that are allocated one set after the other.
 *
 * Made from src/area.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_AREA_H
#define CORELOCAL_AREA_H

#include "corelocal/base.h"

/* The most words of a cell: 4 KiB on each core. */
#define CORELOCAL_CELL_MAX 512

/* An allocator of cells: some words of 64 bits for each core, all 0 at first. For sets that come and go by the thousand,
 * such as one for each tenant or connection.
 *
 * Make it by corelocal_area_create, in memory that stays in its place. A cell of n words takes 8 n bytes rounded up to a
 * power of two on each core that changed it.
 *
 * create, destroy and trim are not for signal handlers. All others may be called by any thread, in signal handlers, during
 * thread exit and in children of fork, which have their own copy. They do not block. Kernels: as for corelocal_counter. */
typedef struct corelocal_area {
    /* The Rust object. */
    const void *area;
    /* The number of words of a cell. */
    size_t words;
    /* How many there is room for, as a base-2 logarithm. */
    size_t shift;
} corelocal_area;

/* A cell of an area. It is the program's until it is put back, and must not be copied. */
typedef struct corelocal_cell {
    uint64_t opaque[3];
    const struct corelocal_area *area;
} corelocal_cell;

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an area whose cells have this many words, from 1 to CORELOCAL_CELL_MAX, and in which so many cells are in use at a
 * time; 0: any number. Returns 0, -EINVAL for other words, or -ENOMEM. */
int corelocal_area_create(struct corelocal_area *area,
                          size_t words,
                          uint64_t limit);

/* Ends an area that was made, or is zeros, and unmaps its memory. All of its cells were put back. */
void corelocal_area_destroy(struct corelocal_area *area);

/* Gives the pages back of cores that this process no longer uses, where all words are 0. Returns the bytes. Linear in the
 * cores and pages in use. */
size_t corelocal_area_trim(struct corelocal_area *area);

/* Takes a cell, whose words are 0 on every core. Returns 0, -ENOSPC if the limit is reached, or -ENOMEM. Lock-free; at
 * worst linear in the cells. */
int corelocal_area_take(struct corelocal_area *area,
                        struct corelocal_cell *cell);

/* Puts a cell back. No other thread may use it meanwhile. Linear in the cores in use. */
void corelocal_cell_put(struct corelocal_cell *cell);

/* Adds n, wrapping, to this core's word. Returns 0, or -ERANGE if there is no such word. Constant time.
 * corelocal/inline.h has it inline. */
int corelocal_cell_add(struct corelocal_cell *cell, size_t index, uint64_t n);

/* Stores n in this core's word and returns the old value; 0 if there is no such word. */
uint64_t corelocal_cell_exchange(struct corelocal_cell *cell, size_t index, uint64_t n);

/* Stores n in this core's word if that is as expected. Returns 1, 0 if it is not, or -ERANGE. */
int corelocal_cell_store_if_equal(struct corelocal_cell *cell, size_t index, uint64_t expected, uint64_t n);

/* Returns this core's word: a hint. 0 if there is no such word. */
uint64_t corelocal_cell_load(const struct corelocal_cell *cell, size_t index);

/* Returns the sum of a word over all cores, wrapping; 0 if there is no such word. Linear in the cores in use. */
uint64_t corelocal_cell_sum(const struct corelocal_cell *cell, size_t index);

/* Returns the address of this core's words, for critical sections of the program's own: a hint, as the thread may have
 * another core by now. Null if there is no memory. What is stored there outside of a critical section is lost or destroys
 * what others store. */
uint64_t *corelocal_cell_here(struct corelocal_cell *cell);

/* Calls visit with the words of each core that may have changed them, and with context. A word that changes meanwhile is
 * seen before or after the change. Linear in the words times the cores in use. */
void corelocal_cell_walk(const struct corelocal_cell *cell,
                         void (*visit)(const uint64_t *words, size_t n, void *context),
                         void *context);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_AREA_H */
