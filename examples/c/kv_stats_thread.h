/* Before: an array for each counter, with a place for each I/O thread. Only that thread stores there, so no addition is atomic. But
 * eight threads share a cache line, and each addition takes that line from another core. */
#ifndef STATS_PLACE
#define STATS_PLACE(stat, thread) stats_of[stat][thread]
static long stats_of[STAT_COUNT][THREADS_MAX];
#endif
static __thread unsigned stats_index;

static int stats_start(unsigned threads)
{
    return threads <= THREADS_MAX ? 0 : -1;
}

static void stats_thread(unsigned index)
{
    stats_index = index;
}

static inline void stats_add(enum stat stat, long n)
{
    long *const at = &STATS_PLACE(stat, stats_index);
    __atomic_store_n(at, __atomic_load_n(at, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static long stats_get(enum stat stat)
{
    long sum = 0;
    for (unsigned i = 0; i < THREADS_MAX; i++)
        sum += __atomic_load_n(&STATS_PLACE(stat, i), __ATOMIC_RELAXED);
    return sum;
}
