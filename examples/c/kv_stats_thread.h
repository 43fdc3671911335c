/* Before: an array of counters for each I/O thread. Only the thread stores to it, so no addition is atomic. But the last counters
 * of a thread share a cache line with the first of the next, and each addition takes that line from another core. */
#ifndef STATS_ALIGNED
#define STATS_ALIGNED
#endif
static struct { long stats[STAT_COUNT]; } STATS_ALIGNED stats_of[512];
static __thread unsigned stats_index;

static int stats_start(unsigned threads)
{
    return threads <= sizeof stats_of / sizeof *stats_of ? 0 : -1;
}

static void stats_thread(unsigned index)
{
    stats_index = index;
}

static inline void stats_add(enum stat stat, long n)
{
    long *const at = &stats_of[stats_index].stats[stat];
    __atomic_store_n(at, __atomic_load_n(at, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static long stats_get(enum stat stat)
{
    long sum = 0;
    for (unsigned i = 0; i < sizeof stats_of / sizeof *stats_of; i++)
        sum += __atomic_load_n(&stats_of[i].stats[stat], __ATOMIC_RELAXED);
    return sum;
}
