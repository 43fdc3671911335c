// All headers at once, twice, in C++.
#include <corelocal/clock.h>
#include <corelocal/counter.h>
#include <corelocal/doctor.h>
#include <corelocal/error.h>
#include <corelocal/histogram.h>
#include <corelocal/ids.h>
#include <corelocal/inline.h>
#include <corelocal/mutex.h>
#include <corelocal/pool.h>
#include <corelocal/queue.h>
#include <corelocal/rcu.h>

#include <corelocal/counter.h>
#include <corelocal/inline.h>

static corelocal_counter counter = CORELOCAL_COUNTER_INIT;
static corelocal_queue queue = CORELOCAL_QUEUE_INIT;
static corelocal_rwlock lock = CORELOCAL_RWLOCK_INIT;
static_assert(alignof(corelocal_queue) == 64, "as the library has it");

int main()
{
    corelocal_inline_counter_add(&counter, 5);
    return corelocal_counter_get(&counter) == 5 && corelocal_queue_is_empty(&queue)
                && corelocal_rwlock_read(&lock, -1) == 0
            ? 0
            : 1;
}
