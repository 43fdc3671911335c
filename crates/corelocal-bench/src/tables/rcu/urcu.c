/*
 * Reads and updates of liburcu, inlined as its licence allows for all programs: see urcu.rs. Compiled once for each of
 * three flavours.
 */
#define _LGPL_SOURCE
#include <stdint.h>
#include <stdlib.h>
#if defined(FLAVOUR_MEMB)
#include <urcu/urcu-memb.h>
#elif defined(FLAVOUR_BP)
#include <urcu/urcu-bp.h>
#elif defined(FLAVOUR_QSBR)
#include <urcu/urcu-qsbr.h>
#endif
#include <urcu/pointer.h>

/* A thread of the flavour qsbr says after so many reads that it has no reference. */
#define QUIET_EVERY 1024

struct node {
	struct rcu_head head;
	uint64_t value;
};

static void free_node(struct rcu_head *head)
{
	free(caa_container_of(head, struct node, head));
}

/*
 * corelocal_urcu_FLAVOUR_read: reads so many times, and returns how often the value was the expected one. The thread is
 * registered for this long.
 * corelocal_urcu_FLAVOUR_free: allocates so many nodes, and has them freed after grace periods; all are when it returns.
 * corelocal_urcu_FLAVOUR_wait: waits for so many grace periods.
 */
#define DEFINE(flavour, quiet)                                                                     \
	uint64_t corelocal_urcu_##flavour##_read(uint64_t **at, uint64_t expected, uint64_t times) \
	{                                                                                          \
		uint64_t right = 0;                                                                \
		urcu_##flavour##_register_thread();                                                \
		for (uint64_t nth = 0; nth < times; nth++) {                                       \
			urcu_##flavour##_read_lock();                                              \
			uint64_t *value = rcu_dereference(*at);                                    \
			right += *value == expected;                                               \
			urcu_##flavour##_read_unlock();                                            \
			quiet;                                                                     \
		}                                                                                  \
		urcu_##flavour##_unregister_thread();                                              \
		return right;                                                                      \
	}                                                                                          \
                                                                                                   \
	void corelocal_urcu_##flavour##_free(uint64_t times)                                       \
	{                                                                                          \
		urcu_##flavour##_register_thread();                                                \
		for (uint64_t nth = 0; nth < times; nth++) {                                       \
			struct node *node = malloc(sizeof(*node));                                 \
			if (!node)                                                                 \
				abort();                                                           \
			node->value = nth;                                                         \
			urcu_##flavour##_call_rcu(&node->head, free_node);                         \
			quiet;                                                                     \
		}                                                                                  \
		urcu_##flavour##_barrier();                                                        \
		urcu_##flavour##_unregister_thread();                                              \
	}                                                                                          \
                                                                                                   \
	void corelocal_urcu_##flavour##_wait(uint64_t times)                                       \
	{                                                                                          \
		for (uint64_t nth = 0; nth < times; nth++)                                         \
			urcu_##flavour##_synchronize_rcu();                                        \
	}

#if defined(FLAVOUR_MEMB)
DEFINE(memb, (void)0)
#elif defined(FLAVOUR_BP)
DEFINE(bp, (void)0)
#elif defined(FLAVOUR_QSBR)
DEFINE(qsbr, nth % QUIET_EVERY ? (void)0 : urcu_qsbr_quiescent_state())
#endif
