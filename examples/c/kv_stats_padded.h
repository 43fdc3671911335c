/* The usual mend of kv_stats_thread.h: each thread has cache lines of its own. The memory grows with the threads that there may be,
 * and a thread that is not one of the server's has no counters. */
static struct { long stats[STAT_COUNT]; } __attribute__((aligned(128))) stats_of[THREADS_MAX];
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
    long *const at = &stats_of[stats_index].stats[stat];
    __atomic_store_n(at, __atomic_load_n(at, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static long stats_get(enum stat stat)
{
    long sum = 0;
    for (unsigned i = 0; i < THREADS_MAX; i++)
        sum += __atomic_load_n(&stats_of[i].stats[stat], __ATOMIC_RELAXED);
    return sum;
}
