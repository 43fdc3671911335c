/* Ids, clock, doctor, errors, and what inline.h asks for. */
#include <corelocal/clock.h>
#include <corelocal/doctor.h>
#include <corelocal/error.h>
#include <corelocal/inline.h>

#include "check.h"

static uint64_t kernels(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void is_between(clockid_t clock, uint64_t (*read)(void), uint64_t granularity)
{
    uint64_t before = kernels(clock), now = read(), after = kernels(clock);
    CHECK(now + granularity >= before && now <= after);
}

static void *ids(void *number)
{
    (void)number;
    for (int i = 0; i < 10000; i++) {
        CHECK(corelocal_cpu() < 8192 && corelocal_slot() < corelocal_slot_capacity());
        CHECK(corelocal_cid() < corelocal_slot_capacity() && corelocal_inline_cid() < corelocal_slot_capacity());
    }
    return NULL;
}

int main(void)
{
    on_threads(ids);
    ids(NULL);
    CHECK(corelocal_node() < 1024);
    for (int round = 0; round < 2; round++) {
        /* The page that is read follows the kernel's clock to the microsecond. */
        is_between(CLOCK_MONOTONIC, corelocal_clock_monotonic, 0);
        is_between(CLOCK_MONOTONIC, corelocal_clock_monotonic_unordered, 1000);
        is_between(CLOCK_REALTIME, corelocal_clock_realtime, 0);
        is_between(CLOCK_BOOTTIME, corelocal_clock_boottime, 0);
        is_between(CLOCK_TAI, corelocal_clock_tai, 0);
        is_between(CLOCK_MONOTONIC, corelocal_clock_coarse, 20000000);
        is_between(CLOCK_REALTIME, corelocal_clock_realtime_coarse, 20000000);
        corelocal_clock_settle();
    }
    corelocal_bounded_time bounds;
    int bounded = corelocal_clock_bounded(&bounds);
    CHECK(bounded <= 0);
    if (bounded == 0)
        CHECK(bounds.earliest <= bounds.latest);

    CHECK(corelocal_version() == CORELOCAL_VERSION);
    CHECK(strstr(corelocal_strerror(-EINVAL), "EINVAL") && strstr(corelocal_strerror(EOWNERDEAD), "consistent"));
    CHECK(strstr(corelocal_strerror(-EALREADY), "EALREADY") && strstr(corelocal_strerror(-EBADF), "errno(3)"));
    CHECK(corelocal_strerror(12345) && corelocal_strerror(INT32_MIN) && corelocal_strerror(0));
    int pipe_ends[2];
    CHECK(pipe(pipe_ends) == 0 && corelocal_doctor(pipe_ends[1]) == 0);
    char text[8192];
    ssize_t length = read(pipe_ends[0], text, sizeof text - 1);
    CHECK(length > 0);
    text[length] = 0;
    CHECK(strstr(text, "rseq"));
    CHECK(corelocal_doctor(-1) == -EBADF);
#ifdef CORELOCAL_INLINE_LAYOUT
    struct corelocal_inline words = {0, 0, 0};
    CHECK(corelocal_inline_bind(&words, CORELOCAL_INLINE_LAYOUT + 1) == -ENOTSUP && words.area == 0);
    /* Bound before main. */
    CHECK(corelocal_inline_words.area != 0 && corelocal_inline_words.offsets != 0);
#endif
    if (getenv("EXPECT_FAST"))
        CHECK(corelocal_is_fast() == (strcmp(getenv("EXPECT_FAST"), "yes") == 0));
    return 0;
}
