/* After: one set of counters, whose memory is that of the core. There are no thread indices, any thread may count, and a sum reads
 * the cores that were used. */
#include <corelocal/counter.h>
#include <corelocal/inline.h>

static corelocal_counter_set stats_of;

static int stats_start(unsigned threads)
{
    (void)threads;
    return corelocal_counter_set_create(&stats_of, STAT_COUNT);
}

static void stats_thread(unsigned index)
{
    (void)index;
}

static inline void stats_add(enum stat stat, long n)
{
    corelocal_inline_counter_set_add(&stats_of, stat, n);
}

static long stats_get(enum stat stat)
{
    return corelocal_counter_set_get(&stats_of, stat);
}
