/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Ends the program with what was expected, and where. */
#define CHECK(what)                                                        \
    do {                                                                   \
        if (!(what)) {                                                     \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #what);      \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

enum { THREADS = 8 };

/* Runs a function on THREADS threads at once, each with its number. */
static inline void on_threads(void *(*run)(void *number))
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Forks, and waits until the child has ended well. */
static inline void in_child(void (*run)(void))
{
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run();
        _exit(0); /* Without a search for leaks, which are the parent's. */
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static inline void nap(long milliseconds)
{
    struct timespec span = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&span, NULL);
}

#endif
