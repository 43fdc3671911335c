/* Pointers for reuse on this core.
 *
 * Made from src/pool.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_POOL_H
#define CORELOCAL_POOL_H

#include "corelocal/base.h"

/* All members are 0: static and cleared memory needs no initialiser. */
#define CORELOCAL_POOL_INIT {{0}}

/* The most pointers that a core keeps. */
#define CORELOCAL_POOL_CAPACITY 64

/* Pointers that are kept for the next thread on this core that needs one: free objects, buffers, connections. Each core
 * has a stack of up to CORELOCAL_POOL_CAPACITY.
 *
 * Declare it as CORELOCAL_POOL_INIT or as zeros. It takes 16 bytes, and 1 KiB on each core that used it.
 *
 * push and pop may be called by any thread, in signal handlers, before main, during thread exit and in children of fork,
 * which have copies of all pointers. They do not block or allocate. Not in children of vfork: a pointer may be lost or
 * come out twice. What is done before a push happens before what follows the pop of that pointer.
 *
 * Kernels: as for corelocal_counter. */
typedef struct corelocal_pool {
    uint64_t opaque[2];
} corelocal_pool;

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps a pointer, not null. Returns 0, -EINVAL for null, -ENOSPC if this core's stack is full or there is no memory
 * for one. Constant time. */
int corelocal_pool_push(struct corelocal_pool *pool,
                        void *item);

/* Returns the pointer that this core kept last, or null if it keeps none. Constant time. */
void *corelocal_pool_pop(struct corelocal_pool *pool);

/* Ends the pool, which is a new one afterwards, and calls visit with each pointer that it kept, on whichever core, and with
 * context. visit may be null: then the pointers are forgotten. No other thread may use the pool meanwhile, nor may visit. */
void corelocal_pool_destroy(struct corelocal_pool *pool,
                            void (*visit)(void *item, void *context),
                            void *context);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_POOL_H */
