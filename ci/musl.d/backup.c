/* A load as of a backup program: threads read blocks of 128 KiB, hash each of their pieces and remember new ones in an index; one
 * thread writes what is new, and frees it. Prints the seconds it took, and the most memory that was resident, in MiB.
 *
 *     backup [THREADS [BLOCKS]]    8 threads with 4,000 blocks each */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { BLOCK = 128 * 1024, SHARDS = 256, BUCKETS = 1024, WAITING_MAX = 64 };

struct piece { struct piece *next; uint64_t hash; char name[]; };
struct shard { pthread_mutex_t lock; struct piece *buckets[BUCKETS]; };
struct work { struct work *next; char *bytes; size_t len; };

static struct shard shards[SHARDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct work *waiting;
static int waiting_count, readers;
static long blocks;
static uint64_t written;

static void *get(size_t len)
{
    void *memory = malloc(len);
    if (!memory)
        abort();
    return memory;
}

static uint64_t random_of(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Puts a piece into the index. True if it is new. */
static int remember(uint64_t hash, uint64_t number)
{
    struct shard *const shard = &shards[hash % SHARDS];
    struct piece **const bucket = &shard->buckets[hash / SHARDS % BUCKETS];
    char name[160];
    const int len = snprintf(name, sizeof name, "home/user/folder/%llu/file-%llu", (unsigned long long)(number % 977),
                             (unsigned long long)hash);
    struct piece *const fresh = get(sizeof *fresh + (size_t)len + 1), *at;
    fresh->hash = hash;
    memcpy(fresh->name, name, (size_t)len + 1);
    pthread_mutex_lock(&shard->lock);
    for (at = *bucket; at && at->hash != hash; at = at->next)
        ;
    if (!at) {
        fresh->next = *bucket;
        *bucket = fresh;
    }
    pthread_mutex_unlock(&shard->lock);
    if (at)
        free(fresh);
    return !at;
}

static void hand_over(char *bytes, size_t len)
{
    struct work *const work = get(sizeof *work);
    work->bytes = bytes;
    work->len = len;
    pthread_mutex_lock(&lock);
    while (waiting_count >= WAITING_MAX)
        pthread_cond_wait(&changed, &lock);
    work->next = waiting;
    waiting = work;
    waiting_count++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void *reads(void *argument)
{
    uint64_t state = 0x9e3779b97f4a7c15 * ((uintptr_t)argument + 1);
    for (long i = 0; i < blocks; i++) {
        char *const block = get(BLOCK);
        for (size_t at = 0; at < BLOCK; at += sizeof state) {
            random_of(&state);
            memcpy(block + at, &state, sizeof state);
        }
        /* One of four blocks was there before. */
        if (i % 4 == 0)
            memset(block, (int)(i % 64), BLOCK);
        size_t from = 0, kept = 0;
        char *const packed = get(BLOCK + 512);
        while (from < BLOCK) {
            size_t len = 2048 + random_of(&state) % 14336;
            uint64_t hash = 14695981039346656037u;
            if (len > BLOCK - from)
                len = BLOCK - from;
            for (size_t at = from; at + 8 <= from + len; at += 8) {
                uint64_t word;
                memcpy(&word, block + at, sizeof word);
                hash = (hash ^ word) * 1099511628211u;
            }
            if (remember(hash, (uint64_t)i)) {
                memcpy(packed + kept, block + from, len);
                kept += len;
            }
            from += len;
        }
        free(block);
        char *const fitting = realloc(packed, kept + 1);
        hand_over(fitting ? fitting : packed, kept);
    }
    pthread_mutex_lock(&lock);
    readers--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *writes(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&lock);
    while (waiting || readers) {
        struct work *const work = waiting;
        if (!work) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        waiting = work->next;
        waiting_count--;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        written += work->len;
        free(work->bytes);
        free(work);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(int count, char **words)
{
    pthread_t threads[256], writer;
    struct timespec from, until;
    struct rusage used;
    const int number = count > 1 ? atoi(words[1]) : 8;
    blocks = count > 2 ? atol(words[2]) : 4000;
    if (number < 1 || number > 256 || blocks < 1)
        return 2;
    readers = number;
    for (int i = 0; i < SHARDS; i++)
        pthread_mutex_init(&shards[i].lock, NULL);
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (pthread_create(&writer, NULL, writes, NULL) != 0)
        return 1;
    for (int i = 0; i < number; i++)
        if (pthread_create(&threads[i], NULL, reads, (void *)(uintptr_t)i) != 0)
            return 1;
    for (int i = 0; i < number; i++)
        pthread_join(threads[i], NULL);
    pthread_join(writer, NULL);
    clock_gettime(CLOCK_MONOTONIC, &until);
    getrusage(RUSAGE_SELF, &used);
    printf("%.3f %.1f\n", (double)(until.tv_sec - from.tv_sec) + (double)(until.tv_nsec - from.tv_nsec) / 1e9,
           (double)used.ru_maxrss / 1024);
    return written == 0;
}
