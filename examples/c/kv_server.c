/* A small key-value server in the manner of Valkey: each I/O thread reads commands from its connections, carries them out and
 * counts. How it counts is in the header that STATS names, the only thing in which two builds differ:
 *
 *     kv_stats_thread.h   each thread has a place of its own, beside that of the next thread
 *     kv_stats_padded.h   the same, each thread's places on cache lines of their own
 *     kv_stats.h          one set of corelocal's counters
 *
 *     cc -O2 -pthread -DSTATS='"kv_stats.h"' kv_server.c $(pkg-config --cflags --libs corelocal) -o kv_server
 *     ./kv_server 4 200000
 *
 * It serves clients of its own, one for each I/O thread, which send that many commands in batches. It prints the I/O threads'
 * cpu time for a command in nanoseconds, and fails unless the counters are what the clients counted. `compare` runs all. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* What the server counts. */
enum stat { COMMANDS, CALLS_GET, CALLS_SET, CALLS_DEL, HITS, MISSES, BYTES_IN, BYTES_OUT, USED_MEMORY, STAT_COUNT };

enum { THREADS_MAX = 512 };

/* Has stats_start(threads), stats_thread(index), stats_add(stat, n) and stats_get(stat). */
#include STATS

enum { KEYS = 1024, TEXT_MAX = 24, BATCH = 256, BUFFER = 64 * 1024 };

/* An I/O thread, its table and its connection. */
struct worker {
    pthread_t thread, client_thread;
    unsigned index;
    int socket, client;
    long batches;
    double nanoseconds;
    struct { char key[TEXT_MAX], value[TEXT_MAX]; } table[KEYS];
};

