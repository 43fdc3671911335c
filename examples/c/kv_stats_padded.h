/* The usual mend of kv_stats_thread.h: each thread has cache lines of its own. The memory grows with the threads that there may be,
 * and a thread that is not one of the server's has no counters. */
#define STATS_PLACE(stat, thread) stats_of[thread].stats[stat]
static struct { long stats[STAT_COUNT]; } __attribute__((aligned(128))) stats_of[THREADS_MAX];
#include "kv_stats_thread.h"
