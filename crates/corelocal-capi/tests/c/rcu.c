/* Readers, grace periods, deferred calls. */
#include <corelocal/rcu.h>

#include "check.h"

struct version {
    long number, copy;
};

static struct version *current;
static int is_over;
static long freed;

static void frees(void *version)
{
    memset(version, 0xff, sizeof(struct version));
    free(version);
    __atomic_fetch_add(&freed, 1, __ATOMIC_RELAXED);
}

static void looks(void)
{
    struct version *version = __atomic_load_n(&current, __ATOMIC_CONSUME);
    CHECK(version->number == version->copy && version->number >= 0);
}

static void handler(int signal)
{
    (void)signal;
    corelocal_rcu_read_lock();
    looks();
    corelocal_rcu_read_unlock();
}

static void *reads(void *number)
{
    (void)number;
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        corelocal_rcu_read_lock();
        corelocal_rcu_read_lock();
        looks();
        corelocal_rcu_read_unlock();
        CHECK(corelocal_rcu_read_ongoing() == 1);
        looks();
        corelocal_rcu_read_unlock();
        CHECK(corelocal_rcu_read_ongoing() == 0);

        corelocal_rcu_reader first, second;
        corelocal_rcu_begin(&first);
        corelocal_rcu_begin(&second);
        corelocal_rcu_end(&first);
        looks();
        corelocal_rcu_end(&second);
    }
    return NULL;
}

static void after_fork(void)
{
    looks();
    CHECK(corelocal_rcu_synchronize(-1) == 0);
    handler(0);
}

int main(void)
{
    enum { VERSIONS = 1000 };
    current = (struct version *)calloc(1, sizeof *current);
    corelocal_rcu_poll poll;
    corelocal_rcu_read_lock();
    CHECK(corelocal_rcu_synchronize(-1) == -EDEADLK);
    corelocal_rcu_start_poll(&poll);
    CHECK(corelocal_rcu_poll_done(&poll) == 0);
    corelocal_rcu_read_unlock();
    CHECK(corelocal_rcu_poll_done(&poll) == 1);
    CHECK(corelocal_rcu_synchronize(1000000000) == 0);
    /* One too many does no harm. */
    corelocal_rcu_read_unlock();
    CHECK(corelocal_rcu_read_ongoing() == 0);

    signal(SIGUSR1, handler);
    pthread_t readers[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&readers[i], NULL, reads, NULL) == 0);
    for (long i = 1; i <= VERSIONS; i++) {
        struct version *next = (struct version *)malloc(sizeof *next), *old;
        CHECK(next);
        next->number = next->copy = i;
        old = __atomic_exchange_n(&current, next, __ATOMIC_RELEASE);
        if (i % 16 == 0) {
            CHECK(corelocal_rcu_synchronize(-1) == 0);
            frees(old);
        } else {
            corelocal_rcu_call(frees, old, sizeof *old);
        }
        pthread_kill(readers[i % THREADS], SIGUSR1);
        if (i % 250 == 0)
            in_child(after_fork);
    }
    CHECK(corelocal_rcu_barrier() == 0);
    CHECK(__atomic_load_n(&freed, __ATOMIC_RELAXED) == VERSIONS);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(readers[i], NULL) == 0);
    free(current);
    return 0;
}