static void fail(const char *what)
{
    fprintf(stderr, "kv_server: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void write_all(int socket, const char *bytes, size_t len)
{
    while (len > 0) {
        const ssize_t written = write(socket, bytes, len);
        if (written < 0 && errno != EINTR)
            fail("write");
        if (written > 0)
            bytes += written, len -= (size_t)written;
    }
}

/* Where a key is, or would be. */
static size_t slot_of(const char *key)
{
    uint32_t hash = 2166136261u;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash % KEYS;
}

/* Carries out one command, and returns the end of its answer. */
static char *carry_out(struct worker *worker, char *line, char *answer)
{
    char *rest, *name = strtok_r(line, " ", &rest), *key = strtok_r(NULL, " ", &rest);
    stats_add(COMMANDS, 1);
    if (!name || !key || strlen(key) >= TEXT_MAX || strlen(rest) >= TEXT_MAX)
        return stpcpy(answer, "-what\n");
    const size_t at = slot_of(key);
    char *const held = worker->table[at].key, *const value = worker->table[at].value;
    if (strcmp(name, "GET") == 0) {
        const int is_there = strcmp(held, key) == 0;
        stats_add(CALLS_GET, 1);
        stats_add(is_there ? HITS : MISSES, 1);
        return is_there ? stpcpy(stpcpy(answer, value), "\n") : stpcpy(answer, "-none\n");
    }
    const int is_set = strcmp(name, "SET") == 0;
    if (!is_set && strcmp(name, "DEL") != 0)
        return stpcpy(answer, "-what\n");
    stats_add(is_set ? CALLS_SET : CALLS_DEL, 1);
    stats_add(USED_MEMORY, -(long)(strlen(held) + strlen(value)));
    strcpy(held, is_set ? key : "");
    strcpy(value, is_set ? rest : "");
    stats_add(USED_MEMORY, (long)(strlen(held) + strlen(value)));
    return stpcpy(answer, "+ok\n");
}

/* An I/O thread: until its connection ends. */
static void *serve(void *argument)
{
    struct worker *worker = (struct worker *)argument;
    static __thread char in[BUFFER], out[BUFFER];
    size_t held = 0;
    stats_thread(worker->index);
    for (;;) {
        const ssize_t got = read(worker->socket, in + held, BUFFER - 1 - held);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        stats_add(BYTES_IN, got);
        held += (size_t)got;
        char *line = in, *end, *answer = out;
        /* Room for one more answer: the clients send no more than a batch at once. */
        while ((end = memchr(line, '\n', held - (size_t)(line - in))) && answer < out + BUFFER - 64) {
            *end = 0;
            answer = carry_out(worker, line, answer);
            line = end + 1;
        }
        held -= (size_t)(line - in);
        memmove(in, line, held);
        write_all(worker->socket, out, (size_t)(answer - out));
        stats_add(BYTES_OUT, answer - out);
    }
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    worker->nanoseconds = used.tv_sec * 1e9 + used.tv_nsec;
    return NULL;
}

/* The commands of a batch: each key is set, read twice, and one of four is deleted and missed. */
static size_t make_batch(char *batch)
{
    char *end = batch;
    for (int i = 0; i < BATCH / 8; i++) {
        end += sprintf(end, "SET a%d first\nGET a%d\nGET a%d\nSET b%d second\nGET b%d\n", i, i, i, i, i);
        end += sprintf(end, "DEL b%d\nGET b%d\nGET a%d\n", i, i, i);
    }
    return (size_t)(end - batch);
}

static void *ask(void *argument)
{
    struct worker *worker = (struct worker *)argument;
    char batch[BATCH * 32], answers[BUFFER];
    const size_t len = make_batch(batch);
    for (long i = 0; i < worker->batches; i++) {
        write_all(worker->client, batch, len);
        for (int lines = 0; lines < BATCH;) {
            const ssize_t got = read(worker->client, answers, sizeof answers);
            if (got == 0 || (got < 0 && errno != EINTR))
                fail("read");
            for (ssize_t j = 0; j < got; j++)
                lines += answers[j] == '\n';
        }
    }
    shutdown(worker->client, SHUT_WR);
    return NULL;
}

static void expect(const char *what, enum stat stat, long expected)
{
    if (stats_get(stat) == expected)
        return;
    fprintf(stderr, "kv_server: %s are %ld, and the clients counted %ld\n", what, stats_get(stat), expected);
    exit(1);
}

int main(int count, char **words)
{
    const unsigned threads = count == 3 ? (unsigned)atoi(words[1]) : 0;
    const long commands = count == 3 ? atol(words[2]) : 0;
    if (threads < 1 || threads > THREADS_MAX || commands < BATCH) {
        fprintf(stderr, "usage: kv_server THREADS COMMANDS\n1 to %d threads; at least %d commands for each\n", THREADS_MAX,
                BATCH);
        return 2;
    }
    struct worker *const workers = calloc(threads, sizeof *workers);
    if (!workers || stats_start(threads) != 0)
        fail("no memory");
    for (unsigned i = 0; i < threads; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
            fail("socketpair");
        workers[i].index = i;
        workers[i].socket = pair[0];
        workers[i].client = pair[1];
        workers[i].batches = commands / BATCH;
        errno = pthread_create(&workers[i].thread, NULL, serve, &workers[i]);
        if (errno == 0)
            errno = pthread_create(&workers[i].client_thread, NULL, ask, &workers[i]);
        if (errno != 0)
            fail("pthread_create");
    }
    double nanoseconds = 0;
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(workers[i].client_thread, NULL);
        pthread_join(workers[i].thread, NULL);
        nanoseconds += workers[i].nanoseconds;
    }
    const long eighth = threads * workers->batches * (BATCH / 8);
    expect("commands", COMMANDS, 8 * eighth);
    expect("calls of GET", CALLS_GET, 5 * eighth);
    expect("calls of SET", CALLS_SET, 2 * eighth);
    expect("calls of DEL", CALLS_DEL, eighth);
    expect("hits", HITS, 4 * eighth);
    expect("misses", MISSES, eighth);
    printf("%.1f\n", nanoseconds / (8.0 * (double)eighth));
    return 0;
}
