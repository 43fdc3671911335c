/* Counting from C, in the ways that C programs have. Each function adds 1 so many times to counters of its own. */
#include <corelocal/counter.h>
#include <corelocal/inline.h>
#include <stdlib.h>

#define SET 500

struct state {
    corelocal_counter counter;
    corelocal_counter_set set;
    int64_t shared;
};

struct state *corelocal_c_api_begin(void)
{
    struct state *state = calloc(1, sizeof *state);
    if (state && corelocal_counter_set_create(&state->set, SET) != 0) {
        free(state);
        return NULL;
    }
    return state;
}

void corelocal_c_api_end(struct state *state)
{
    corelocal_counter_destroy(&state->counter);
    corelocal_counter_set_destroy(&state->set);
    free(state);
}

/* One of the functions below has added. */
int64_t corelocal_c_api_counted(struct state *state)
{
    int64_t values[SET], sum = state->shared + corelocal_counter_get(&state->counter);
    corelocal_counter_set_get_all(&state->set, values, SET);
    for (size_t at = 0; at < SET; at++)
        sum += values[at];
    return sum;
}

void corelocal_c_api_inline(struct state *state, uint64_t times)
{
    for (; times > 0; times--)
        corelocal_inline_counter_add(&state->counter, 1);
}

void corelocal_c_api_call(struct state *state, uint64_t times)
{
    for (; times > 0; times--)
        corelocal_counter_add(&state->counter, 1);
}

/* To all counters of the set in turn. */
void corelocal_c_api_set_inline(struct state *state, uint64_t times)
{
    while (times > 0) {
        size_t end = times < SET ? times : SET;
        for (size_t at = 0; at < end; at++)
            corelocal_inline_counter_set_add(&state->set, at, 1);
        times -= end;
    }
}

void corelocal_c_api_set_call(struct state *state, uint64_t times)
{
    while (times > 0) {
        size_t end = times < SET ? times : SET;
        for (size_t at = 0; at < end; at++)
            corelocal_counter_set_add(&state->set, at, 1);
        times -= end;
    }
}

void corelocal_c_api_atomic(struct state *state, uint64_t times)
{
    for (; times > 0; times--)
        __atomic_fetch_add(&state->shared, 1, __ATOMIC_RELAXED);
}
