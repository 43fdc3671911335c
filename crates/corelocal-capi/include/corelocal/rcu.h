/* Data that is read all the time and replaced now and then.
 *
 * Made from src/rcu.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_RCU_H
#define CORELOCAL_RCU_H

#include "corelocal/base.h"

/* A reader that is not tied to nesting. See corelocal_rcu_begin. */
typedef struct corelocal_rcu_reader {
    size_t opaque[3];
} corelocal_rcu_reader;

/* A point in time at which readers may have been there. See corelocal_rcu_start_poll. */
typedef struct corelocal_rcu_poll {
    size_t opaque[3];
} corelocal_rcu_poll;

#ifdef __cplusplus
extern "C" {
#endif

/* Begins to read: what is loaded from now on is not freed before the reader ends. Readers nest. A few nanoseconds.
 *
 * May be called by any thread, without a registration, in signal handlers that end what they begin, and in children of
 * fork. Not for coroutines that go on in another thread. Kernels: restartable sequences and membarrier(2); without them
 * readers cost atomic operations and a fence. */
void corelocal_rcu_read_lock(void);

/* Ends what corelocal_rcu_read_lock began. */
void corelocal_rcu_read_unlock(void);

/* Returns 1 if the calling thread reads, else 0. */
int corelocal_rcu_read_ongoing(void);

/* Does what corelocal_rcu_read_lock does, in memory of the caller's: faster, as it needs no thread-local data, and readers
 * may end in any order, by the thread that began them. */
void corelocal_rcu_begin(struct corelocal_rcu_reader *reader);

/* Ends what corelocal_rcu_begin began. */
void corelocal_rcu_end(struct corelocal_rcu_reader *reader);

/* Waits until all readers that have begun have ended, at most for so many nanoseconds; a negative number is no limit. What
 * no new reader can find may be freed then.
 *
 * Returns 0. -ETIMEDOUT: readers are still there. -EDEADLK: the calling thread reads by
 * corelocal_rcu_read_lock, or is in a function of corelocal_rcu_call; for a reader of its own by corelocal_rcu_begin it would
 * wait for ever. Or the error of a membarrier(2) that is refused since. After an error nothing may be freed. Not for
 * signal handlers. */
int corelocal_rcu_synchronize(int64_t nanoseconds);

/* Calls function with argument once all readers that have begun have ended, on a thread of the library's. `bytes`: what
 * that frees; from 1 MiB on the wait begins at once, and from 64 MiB on the caller waits.
 *
 * A few nanoseconds and a small allocation. In a process of one thread that does not read, the function is called at once.
 * Functions run in no particular order. Those that have not run when the process ends do not run: call
 * corelocal_rcu_barrier before. Not for signal handlers. */
void corelocal_rcu_call(void (*function)(void *argument),
                        void *argument,
                        size_t bytes);

/* Waits until all functions of corelocal_rcu_call before this call have run. Returns 0, or as corelocal_rcu_synchronize. */
int corelocal_rcu_barrier(void);

/* Remembers now, for corelocal_rcu_poll_done. Does not wait. */
void corelocal_rcu_start_poll(struct corelocal_rcu_poll *poll);

/* Returns 1 if all readers that had begun at corelocal_rcu_start_poll have ended, else 0, or an error as
 * corelocal_rcu_synchronize. Does not wait; takes steps towards the end. One thread at a time may ask. */
int corelocal_rcu_poll_done(const struct corelocal_rcu_poll *poll);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_RCU_H */
