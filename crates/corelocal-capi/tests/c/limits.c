/* Where files cannot grow, for want of disk or by `ulimit -f`: calls fail with what is wrong, the program goes on, and a file
 * that is there stays as it was. The argument is the path of a recording that may be made. */
#define _GNU_SOURCE
#include <corelocal/counter.h>
#include <corelocal/event.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "check.h"

static corelocal_counter counter = CORELOCAL_COUNTER_INIT;

static void record(int events)
{
    for (int i = 0; i < events; i++) {
        CORELOCAL_EVENT("limits::work", CORELOCAL_U64("step", i), CORELOCAL_TEXT("what", "some text that takes space"));
        corelocal_counter_add(&counter, 1);
    }
}

static long size_of(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 ? (long)file.st_size : -1;
}

/* A recording in memory is written to a file; the limit is below its size. */
static void file_size(const char *path)
{
    struct rlimit before, small = {4096, 0};
    CHECK(corelocal_trace_start("on,max-bytes=16M", NULL, 0) == 0);
    record(20000);
    long long whole = corelocal_trace_dump(path);
    CHECK(whole > 4096 && size_of(path) == whole);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    small.rlim_max = before.rlim_max;
    for (; small.rlim_cur <= 8192; small.rlim_cur += 4096) {
        CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
        CHECK(corelocal_trace_dump(path) == -EFBIG && size_of(path) == whole);
        record(10);
    }
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(corelocal_trace_dump(path) > 0);
}

/* The same where a file system of 1 MiB is full, and a recording to a file there. */
static void full_disk(void)
{
    char folder[] = "/tmp/corelocal-full-XXXXXX", dump[64], other[64], filler[64], options[80], why[512] = "";
    static const char zeros[4096];
    CHECK(mkdtemp(folder));
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", folder, "tmpfs", 0, "size=1m") != 0) {
        printf("skipped: full disk: no file system can be mounted: %s\n", strerror(errno));
        rmdir(folder);
        return;
    }
    snprintf(dump, sizeof dump, "%s/dump", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    snprintf(filler, sizeof filler, "%s/filler", folder);
    snprintf(options, sizeof options, "file=%s/recording", folder);
    CHECK(corelocal_trace_start(options, why, sizeof why) == -EINVAL && strstr(why, "ENOSPC"));
    CHECK(corelocal_trace_start("on", NULL, 0) == 0);
    record(1);
    long long whole = corelocal_trace_dump(dump);
    CHECK(whole > 0 && size_of(dump) == whole);
    int file = open(filler, O_CREAT | O_WRONLY, 0600);
    while (write(file, zeros, sizeof zeros) > 0)
        ;
    CHECK(errno == ENOSPC && close(file) == 0);
    record(20000);
    CHECK(corelocal_trace_dump(dump) == -ENOSPC && size_of(dump) == whole);
    /* What is no recording is not replaced. */
    CHECK(corelocal_trace_dump(filler) == -EEXIST);
    /* Nothing else is left there. */
    CHECK(corelocal_trace_dump(other) == -ENOSPC && size_of(other) == -1);
    CHECK(unlink(filler) == 0 && corelocal_trace_dump(dump) > whole);
    CHECK(unlink(dump) == 0 && rmdir(folder) == -1 && errno == EBUSY);
    CHECK(umount2(folder, MNT_DETACH) == 0 && rmdir(folder) == 0);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    /* First: a child of a process that records, records, too. */
    in_child(full_disk);
    file_size(arguments[1]);
    CHECK(corelocal_counter_get(&counter) == 20020);
    return 0;
}
