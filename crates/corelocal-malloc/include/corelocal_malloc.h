/* corelocal's malloc from C and C++: statistics, and control of what it keeps.
 *
 * The functions are in libcorelocal_malloc.so, which is preloaded, and in libcorelocal_malloc.a. They are weak symbols:
 * in a program that runs with another malloc they are null, so ask before a call:
 *
 *     if (corelocal_malloc_trim)
 *         corelocal_malloc_trim(0);
 *
 * All may be called by any thread and in forked children, none of them allocates. Those marked (s) may be called in
 * signal handlers. Sizes are in bytes.
 */
#ifndef CORELOCAL_MALLOC_H
#define CORELOCAL_MALLOC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CORELOCAL_WEAK __attribute__((weak))
#else
#define CORELOCAL_WEAK
#endif

/* Figures of one moment. Later versions add members at the end. */
struct corelocal_malloc_info {
    size_t in_use;        /* objects in use by the program */
    size_t cached;        /* free objects in caches of cores and in depots */
    size_t used;          /* spans and large objects, which contain both */
    size_t idle;          /* free chunks that were not given back to the kernel */
    size_t mapped;        /* what is mapped for all of these */
    size_t released;      /* what was given back so far */
    size_t huge;          /* huge pages made of densely used memory */
    size_t large_objects; /* the number of objects of more than 1 MiB */
    size_t large_bytes;   /* their bytes */
};

/* Fills the first `size` bytes of `info`: pass sizeof *info. Linear in the memory in use. (s) */
CORELOCAL_WEAK void corelocal_malloc_get_info(struct corelocal_malloc_info *info, size_t size);

/* Writes statistics to a file descriptor: text, or JSON if `json` is not 0. Returns 0, or -1 if not all was written. (s) */
CORELOCAL_WEAK int corelocal_malloc_stats(int fd, int json);

/* Gives all unused memory but `keep` bytes back to the kernel. Returns 1 if there was any, else 0. As malloc_trim(3). */
CORELOCAL_WEAK int corelocal_malloc_trim(size_t keep);

/* Keeps idle memory as long as it and what is in use take at most `bytes`; 0: gives it back by time, the default. (s) */
CORELOCAL_WEAK void corelocal_malloc_set_target(size_t bytes);

/* Maps at most `bytes` for objects, in steps of 64 KiB; an allocation that needs more fails (ENOMEM). 0: no limit. (s) */
CORELOCAL_WEAK void corelocal_malloc_set_limit(size_t bytes);

/* Calls `hook` with the size of an allocation before it fails for want of memory. If the hook returns other than 0, it is
 * tried again: the hook may free something. It runs on the thread that allocates; allocations in it do not call it. It must
 * not throw or jump out. Null: no hook, the default. */
CORELOCAL_WEAK void corelocal_malloc_set_out_of_memory_hook(int (*hook)(size_t size));

/* Starts a heap profile: samples one object for each `rate` bytes allocated from now on, on average; 0: 512 KiB. The rate of
 * a process's first profile stays. Returns 0, or -1 and errno: EINVAL with CORELOCAL_MALLOC=check, EAGAIN while another
 * thread starts or stops it. */
CORELOCAL_WEAK int corelocal_malloc_profile_start(size_t rate);

/* Stops it. Its samples stay until their objects are freed. */
CORELOCAL_WEAK void corelocal_malloc_profile_stop(void);

/* Writes the profile to `path`, or, if that is null, to the next file that CORELOCAL_MALLOC=profile:PREFIX names.
 * `corelocal heap FILE` shows it. Returns 0, or -1 and errno: EINVAL if there is no profile. (s) */
CORELOCAL_WEAK int corelocal_malloc_profile(const char *path);

#ifdef __cplusplus
}
#endif

#endif
