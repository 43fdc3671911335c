/* Children of vfork that allocate while their parent's threads do, against POSIX, and leave objects to the parent.
   Every byte of every object says whose it is. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, HELD = 64, LEFT = 30, CHILDS_ROUNDS = 5000 };

static volatile int stop;
static unsigned char *left_to_parent[LEFT];

static void churn(unsigned seed, int rounds) {
    unsigned char *held[HELD] = {0};
    size_t sizes[HELD];
    for (int round = 0; round < rounds; round++) {
        seed = seed * 1103515245 + 12345;
        unsigned nth = (seed >> 16) % HELD;
        if (held[nth]) {
            for (size_t byte = 0; byte < sizes[nth]; byte++)
                if (held[nth][byte] != nth) {
                    fprintf(stderr, "an object is not as it was left\n");
                    abort();
                }
            free(held[nth]);
        }
        sizes[nth] = 1 + (seed >> 20) % 300;
        held[nth] = malloc(sizes[nth]);
        memset(held[nth], (int)nth, sizes[nth]);
    }
    for (unsigned nth = 0; nth < HELD; nth++) free(held[nth]);
}

static void *work(void *seed) {
    for (unsigned nth = (unsigned)(size_t)seed; !stop; nth++) churn(nth, 1000);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS];
    for (size_t nth = 0; nth < THREADS; nth++) pthread_create(&threads[nth], NULL, work, (void *)(nth * 1000));
    for (int nth = 0; nth < atoi(arguments[count - 1]); nth++) {
        pid_t child = vfork();
        if (child == 0) {
            churn((unsigned)nth, CHILDS_ROUNDS);
            for (int object = 0; object < LEFT; object++) {
                left_to_parent[object] = malloc((size_t)(100 + object));
                memset(left_to_parent[object], object, 100);
            }
            _exit(nth % 50);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != nth % 50) {
            fprintf(stderr, "child %d: %x\n", nth, status);
            return 1;
        }
        for (int object = 0; object < LEFT; object++) {
            for (int byte = 0; byte < 100; byte++)
                if (left_to_parent[object][byte] != object) abort();
            free(left_to_parent[object]);
        }
    }
    stop = 1;
    for (int nth = 0; nth < THREADS; nth++) pthread_join(threads[nth], NULL);
    return 0;
}
