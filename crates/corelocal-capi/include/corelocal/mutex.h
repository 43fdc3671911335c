/* Locks: some words that threads change themselves; the kernel is called only to sleep and to wake.
 *
 * Made from src/mutex.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_MUTEX_H
#define CORELOCAL_MUTEX_H

#include "corelocal/base.h"

/* All members are 0: static and cleared memory needs no initialiser. */
#define CORELOCAL_MUTEX_INIT {{0}}
#define CORELOCAL_CONDITION_INIT {{0}}
#define CORELOCAL_RWLOCK_INIT {{0}}
#define CORELOCAL_ROBUST_MUTEX_INIT {{0}}

/* A mutex for the threads of one process.
 *
 * Declare it as CORELOCAL_MUTEX_INIT or as zeros. It takes 8 bytes. It is fair enough that no thread starves, and spins
 * before it sleeps where the owner is running. It is not recursive, and must not be moved or freed while it is used.
 *
 * lock, try_lock, lock_for and unlock may be called by any thread, not in signal handlers. The thread that locks unlocks.
 * Locking acquires what unlocking released.
 *
 * In a child of fork a lock that another thread of the parent owned has an owner that is gone: lock takes it over and
 * returns -EOWNERDEAD, the others count it as owned. Kernels: all. Source: futex(2). */
typedef struct corelocal_mutex {
    uint32_t opaque[2];
} corelocal_mutex;

/* A condition variable for the threads of one process.
 *
 * Declare it as CORELOCAL_CONDITION_INIT or as zeros. It takes 12 bytes. Use it with one mutex at a time. Its functions are
 * not for signal handlers. */
typedef struct corelocal_condition {
    uint32_t opaque[3];
} corelocal_condition;

/* A read-write lock for the threads of one process: many readers, or one writer.
 *
 * Declare it as CORELOCAL_RWLOCK_INIT or as zeros. It takes 8 bytes. A waiting writer comes before new readers, so a thread
 * that reads must not read again. At most 2^20 readers; a further one waits. Where its functions may be called is as for
 * corelocal_mutex.
 *
 * In a child of fork a lock that other threads of the parent held stays held: to lock it returns -ESRCH. See
 * corelocal_rwlock_forget. */
typedef struct CORELOCAL_ALIGNED(8) corelocal_rwlock {
    uint32_t opaque[2];
} corelocal_rwlock;

/* A mutex for the threads of all processes that map it, which tells the next owner if one died with it.
 *
 * Declare it as CORELOCAL_ROBUST_MUTEX_INIT or as zeros, in memory that stays mapped while a thread owns it. It takes 48
 * bytes. A thread can hold 2048 of them. All processes are in one pid namespace, with one kind of libc. Not for signal
 * handlers. The copy of a lock in a child of fork is the parent's.
 *
 * Kernels: all. Source: set_robust_list(2), pthread_mutexattr_setrobust(3). */
typedef struct corelocal_robust_mutex {
    uint64_t opaque[6];
} corelocal_robust_mutex;

#ifdef __cplusplus
extern "C" {
#endif

/* Locks, and sleeps until that is possible. Returns 0; or in a child of fork -EOWNERDEAD with the lock, if its owner is
 * gone: what it protects may be half changed. For ever if the calling thread owns it already. */
int corelocal_mutex_lock(struct corelocal_mutex *mutex);

/* Locks if the mutex is free. Returns 0, or -EBUSY. */
int corelocal_mutex_try_lock(struct corelocal_mutex *mutex);

/* Locks, if that is possible within so many nanoseconds; a negative number is no limit. Returns 0, or -ETIMEDOUT. */
int corelocal_mutex_lock_for(struct corelocal_mutex *mutex,
                             int64_t nanoseconds);

/* Unlocks what the calling thread has locked. */
void corelocal_mutex_unlock(struct corelocal_mutex *mutex);

/* Unlocks the mutex, sleeps until the condition is signalled or for so many nanoseconds, and locks the mutex again. A
 * negative number is no limit. It may return without either, so look whether what you wait for is there.
 *
 * Returns 0, or -ETIMEDOUT once the time has passed. The mutex is locked in both cases. */
int corelocal_condition_wait(struct corelocal_condition *condition,
                             struct corelocal_mutex *mutex,
                             int64_t nanoseconds);

/* Wakes one waiting thread, if there is one. */
void corelocal_condition_signal(struct corelocal_condition *condition);

/* Wakes all waiting threads. */
void corelocal_condition_broadcast(struct corelocal_condition *condition);

/* Locks for reading, and sleeps until that is possible, at most for so many nanoseconds; a negative number is no limit, and
 * 0 does not sleep.
 *
 * Returns 0, -EBUSY for 0 nanoseconds, -ETIMEDOUT, or -ESRCH. */
int corelocal_rwlock_read(struct corelocal_rwlock *lock,
                          int64_t nanoseconds);

/* Does what corelocal_rwlock_read does, for writing. */
int corelocal_rwlock_write(struct corelocal_rwlock *lock, int64_t nanoseconds);

/* Ends corelocal_rwlock_read. */
void corelocal_rwlock_read_unlock(struct corelocal_rwlock *lock);

/* Ends corelocal_rwlock_write. */
void corelocal_rwlock_write_unlock(struct corelocal_rwlock *lock);

/* In a child of fork: frees the lock of the readers, or the writer, that held it at the fork. What it protects may be half
 * changed if it was a writer. No thread of the child may hold it. */
void corelocal_rwlock_forget(struct corelocal_rwlock *lock);

/* Locks, and sleeps until that is possible, at most for so many nanoseconds; a negative number is no limit, and 0 does not
 * sleep.
 *
 * Returns 0. -EOWNERDEAD with the lock: the last owner died with it; make the data consistent, and call
 * corelocal_robust_mutex_consistent before unlock. Without the lock: -EBUSY, -ETIMEDOUT, -EDEADLK if the calling thread
 * owns it, -ENOTRECOVERABLE after an unlock of inconsistent data, -EAGAIN for more than 2048 locks, or the error of a
 * refused set_robust_list(2). */
int corelocal_robust_mutex_lock(struct corelocal_robust_mutex *mutex,
                                int64_t nanoseconds);

/* Says that the data is consistent again, after -EOWNERDEAD. Returns 0, or -EINVAL if it was not inconsistent. */
int corelocal_robust_mutex_consistent(struct corelocal_robust_mutex *mutex);

/* Unlocks what the calling thread has locked. If the data is not consistent the mutex is unusable from now on. */
void corelocal_robust_mutex_unlock(struct corelocal_robust_mutex *mutex);

/* Ends a robust mutex that no thread owns; its memory may be unmapped then. */
void corelocal_robust_mutex_destroy(struct corelocal_robust_mutex *mutex);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_MUTEX_H */
