/*
 * The shared counter of programs that use liburcu: its portable atomics.
 */
#include <stdint.h>
#include <stdlib.h>
#include <urcu/uatomic.h>

unsigned long *corelocal_c_api_begin(void)
{
    return calloc(1, sizeof(unsigned long));
}

void corelocal_c_api_end(unsigned long *count)
{
    free(count);
}

int64_t corelocal_c_api_counted(unsigned long *count)
{
    return (int64_t)uatomic_read(count);
}

void corelocal_c_api_urcu(unsigned long *count, uint64_t times)
{
    for (; times > 0; times--)
        uatomic_inc(count);
}
