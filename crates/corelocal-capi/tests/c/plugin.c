/* A library with inline sections, for unloading.c. */
#include <corelocal/inline.h>

static corelocal_counter counter = CORELOCAL_COUNTER_INIT;

int64_t plugin_adds(int n)
{
    for (int i = 0; i < n; i++)
        corelocal_inline_counter_add(&counter, 1);
    return corelocal_counter_get(&counter);
}
