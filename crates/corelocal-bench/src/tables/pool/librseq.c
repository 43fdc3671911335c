/*
 * Turns on the per-cpu list of librseq, as its own tests write it: see librseq.rs.
 */
#include <rseq/rseq.h>
#include <stddef.h>
#include <stdint.h>

/* The beginning of an object. */
struct node {
    uint64_t number;
    struct node *next;
};

/* A cpu's own lines. */
struct head {
    struct node *first;
} __attribute__((aligned(128)));

static struct node *pop(struct head *heads)
{
    for (;;) {
        struct node *node;
        int cpu = rseq_cpu_start();
        int ret = rseq_load_cbeq_store_add_load_store__ptr(
            RSEQ_MO_RELAXED, RSEQ_PERCPU_CPU_ID, (intptr_t *)&heads[cpu].first, (intptr_t)NULL,
            offsetof(struct node, next), (intptr_t *)&node, cpu);
        if (rseq_likely(!ret))
            return node;
        if (ret > 0)
            return NULL;
        /* Aborted. */
    }
}

static void push(struct head *heads, struct node *node)
{
    for (;;) {
        int cpu = rseq_cpu_start();
        intptr_t expected = (intptr_t)RSEQ_READ_ONCE(heads[cpu].first);
        node->next = (struct node *)expected;
        if (rseq_likely(!rseq_load_cbne_store__ptr(RSEQ_MO_RELAXED, RSEQ_PERCPU_CPU_ID,
                                                   (intptr_t *)&heads[cpu].first, expected,
                                                   (intptr_t)node, cpu)))
            return;
        /* Aborted, or another thread of this cpu was faster. */
    }
}

/* Takes a node and gives it back, `times` times; 0, or -1 for a thread that cannot be registered. */
int corelocal_librseq_turns(struct head *heads, uint64_t times, struct node *(*make)(void *), void *data)
{
    if (rseq_register_current_thread())
        return -1;
    for (uint64_t i = 0; i < times; i++) {
        struct node *node = pop(heads);
        if (!node)
            node = make(data);
        /* Somebody may have used it. */
        __asm__ volatile("" : "+r"(node) : : "memory");
        push(heads, node);
    }
    return 0;
}
