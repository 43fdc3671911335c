/* A shared object, compiled when the table runs: see lttng.rs. */
#define TRACEPOINT_CREATE_PROBES
#define TRACEPOINT_DEFINE
#include "lttng.h"
#include <stdint.h>

void corelocal_lttng_events(uint64_t times)
{
    static __thread unsigned number;
    for (uint64_t n = 0; n < times; n++)
        tracepoint(corelocal_bench, number, ++number);
}

int corelocal_lttng_is_on(void)
{
    return tracepoint_enabled(corelocal_bench, number) != 0;
}
