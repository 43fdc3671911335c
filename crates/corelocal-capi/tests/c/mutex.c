/* Locks: threads, processes, owners that die or that a fork leaves behind. */
#include <corelocal/mutex.h>

#include "check.h"

enum { TURNS = 20000 };

static corelocal_mutex mutex = CORELOCAL_MUTEX_INIT;
static corelocal_condition condition = CORELOCAL_CONDITION_INIT;
static corelocal_rwlock rwlock = CORELOCAL_RWLOCK_INIT;
static long sum, turn;

static void *turns(void *number)
{
    (void)number;
    for (int i = 0; i < TURNS; i++) {
        CHECK(corelocal_mutex_lock(&mutex) == 0);
        sum++;
        corelocal_mutex_unlock(&mutex);
        CHECK(corelocal_rwlock_write(&rwlock, -1) == 0);
        turn++;
        corelocal_rwlock_write_unlock(&rwlock);
        CHECK(corelocal_rwlock_read(&rwlock, -1) == 0);
        CHECK(turn > 0);
        corelocal_rwlock_read_unlock(&rwlock);
    }
    return NULL;
}

static void *waits(void *number)
{
    CHECK(corelocal_mutex_lock(&mutex) == 0);
    while (turn != (long)number)
        CHECK(corelocal_condition_wait(&condition, &mutex, -1) == 0);
    turn++;
    corelocal_condition_broadcast(&condition);
    corelocal_mutex_unlock(&mutex);
    return NULL;
}

static int is_held;
static void *holds(void *number)
{
    (void)number;
    CHECK(corelocal_mutex_lock(&mutex) == 0 && corelocal_rwlock_write(&rwlock, -1) == 0);
    __atomic_store_n(&is_held, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&is_held, __ATOMIC_ACQUIRE))
        nap(1);
    corelocal_rwlock_write_unlock(&rwlock);
    corelocal_mutex_unlock(&mutex);
    return NULL;
}

static void owners_are_gone(void)
{
    CHECK(corelocal_mutex_try_lock(&mutex) == -EBUSY);
    CHECK(corelocal_mutex_lock(&mutex) == -EOWNERDEAD);
    corelocal_mutex_unlock(&mutex);
    CHECK(corelocal_mutex_lock(&mutex) == 0);
    corelocal_mutex_unlock(&mutex);
    CHECK(corelocal_rwlock_read(&rwlock, -1) == -ESRCH && corelocal_rwlock_write(&rwlock, -1) == -ESRCH);
    corelocal_rwlock_forget(&rwlock);
    CHECK(corelocal_rwlock_write(&rwlock, 0) == 0);
    corelocal_rwlock_write_unlock(&rwlock);
}

static struct shared {
    corelocal_robust_mutex mutex;
    long sum;
} *shared;

static void dies(void)
{
    CHECK(corelocal_robust_mutex_lock(&shared->mutex, -1) == 0);
    shared->sum++;
}

static void adds(void)
{
    for (int i = 0; i < 10000; i++) {
        CHECK(corelocal_robust_mutex_lock(&shared->mutex, -1) == 0);
        shared->sum++;
        corelocal_robust_mutex_unlock(&shared->mutex);
    }
}

static void robust(void)
{
    void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    shared = (struct shared *)memory;
    corelocal_robust_mutex *own = &shared->mutex;
    pid_t child = fork();
    CHECK(child >= 0);
    adds();
    if (child == 0)
        _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && shared->sum == 20000);
    CHECK(corelocal_robust_mutex_consistent(own) == -EINVAL);

    in_child(dies);
    CHECK(corelocal_robust_mutex_lock(own, 0) == -EOWNERDEAD);
    CHECK(shared->sum == 20001 && corelocal_robust_mutex_consistent(own) == 0);
    CHECK(corelocal_robust_mutex_consistent(own) == -EINVAL);
    CHECK(corelocal_robust_mutex_lock(own, 0) == -EBUSY && corelocal_robust_mutex_lock(own, -1) == -EDEADLK);
    corelocal_robust_mutex_unlock(own);
    CHECK(corelocal_robust_mutex_lock(own, 1000000) == 0);
    corelocal_robust_mutex_unlock(own);
    /* What is not made consistent is lost. */
    in_child(dies);
    CHECK(corelocal_robust_mutex_lock(own, -1) == -EOWNERDEAD);
    corelocal_robust_mutex_unlock(own);
    CHECK(corelocal_robust_mutex_lock(own, -1) == -ENOTRECOVERABLE);
    corelocal_robust_mutex_destroy(own);
    CHECK(corelocal_robust_mutex_lock(own, -1) == 0);
    corelocal_robust_mutex_unlock(own);
    munmap(memory, sizeof *shared);
}

int main(void)
{
    CHECK(corelocal_mutex_try_lock(&mutex) == 0 && corelocal_mutex_try_lock(&mutex) == -EBUSY);
    CHECK(corelocal_mutex_lock_for(&mutex, 1000000) == -ETIMEDOUT);
    CHECK(corelocal_condition_wait(&condition, &mutex, 1000000) == -ETIMEDOUT);
    corelocal_condition_signal(&condition);
    corelocal_mutex_unlock(&mutex);
    CHECK(corelocal_mutex_lock_for(&mutex, -1) == 0);
    corelocal_mutex_unlock(&mutex);
    CHECK(corelocal_rwlock_read(&rwlock, 0) == 0 && corelocal_rwlock_read(&rwlock, 0) == 0);
    CHECK(corelocal_rwlock_write(&rwlock, 0) == -EBUSY && corelocal_rwlock_write(&rwlock, 1000000) == -ETIMEDOUT);
    corelocal_rwlock_read_unlock(&rwlock);
    corelocal_rwlock_read_unlock(&rwlock);

    /* As many readers as there can be, and one more. */
    long readers = 0;
    int last;
    while ((last = corelocal_rwlock_read(&rwlock, 1000000)) == 0)
        readers++;
    CHECK(last == -ETIMEDOUT && readers >= (1 << 20) - 1 && corelocal_rwlock_read(&rwlock, 0) == -EBUSY);
    for (; readers > 0; readers--)
        corelocal_rwlock_read_unlock(&rwlock);
    CHECK(corelocal_rwlock_write(&rwlock, 0) == 0);
    corelocal_rwlock_write_unlock(&rwlock);

    on_threads(turns);
    CHECK(sum == (long)THREADS * TURNS && turn == sum);
    turn = 0;
    on_threads(waits);
    CHECK(turn == THREADS);

    pthread_t holder;
    CHECK(pthread_create(&holder, NULL, holds, NULL) == 0);
    while (!__atomic_load_n(&is_held, __ATOMIC_ACQUIRE))
        nap(1);
    in_child(owners_are_gone);
    __atomic_store_n(&is_held, 0, __ATOMIC_RELEASE);
    CHECK(pthread_join(holder, NULL) == 0);
    robust();
    return 0;
}
