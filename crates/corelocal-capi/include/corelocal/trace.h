/* Recording events: a flight recorder in the traced process.
 *
 * Made from src/trace.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_TRACE_H
#define CORELOCAL_TRACE_H

#include "corelocal/base.h"

/* The type of a field whose value is number. So is that of a field with a type that is none of these. */
#define CORELOCAL_FIELD_U64 0

/* The value is number, as int64_t. */
#define CORELOCAL_FIELD_I64 1

/* The value is real. */
#define CORELOCAL_FIELD_F64 2

/* The value is number: 0, or other. */
#define CORELOCAL_FIELD_BOOL 3

/* The value is text, of len bytes of UTF-8. It is cut before what is not. */
#define CORELOCAL_FIELD_TEXT 4

/* The value is text, of len bytes. */
#define CORELOCAL_FIELD_BYTES 5

/* The most fields of an event. */
#define CORELOCAL_FIELDS_MAX 16

/* How severe the events of a site are. See corelocal_trace_switch. */
#define CORELOCAL_LEVEL_ERROR 1

#define CORELOCAL_LEVEL_WARN 2

#define CORELOCAL_LEVEL_INFO 3

#define CORELOCAL_LEVEL_DEBUG 4

#define CORELOCAL_LEVEL_TRACE 5

/* A place in the program that records events: a static object that begins with a name and a level, or 0, and zeros.
 * CORELOCAL_EVENT of corelocal/event.h makes one. */
typedef struct corelocal_site {
    /* Of UTF-8, such as "http::request". */
    const char *name;
    uint32_t level;
    /* Where the library says whether it is on; null until the first event. */
    const uint32_t *state;
    const void *site;
} corelocal_site;

/* The value of a field. */
typedef union corelocal_field_value {
    uint64_t number;
    double real;
    const char *text;
} corelocal_field_value;

/* A field of an event. */
typedef struct corelocal_field {
    /* Its name; the first event's counts. */
    const char *name;
    union corelocal_field_value value;
    /* The length of a text in bytes. What has no room in the record is cut. */
    size_t len;
    /* The same at each event of a site. */
    uint32_t field_type;
} corelocal_field;

#ifdef __cplusplus
extern "C" {
#endif

/* Records an event with n fields, if a recording was started and the site is on: some tens of nanoseconds. Fields beyond
 * CORELOCAL_FIELDS_MAX are left out.
 *
 * May be called by any thread, before main, at thread exit and in children of fork, and in signal handlers once the site
 * has recorded an event: the first one allocates. Kernels: as for corelocal_counter; without restartable sequences a thread
 * takes a buffer while it records. */
void corelocal_trace_event(struct corelocal_site *site,
                           const struct corelocal_field *fields,
                           size_t n);

/* Starts a recording. options is what the variable CORELOCAL_TRACE may have: "on" for a flight recorder in memory,
 * "disk=PATH", "file=PATH", "off=*" and others; docs/trace.md has them all. Switched-on sites record from then on.
 *
 * Returns 0. -EALREADY if there is a recording, else -EINVAL; why then has what is wrong, cut to n bytes with a 0. why may be
 * null. Not for signal handlers. */
int corelocal_trace_start(const char *options,
                          char *why,
                          size_t n);

/* Switches all sites whose names match a pattern, now and later: every 0 is off, 1 on, n one event of n. `*` stands for any
 * part of a name, "@info" for a level and finer or more severe ones.
 *
 * Returns how many sites match so far, or -EINVAL: nothing is recorded, the pattern is too long or there are too many. Not
 * for signal handlers. */
int corelocal_trace_switch(const char *pattern,
                           uint32_t every);

/* Writes the last events to a file, which replaces a recording of that name once it is whole. `corelocal trace view` shows
 * it.
 *
 * Returns the number of bytes, -ENOTCONN if nothing is recorded, -EEXIST if the file is there and is no recording, or
 * another negative error number, such as -ENOSPC. Allocates; not for signal handlers. */
int64_t corelocal_trace_dump(const char *path);

/* Waits until what was recorded before the call is in the file of a recording to disk. Returns 0, or a negative error
 * number. Not for signal handlers. */
int corelocal_trace_flush(void);

/* Returns the number of events that were lost since all buffers were in use; 0 if nothing is recorded. */
uint64_t corelocal_trace_lost(void);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_TRACE_H */
