/* Memory of the malloc's caches, without a preloaded malloc.
 *
 * Made from src/alloc.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_ALLOC_H
#define CORELOCAL_ALLOC_H

#include "corelocal/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates size bytes at a multiple of align, a power of two, from caches that belong to cores: some nanoseconds.
 *
 * Returns null if there is no memory, or align is no power of two. The memory is not that of malloc and free: give it back
 * by corelocal_deallocate, by any thread. docs/malloc.md says how it works; its variable CORELOCAL_MALLOC holds here, too.
 * Where the malloc is preloaded this is another one beside it.
 *
 * May be called by any thread, in signal handlers, before main, at thread exit and in children of fork. */
void *corelocal_allocate(size_t size,
                         size_t align);

/* Frees what corelocal_allocate returned for this size and align. Nothing happens for null. */
void corelocal_deallocate(void *at, size_t size, size_t align);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_ALLOC_H */
