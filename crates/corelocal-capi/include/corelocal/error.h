/* Error numbers and versions.
 *
 * Made from src/error.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_ERROR_H
#define CORELOCAL_ERROR_H

#include "corelocal/base.h"

/* The version of the headers, as 10000 times the major number, plus 100 times the minor one, plus the patch. */
#define CORELOCAL_VERSION 100

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the version of the library that runs, in the form of CORELOCAL_VERSION. Before 1.0 a program runs with the minor
 * version that it was compiled with; from then on with all later ones of the same major version. */
uint32_t corelocal_version(void);

/* Returns what an error number says that a function of this library returned, negative or not. A static text; it may be
 * called by any thread and in signal handlers. */
const char *corelocal_strerror(int error);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_ERROR_H */
