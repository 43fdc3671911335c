/* Time, read in place.
 *
 * Made from src/clock.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_CLOCK_H
#define CORELOCAL_CLOCK_H

#include "corelocal/base.h"

/* The bounds of the true time, in nanoseconds since 1970-01-01 00:00:00 UTC. */
typedef struct corelocal_bounded_time {
    int64_t earliest;
    int64_t latest;
} corelocal_bounded_time;

#ifdef __cplusplus
extern "C" {
#endif

/* Returns CLOCK_MONOTONIC in nanoseconds. Never earlier than a reading that happens before, on whatever cpu, by whichever
 * thread.
 *
 * All functions of this header take constant time and may be called by any thread, in signal handlers, before main, and in
 * children of fork. No system call where the kernel's clock page or the vDSO can be read.
 *
 * Source: clock_gettime(2), the vDSO's data page. */
uint64_t corelocal_clock_monotonic(void);

/* Returns CLOCK_MONOTONIC in nanoseconds. Cheaper: the cpu may read the clock some nanoseconds before it is done with what
 * comes first in the program. */
uint64_t corelocal_clock_monotonic_unordered(void);

/* Returns CLOCK_REALTIME in nanoseconds since 1970-01-01 00:00:00 UTC. */
uint64_t corelocal_clock_realtime(void);

/* Returns CLOCK_BOOTTIME in nanoseconds: CLOCK_MONOTONIC, and the time the machine was suspended. */
uint64_t corelocal_clock_boottime(void);

/* Returns CLOCK_TAI in nanoseconds. */
uint64_t corelocal_clock_tai(void);

/* Returns CLOCK_MONOTONIC at the last timer tick, in nanoseconds: up to some milliseconds ago. */
uint64_t corelocal_clock_coarse(void);

/* Returns CLOCK_REALTIME at the last timer tick, in nanoseconds. */
uint64_t corelocal_clock_realtime_coarse(void);

/* Stores the bounds between which the true time is, by what the kernel's time daemon says of its error.
 *
 * Returns 0, -ENODATA if the clock is not synchronised, -ESTALE if the machine slept or was moved since it was, or the
 * error of a refused clock_adjtime(2). */
int corelocal_clock_bounded(struct corelocal_bounded_time *now);

/* Finds the best way to read the clock now instead of in passing: some 20 ms, 100 ms at most. Afterwards readings make no
 * system call, unless the vDSO does. Not for signal handlers. */
void corelocal_clock_settle(void);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_CLOCK_H */
