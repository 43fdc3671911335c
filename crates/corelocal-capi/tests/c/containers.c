/* Pools and queues of pointers. */
#define _GNU_SOURCE
#include <corelocal/pool.h>
#include <corelocal/queue.h>
#include <sched.h>

#include "check.h"

enum { ITEMS = 20000 };

static corelocal_pool pool = CORELOCAL_POOL_INIT;
static corelocal_queue queue = CORELOCAL_QUEUE_INIT;
static char items[THREADS][ITEMS];

static void counts(void *item, void *context)
{
    CHECK(item >= (void *)items && item < (void *)(items + THREADS));
    ++*(int *)context;
}

/* Each item is in one place: marked while it is out. */
static void *pools(void *number)
{
    long own = (long)number;
    for (int i = 0; i < ITEMS; i++) {
        char *item = (char *)corelocal_pool_pop(&pool);
        if (!item)
            item = &items[own][i];
        CHECK(!__atomic_exchange_n(item, 1, __ATOMIC_RELAXED));
        __atomic_store_n(item, 0, __ATOMIC_RELAXED);
        int pushed = corelocal_pool_push(&pool, item);
        CHECK(pushed == 0 || pushed == -ENOSPC);
    }
    return NULL;
}

static void *produces(void *number)
{
    long own = (long)number;
    for (int i = 0; i < ITEMS; i++)
        CHECK(corelocal_queue_push(&queue, &items[own][i]) == 0);
    return NULL;
}

static void *consumes(void *count)
{
    char *item;
    while ((item = (char *)corelocal_queue_pop(&queue, -1)) != (char *)&queue) {
        CHECK(*item == 0);
        *item = 1;
        ++*(long *)count;
    }
    return NULL;
}

/* Pops on each cpu in turn: a pool keeps what was pushed on the core where the thread was. */
static void *pop_anywhere(void)
{
    cpu_set_t all, one;
    void *found = corelocal_pool_pop(&pool);
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int cpu = 0; !found && cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
        found = corelocal_pool_pop(&pool);
    }
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    return found;
}

static void after_fork(void)
{
    CHECK(corelocal_queue_try_pop(&queue) == &items[0][7]);
    CHECK(pop_anywhere() == &items[0][8]);
}

int main(void)
{
    CHECK(corelocal_pool_pop(&pool) == NULL && corelocal_queue_try_pop(&queue) == NULL);
    CHECK(corelocal_pool_push(&pool, NULL) == -EINVAL && corelocal_queue_push(&queue, NULL) == -EINVAL);
    CHECK(corelocal_queue_is_empty(&queue) == 1);
    CHECK(corelocal_queue_push(&queue, &items[0][7]) == 0 && corelocal_pool_push(&pool, &items[0][8]) == 0);
    CHECK(corelocal_queue_is_empty(&queue) == 0);
    in_child(after_fork);
    after_fork();
    CHECK(corelocal_queue_pop(&queue, 2000000) == NULL && corelocal_queue_pop(&queue, 0) == NULL);

    on_threads(pools);
    int count = 0, none = 0;
    corelocal_pool_destroy(&pool, counts, &count);
    corelocal_pool_destroy(&pool, counts, &none);
    CHECK(count > 0 && none == 0);
    CHECK(corelocal_pool_push(&pool, items) == 0);
    corelocal_pool_destroy(&pool, NULL, NULL);

    pthread_t consumer;
    long taken = 0;
    CHECK(pthread_create(&consumer, NULL, consumes, &taken) == 0);
    on_threads(produces);
    while (!corelocal_queue_is_empty(&queue))
        nap(1);
    CHECK(corelocal_queue_push(&queue, &queue) == 0);
    CHECK(pthread_join(consumer, NULL) == 0);
    CHECK(taken == (long)THREADS * ITEMS);
    corelocal_queue_destroy(&queue);
    CHECK(corelocal_queue_push(&queue, items) == 0 && corelocal_queue_try_pop(&queue) == items);
    corelocal_queue_destroy(&queue);
    return 0;
}
