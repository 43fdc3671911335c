/* Threads that allocate, resize and free, children of fork and vfork that do so too, and checks of what objects hold: for
 * a malloc that is preloaded. Exits with 0 if all was right. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 6, OBJECTS = 500, ROUNDS = 100000, CHILDREN = 4 };

static void *work(void *seed)
{
    static __thread unsigned char *object[OBJECTS];
    static __thread unsigned size[OBJECTS];
    unsigned random = (unsigned)(size_t)seed * 7919 + 1;

    for (int round = 0; round < ROUNDS; round++) {
        random = random * 1664525u + 1013904223u;
        unsigned nth = (random >> 8) % OBJECTS;
        unsigned char *old = object[nth];
        if (old) {
            unsigned char mark = (unsigned char)size[nth];
            if (random & 64)
                old = realloc(old, size[nth] + 100);
            if (!old || old[0] != mark || old[size[nth] - 1] != mark) {
                fprintf(stderr, "an object of %u bytes has changed\n", size[nth]);
                abort();
            }
            free(old);
        }
        size[nth] = 1 + (random >> 12) % 3000;
        object[nth] = malloc(size[nth]);
        if (!object[nth])
            abort();
        object[nth][0] = object[nth][size[nth] - 1] = (unsigned char)size[nth];
    }
    return NULL;
}

static int fails(pid_t child)
{
    int status;
    return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

int main(void)
{
    pthread_t threads[THREADS];
    int failed = 0;

    for (size_t nth = 0; nth < THREADS; nth++)
        failed |= pthread_create(&threads[nth], NULL, work, (void *)nth);
    for (int nth = 0; nth < CHILDREN; nth++) {
        pid_t child = fork();
        if (child == 0) {
            work((void *)99);
            _exit(0);
        }
        failed |= fails(child);
    }
    for (int nth = 0; nth < THREADS; nth++)
        failed |= pthread_join(threads[nth], NULL);
    pid_t child = vfork();
    if (child == 0) {
        free(malloc(100));
        _exit(0);
    }
    failed |= fails(child);
    return failed;
}
