/* The usual mend of kv_stats_thread.h: each thread has cache lines of its own. The memory grows with the threads that there may be,
 * and a thread that is not one of the server's has no counters. */
#define STATS_ALIGNED __attribute__((aligned(128)))
#include "kv_stats_thread.h"
