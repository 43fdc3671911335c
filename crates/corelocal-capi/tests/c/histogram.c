/* Histograms and their snapshots. */
#include <corelocal/histogram.h>
#include <math.h>

#include "check.h"

static corelocal_histogram sizes = CORELOCAL_HISTOGRAM_INIT;
static corelocal_snapshot all = CORELOCAL_SNAPSHOT_INIT, more;

static void *records(void *number)
{
    for (uint64_t value = 0; value < 10000; value++)
        corelocal_histogram_record(&sizes, value, (uint64_t)(long)number);
    return NULL;
}

int main(void)
{
    corelocal_bucket bucket, buckets[4];
    CHECK(corelocal_snapshot_count(&all) == 0 && isnan(corelocal_snapshot_mean(&all)));
    CHECK(corelocal_snapshot_quantile(&all, 0.5, &bucket) == -ENODATA);
    on_threads(records);
    uint64_t times = THREADS * (THREADS - 1) / 2;
    corelocal_histogram_snapshot(&sizes, &all);
    CHECK(corelocal_snapshot_count(&all) == times * 10000);
    CHECK(corelocal_snapshot_quantile(&all, 0.5, &bucket) == 0);
    CHECK(bucket.low <= 4999 && bucket.high >= 4999 && bucket.high - bucket.low <= 5000 / 32);
    CHECK(corelocal_snapshot_quantile(&all, NAN, &bucket) == -ENODATA);
    CHECK(corelocal_snapshot_quantile(&all, 7.0, &bucket) == 0 && bucket.high >= 9999);
    CHECK(fabs(corelocal_snapshot_mean(&all) - 4999.5) < 5000 * 0.016);
    size_t count = corelocal_snapshot_buckets(&all, buckets, 4);
    CHECK(count > 4 && corelocal_snapshot_buckets(&all, NULL, 0) == count);
    for (uint64_t i = 0; i < 4; i++)
        CHECK(buckets[i].low == i && buckets[i].high == i && buckets[i].count == times);
    corelocal_histogram_take(&sizes, &more);
    CHECK(memcmp(&all, &more, sizeof all) == 0);
    corelocal_histogram_take(&sizes, &more);
    CHECK(corelocal_snapshot_count(&more) == 0);
    corelocal_histogram_record(&sizes, UINT64_MAX, UINT64_MAX);
    corelocal_histogram_snapshot(&sizes, &more);
    CHECK(corelocal_snapshot_count(&more) == (uint64_t)1 << 61);
    corelocal_snapshot_merge(&more, &all);
    CHECK(corelocal_snapshot_count(&more) == ((uint64_t)1 << 61) + times * 10000);
    corelocal_histogram_destroy(&sizes);
    corelocal_histogram_snapshot(&sizes, &more);
    CHECK(corelocal_snapshot_count(&more) == 0);
    return 0;
}
