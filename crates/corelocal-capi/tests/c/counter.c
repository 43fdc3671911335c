/* Counters and sets of them, by calls and inline. */
#include <corelocal/counter.h>
#include <corelocal/inline.h>

#include "check.h"

enum { ADDS = 200000 };

static corelocal_counter hits = CORELOCAL_COUNTER_INIT;
static corelocal_counter of_handlers = CORELOCAL_COUNTER_INIT;
static corelocal_counter_set set;

static void *adds(void *number)
{
    long own = (long)number;
    for (int i = 0; i < ADDS; i++) {
        if (i % 2)
            corelocal_counter_add(&hits, 1);
        else
            corelocal_inline_counter_add(&hits, 1);
        CHECK(corelocal_inline_counter_set_add(&set, (size_t)own, own) == 0);
        CHECK(corelocal_counter_set_add(&set, 499, -1) == 0);
    }
    return NULL;
}

static void handler(int signal)
{
    (void)signal;
    corelocal_inline_counter_add(&of_handlers, 1);
    corelocal_inline_counter_add(&hits, 1);
}

static int handled;
static void *disturbs(void *target)
{
    for (int i = 0; i < 2000; i++) {
        CHECK(pthread_kill(*(pthread_t *)target, SIGUSR1) == 0);
        handled++;
        sched_yield();
    }
    return NULL;
}

static void after_fork(void)
{
    CHECK(corelocal_counter_get(&hits) == 7);
    corelocal_inline_counter_add(&hits, 1);
    CHECK(corelocal_counter_get(&hits) == 8);
}

static void a_counter_in_any_memory(void)
{
    corelocal_counter *some = (corelocal_counter *)calloc(1000, sizeof *some);
    CHECK(some);
    for (int round = 1; round < 4; round++) {
        for (int i = 0; i < 1000; i++) {
            CHECK(corelocal_counter_get(&some[i]) == 0);
            corelocal_inline_counter_add(&some[i], i * (int64_t)round);
            corelocal_inline_counter_add(&some[i], INT64_MIN);
            corelocal_inline_counter_add(&some[i], INT64_MIN);
        }
        for (int i = 0; i < 1000; i++) {
            CHECK(corelocal_counter_get(&some[i]) == i * (int64_t)round);
            corelocal_counter_destroy(&some[i]);
        }
    }
    free(some);
}

static void bounds(void)
{
    corelocal_counter_set other;
    CHECK(corelocal_counter_set_create(&other, 0) == -EINVAL);
    CHECK(corelocal_counter_set_create(&other, CORELOCAL_COUNTER_SET_MAX + 1) == -EINVAL);
    CHECK(corelocal_counter_set_create(&other, SIZE_MAX) == -EINVAL);
    for (size_t n = 1; n <= CORELOCAL_COUNTER_SET_MAX; n = n * 2 + n / 3 + (n == CORELOCAL_COUNTER_SET_MAX)) {
        CHECK(corelocal_counter_set_create(&other, n) == 0);
        CHECK(corelocal_inline_counter_set_add(&other, n - 1, 3) == 0);
        CHECK(corelocal_counter_set_add(&other, n - 1, 4) == 0);
        CHECK(corelocal_inline_counter_set_add(&other, n, 3) == -ERANGE);
        CHECK(corelocal_counter_set_add(&other, SIZE_MAX, 3) == -ERANGE);
        CHECK(corelocal_counter_set_get(&other, n - 1) == 7);
        CHECK(corelocal_counter_set_get(&other, n) == 0 && corelocal_counter_set_take(&other, n) == 0);
        corelocal_counter_set_destroy(&other);
        corelocal_counter_set_destroy(&other);
    }
    CHECK(corelocal_counter_set_create(&other, CORELOCAL_COUNTER_SET_MAX) == 0);
    CHECK(corelocal_inline_counter_set_add(&other, CORELOCAL_COUNTER_SET_MAX - 1, 1) == 0);
    corelocal_counter_set_destroy(&other);
    /* What was never made. */
    corelocal_counter_set none = {0, 0, 0, 0};
    CHECK(corelocal_inline_counter_set_add(&none, 0, 1) == -ERANGE);
    CHECK(corelocal_counter_set_get_all(&none, NULL, 10) == 0);
    corelocal_counter_set_destroy(&none);
}

int main(void)
{
    corelocal_counter_add(&hits, 4);
    corelocal_inline_counter_add(&hits, 3);
    in_child(after_fork);
    CHECK(corelocal_counter_take(&hits) == 7 && corelocal_counter_get(&hits) == 0);

    CHECK(corelocal_counter_set_create(&set, 500) == 0);
    signal(SIGUSR1, handler);
    pthread_t self = pthread_self(), other;
    CHECK(pthread_create(&other, NULL, disturbs, &self) == 0);
    adds((void *)3L);
    CHECK(pthread_join(other, NULL) == 0);
    /* Pending ones run before a system call returns. */
    nap(1);
    int64_t seen = corelocal_counter_get(&of_handlers);
    CHECK(seen > 0 && seen <= handled);
    CHECK(corelocal_counter_take(&hits) == ADDS + seen);

    on_threads(adds);
    CHECK(corelocal_counter_get(&hits) == (int64_t)THREADS * ADDS);
    int64_t values[600];
    memset(values, 0x55, sizeof values);
    CHECK(corelocal_counter_set_get_all(&set, values, 600) == 500);
    for (int i = 0; i < 500; i++) {
        int64_t expected = i < THREADS ? (int64_t)i * ADDS : 0;
        if (i == 3)
            expected *= 2;
        if (i == 499)
            expected = -(int64_t)ADDS * (THREADS + 1);
        CHECK(values[i] == expected && corelocal_counter_set_get(&set, (size_t)i) == expected);
    }
    CHECK(values[500] == 0x5555555555555555);
    CHECK(corelocal_counter_set_get_all(&set, values, 2) == 2);
    CHECK(corelocal_counter_set_take(&set, 499) < 0 && corelocal_counter_set_get(&set, 499) == 0);
    corelocal_counter_set_destroy(&set);
    a_counter_in_any_memory();
    bounds();
    return 0;
}
