/* RCU with the names of liburcu's memb flavour: a program that includes <urcu.h> may include this instead.
 *
 * What differs: threads need no registration; a grace period that the caller's own reader keeps from ending ends the program
 * (liburcu waits for ever); callbacks run on one thread of the library's, in no order, and in a forked child without
 * call_rcu_before_fork and its kin; the functions that make or choose threads for callbacks do nothing. */
#ifndef CORELOCAL_URCU_H
#define CORELOCAL_URCU_H

#ifdef _URCU_H
#error "include <urcu.h> or <corelocal/urcu.h>, not both"
#endif
#define _URCU_H

#include <stdbool.h>
#include <stdlib.h>

#include "corelocal/rcu.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rcu_head {
    struct rcu_head *next; /* free for the program's use */
    void (*func)(struct rcu_head *head);
};

static inline void rcu_read_lock(void) { corelocal_rcu_read_lock(); }
static inline void rcu_read_unlock(void) { corelocal_rcu_read_unlock(); }
static inline int rcu_read_ongoing(void) { return corelocal_rcu_read_ongoing(); }

static inline void synchronize_rcu(void)
{
    if (corelocal_rcu_synchronize(-1) != 0)
        abort();
}

static inline void rcu_barrier(void)
{
    if (corelocal_rcu_barrier() != 0)
        abort();
}

static inline void corelocal_urcu_run(void *head)
{
    ((struct rcu_head *)head)->func((struct rcu_head *)head);
}

static inline void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
    head->func = func;
    corelocal_rcu_call(corelocal_urcu_run, head, 0);
}

struct urcu_gp_poll_state {
    corelocal_rcu_poll poll;
};

static inline struct urcu_gp_poll_state start_poll_synchronize_rcu(void)
{
    struct urcu_gp_poll_state state;
    corelocal_rcu_start_poll(&state.poll);
    return state;
}

static inline bool poll_state_synchronize_rcu(struct urcu_gp_poll_state state)
{
    return corelocal_rcu_poll_done(&state.poll) == 1;
}

/* Pointers. The macros are those of liburcu's urcu/pointer.h, which a program may have included for its lists. */
#ifndef rcu_dereference
#define rcu_dereference(pointer) __atomic_load_n(&(pointer), __ATOMIC_ACQUIRE)
#define rcu_assign_pointer(pointer, value) __atomic_store_n(&(pointer), value, __ATOMIC_RELEASE)
#define rcu_set_pointer(at, value) __atomic_store_n(at, value, __ATOMIC_RELEASE)
#define rcu_xchg_pointer(at, value) __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST)
#define rcu_cmpxchg_pointer(at, old, value) __sync_val_compare_and_swap(at, old, value)
#endif

/* What is not needed here. */
struct call_rcu_data;
static inline void rcu_init(void) {}
static inline void rcu_register_thread(void) {}
static inline void rcu_unregister_thread(void) {}
static inline void rcu_thread_online(void) {}
static inline void rcu_thread_offline(void) {}
static inline void rcu_quiescent_state(void) {}
static inline void call_rcu_before_fork(void) {}
static inline void call_rcu_after_fork_parent(void) {}
static inline void call_rcu_after_fork_child(void) {}
static inline struct call_rcu_data *create_call_rcu_data(unsigned long flags, int cpu)
{
    (void)flags, (void)cpu;
    return NULL;
}
static inline void call_rcu_data_free(struct call_rcu_data *data) { (void)data; }
static inline struct call_rcu_data *get_default_call_rcu_data(void) { return NULL; }
static inline struct call_rcu_data *get_thread_call_rcu_data(void) { return NULL; }
static inline void set_thread_call_rcu_data(struct call_rcu_data *data) { (void)data; }
static inline struct call_rcu_data *get_cpu_call_rcu_data(int cpu)
{
    (void)cpu;
    return NULL;
}
static inline int create_all_cpu_call_rcu_data(unsigned long flags)
{
    (void)flags;
    return 0;
}
static inline void free_all_cpu_call_rcu_data(void) {}

#ifdef __cplusplus
}
#endif

#endif
