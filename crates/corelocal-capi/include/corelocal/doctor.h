/* Which fast paths are active, and why others are not.
 *
 * Made from src/doctor.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_DOCTOR_H
#define CORELOCAL_DOCTOR_H

#include "corelocal/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes to a file descriptor, one line for each, what this kernel and libc offer to the process: restartable sequences and
 * what registered them, concurrency ids, membarrier, futexes, the vDSO. Where a fast path is not active it says why.
 *
 * Returns 0, or the negative error number of write(2). Allocates; not for signal handlers. The command `corelocal doctor`
 * says more. */
int corelocal_doctor(int fd);

/* Returns 1 if critical sections run in the calling thread, else 0. Registers the thread if it is not registered yet. */
int corelocal_is_fast(void);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_DOCTOR_H */
