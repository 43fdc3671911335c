/* Pointers for another thread.
 *
 * Made from src/queue.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_QUEUE_H
#define CORELOCAL_QUEUE_H

#include "corelocal/base.h"

/* All members are 0: static and cleared memory needs no initialiser. */
#define CORELOCAL_QUEUE_INIT {{0}}

/* A queue of pointers with many producers, each on its core, and one or more consumers that may sleep: first in, first
 * out for each core, bounded by memory only.
 *
 * Pointers that one thread pushed come out in order as long as it stays on its core. There is no order between cores.
 *
 * Declare it as CORELOCAL_QUEUE_INIT or as zeros. It takes 128 bytes, and on each core that used it 128 bytes and a segment
 * of 4 KiB. Further segments come and go with their pointers.
 *
 * push and try_pop may be called by any thread, in signal handlers, before main, during thread exit and in children of
 * fork, which have copies of all pointers. They do not block, and use no heap. Not in children of vfork. pop sleeps, and
 * is not for signal handlers. What is done before a push happens before what follows the pop of that pointer.
 *
 * Kernels: as for corelocal_counter. */
typedef struct CORELOCAL_ALIGNED(64) corelocal_queue {
    uint64_t opaque[16];
} corelocal_queue;

#ifdef __cplusplus
extern "C" {
#endif

/* Appends a pointer, not null, and wakes a consumer if one sleeps. Returns 0, -EINVAL for null, or -ENOMEM. Constant time;
 * the first push of a process may take milliseconds. */
int corelocal_queue_push(struct corelocal_queue *queue,
                         void *item);

/* Returns the oldest pointer of some core, or null if there seems to be none. Constant time while the core that gave the
 * last one has more, else linear in the cores in use. */
void *corelocal_queue_try_pop(struct corelocal_queue *queue);

/* Returns a pointer, and sleeps until there is one, at most for so many nanoseconds. Null once they have passed. A negative
 * number: for as long as it takes. */
void *corelocal_queue_pop(struct corelocal_queue *queue,
                          int64_t nanoseconds);

/* Returns 1 if the queue was empty at some moment of the call, else 0. Linear in the cores in use. */
int corelocal_queue_is_empty(const struct corelocal_queue *queue);

/* Ends the queue, which is a new one afterwards. Pointers that are still in it are forgotten: pop them before. No other
 * thread may use it meanwhile. */
void corelocal_queue_destroy(struct corelocal_queue *queue);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_QUEUE_H */
