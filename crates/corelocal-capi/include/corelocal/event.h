/* Events in one line:
 *
 *     CORELOCAL_EVENT("http::request", CORELOCAL_TEXT("method", "GET"), CORELOCAL_U64("bytes", 512));
 *     CORELOCAL_EVENT0("http::idle");
 *
 * An event of a site that is off costs two loads and a branch, and its fields are not computed. In C++: from C++11 on. */
#ifndef CORELOCAL_EVENT_H
#define CORELOCAL_EVENT_H

#include <string.h>

#include "corelocal/base.h"
#include "corelocal/trace.h"

static inline corelocal_field corelocal_field_of(const char *name, uint32_t type, uint64_t number)
{
    corelocal_field field;
    field.name = name;
    field.value.number = number;
    field.len = 0;
    field.field_type = type;
    return field;
}

static inline corelocal_field corelocal_field_of_real(const char *name, double real)
{
    corelocal_field field = corelocal_field_of(name, CORELOCAL_FIELD_F64, 0);
    field.value.real = real;
    return field;
}

static inline corelocal_field corelocal_field_of_bytes(const char *name, uint32_t type, const void *bytes,
                                                       size_t len)
{
    corelocal_field field = corelocal_field_of(name, type, 0);
    field.value.text = (const char *)bytes;
    field.len = len;
    return field;
}

#define CORELOCAL_U64(name, value) corelocal_field_of(name, CORELOCAL_FIELD_U64, (uint64_t)(value))
#define CORELOCAL_I64(name, value) corelocal_field_of(name, CORELOCAL_FIELD_I64, (uint64_t)(int64_t)(value))
#define CORELOCAL_BOOL(name, value) corelocal_field_of(name, CORELOCAL_FIELD_BOOL, (value) ? 1 : 0)
#define CORELOCAL_F64(name, value) corelocal_field_of_real(name, value)
#define CORELOCAL_TEXT(name, text) CORELOCAL_TEXT_OF(name, text, strlen(text))
#define CORELOCAL_TEXT_OF(name, text, len) corelocal_field_of_bytes(name, CORELOCAL_FIELD_TEXT, text, len)
#define CORELOCAL_BYTES(name, bytes, len) corelocal_field_of_bytes(name, CORELOCAL_FIELD_BYTES, bytes, len)

/* Off: the upper bits of the state are 10. */
static inline int corelocal_site_may_be_on(corelocal_site *site)
{
    const uint32_t *state = __atomic_load_n(&site->state, __ATOMIC_ACQUIRE);
    return !state || __atomic_load_n(state, __ATOMIC_RELAXED) >> 30 != 2;
}

/* An event of a level, CORELOCAL_LEVEL_ERROR to CORELOCAL_LEVEL_TRACE, or 0. */
#define CORELOCAL_EVENT_OF(level, name, ...)                                                         \
    do {                                                                                             \
        static corelocal_site corelocal_site_ = {name, level, NULL, NULL};                           \
        if (corelocal_site_may_be_on(&corelocal_site_)) {                                            \
            const corelocal_field corelocal_fields_[] = {__VA_ARGS__};                               \
            corelocal_trace_event(&corelocal_site_, corelocal_fields_,                               \
                                  sizeof corelocal_fields_ / sizeof *corelocal_fields_);             \
        }                                                                                            \
    } while (0)

#define CORELOCAL_EVENT(name, ...) CORELOCAL_EVENT_OF(0, name, __VA_ARGS__)

/* An event without fields. */
#define CORELOCAL_EVENT0(name)                                                                       \
    do {                                                                                             \
        static corelocal_site corelocal_site_ = {name, 0, NULL, NULL};                               \
        if (corelocal_site_may_be_on(&corelocal_site_))                                              \
            corelocal_trace_event(&corelocal_site_, NULL, 0);                                        \
    } while (0)

#endif
