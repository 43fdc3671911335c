/*
 * The per-cpu counter of librseq's documentation and tests.
 */
#include <rseq/rseq.h>
#include <stdint.h>
#include <stdlib.h>

#define CPUS 8192

struct word {
    intptr_t count;
} __attribute__((aligned(128)));

struct word *corelocal_c_api_begin(void)
{
    if (rseq_register_current_thread())
        return NULL;
    struct word *words = aligned_alloc(128, CPUS * sizeof *words);
    for (int cpu = 0; words && cpu < CPUS; cpu++)
        words[cpu].count = 0;
    return words;
}

void corelocal_c_api_end(struct word *words)
{
    free(words);
}

int64_t corelocal_c_api_counted(struct word *words)
{
    int64_t sum = 0;
    for (int cpu = 0; cpu < CPUS; cpu++)
        sum += words[cpu].count;
    return sum;
}

void corelocal_c_api_librseq(struct word *words, uint64_t times)
{
    if (rseq_register_current_thread())
        return;
    while (times > 0) {
        int cpu = rseq_cpu_start();
        if (rseq_likely(!rseq_load_add_store__ptr(RSEQ_MO_RELAXED, RSEQ_PERCPU_CPU_ID, &words[cpu].count, 1, cpu)))
            times--;
    }
}
