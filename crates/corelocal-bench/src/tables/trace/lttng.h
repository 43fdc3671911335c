/* An LTTng-UST tracepoint with a number of 32 bits. LTTng's macros include this file again. */
#undef TRACEPOINT_PROVIDER
#define TRACEPOINT_PROVIDER corelocal_bench
#undef TRACEPOINT_INCLUDE
#define TRACEPOINT_INCLUDE "./lttng.h"
#if !defined(CORELOCAL_LTTNG_H) || defined(TRACEPOINT_HEADER_MULTI_READ)
#define CORELOCAL_LTTNG_H
#include <lttng/tracepoint.h>
TRACEPOINT_EVENT(corelocal_bench, number, TP_ARGS(unsigned, number), TP_FIELDS(ctf_integer(unsigned, number, number)))
#endif
#include <lttng/tracepoint-event.h>
