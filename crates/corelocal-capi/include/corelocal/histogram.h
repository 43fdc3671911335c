/* How often values occur.
 *
 * Made from src/histogram.rs: not to be edited. docs/c.md says what holds for all functions. */
#ifndef CORELOCAL_HISTOGRAM_H
#define CORELOCAL_HISTOGRAM_H

#include "corelocal/base.h"

/* All members are 0: static and cleared memory needs no initialiser. */
#define CORELOCAL_HISTOGRAM_INIT {{0}}
#define CORELOCAL_SNAPSHOT_INIT {{0}}

/* The number of a histogram's buckets. */
#define CORELOCAL_HISTOGRAM_BUCKETS 1920

/* A histogram of numbers of 64 bits that threads on different cores record in without contention.
 *
 * Buckets are log-linear: a value is known to 3.1 % of itself, the middle of its bucket to 1.6 %, and values below 64
 * exactly. A bucket counts to 2^61 and stays there.
 *
 * Declare it as CORELOCAL_HISTOGRAM_INIT or as zeros; it is 15 KiB long. On each core that used it those pages of 15 KiB
 * are resident that were touched.
 *
 * All functions may be called by any thread, in signal handlers, before main, during thread exit and in children of
 * fork, which have their own copy. They do not block or allocate. Their memory order is relaxed.
 *
 * Kernels: as for corelocal_counter. */
typedef struct corelocal_histogram {
    uint64_t opaque[1922];
} corelocal_histogram;

/* What a histogram held at one moment: a plain value of the caller's. Zeros are an empty one. */
typedef struct corelocal_snapshot {
    uint64_t counts[1920];
} corelocal_snapshot;

/* The bounds of a bucket, and how many values are in it. */
typedef struct corelocal_bucket {
    uint64_t low;
    uint64_t high;
    uint64_t count;
} corelocal_bucket;

#ifdef __cplusplus
extern "C" {
#endif

/* Records a value n times, at the cost of once. Constant time. */
void corelocal_histogram_record(struct corelocal_histogram *histogram, uint64_t value, uint64_t n);

/* Stores to into what was recorded. Each value recorded meanwhile is included or not. Linear in the buckets times the
 * cores in use: some 10 microseconds where two cores have recorded. */
void corelocal_histogram_snapshot(const struct corelocal_histogram *histogram,
                                  struct corelocal_snapshot *into);

/* Does what corelocal_histogram_snapshot does, and leaves the histogram empty. Of several threads that take at once, each
 * value goes to exactly one. */
void corelocal_histogram_take(struct corelocal_histogram *histogram,
                              struct corelocal_snapshot *into);

/* Gives the histogram's memory on each core back. No other thread may use it meanwhile. Afterwards it is a new one. */
void corelocal_histogram_destroy(struct corelocal_histogram *histogram);

/* Returns the number of values, at most UINT64_MAX. Linear in the buckets, like all functions of snapshots. */
uint64_t corelocal_snapshot_count(const struct corelocal_snapshot *at);

/* Stores to bucket the one of the value that a share q of all values does not exceed: 0.5 for the median, 0.99 for the
 * 99th percentile. A q below 0 or above 1 counts as 0 or 1.
 *
 * Returns 0, or -ENODATA if there are no values or q is not a number. */
int corelocal_snapshot_quantile(const struct corelocal_snapshot *at,
                                double q,
                                struct corelocal_bucket *bucket);

/* Returns an estimate of the mean of the values, off by at most 1.6 %. Not a number if there are none. */
double corelocal_snapshot_mean(const struct corelocal_snapshot *at);

/* Adds the counts of from to those of to. A sum of more than UINT64_MAX is UINT64_MAX. */
void corelocal_snapshot_merge(struct corelocal_snapshot *to, const struct corelocal_snapshot *from);

/* Stores to buckets the first n that are not empty, from low to high, or all if there are fewer. Returns how many are not
 * empty, which may be more than n. */
size_t corelocal_snapshot_buckets(const struct corelocal_snapshot *at,
                                  struct corelocal_bucket *buckets,
                                  size_t n);

#ifdef __cplusplus
}
#endif

#endif  /* CORELOCAL_HISTOGRAM_H */
