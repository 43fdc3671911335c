/* Areas and their cells; values of which readers get copies. */
#include <corelocal/area.h>
#include <corelocal/inline.h>
#include <corelocal/rcu_copy.h>

#include "check.h"

enum { ADDS = 50000, TENANTS = 3000 };

static corelocal_area area;
static corelocal_cell cell;

static void *adds(void *number)
{
    uint64_t own = (uint64_t)(long)number;
    for (int i = 0; i < ADDS; i++) {
        CHECK(corelocal_inline_cell_add(&cell, 0, own) == 0 && corelocal_cell_add(&cell, 4, 1) == 0);
        CHECK(corelocal_inline_cell_add(&cell, 4, 1) == 0);
    }
    return NULL;
}

struct walked {
    uint64_t sum;
    int cores;
};

static void walks(const uint64_t *words, size_t n, void *context)
{
    struct walked *walked = (struct walked *)context;
    CHECK(n == 5);
    walked->sum += words[4];
    walked->cores++;
}

static void cells(void)
{
    CHECK(corelocal_area_create(&area, 0, 0) == -EINVAL);
    CHECK(corelocal_area_create(&area, CORELOCAL_CELL_MAX + 1, 0) == -EINVAL);
    for (size_t words = 1; words <= CORELOCAL_CELL_MAX; words += words / 2 + 1) {
        CHECK(corelocal_area_create(&area, words, 2) == 0);
        corelocal_cell two[3];
        CHECK(corelocal_area_take(&area, &two[0]) == 0 && corelocal_area_take(&area, &two[1]) == 0);
        CHECK(corelocal_area_take(&area, &two[2]) == -ENOSPC);
        CHECK(corelocal_inline_cell_add(&two[0], words - 1, 7) == 0);
        CHECK(corelocal_cell_sum(&two[0], words - 1) == 7 && corelocal_cell_sum(&two[1], words - 1) == 0);
        CHECK(corelocal_inline_cell_add(&two[0], words, 1) == -ERANGE && corelocal_cell_add(&two[0], words, 1) == -ERANGE);
        CHECK(corelocal_cell_exchange(&two[0], words, 1) == 0 && corelocal_cell_load(&two[0], words) == 0);
        CHECK(corelocal_cell_sum(&two[0], words) == 0);
        CHECK(corelocal_cell_store_if_equal(&two[0], words, 0, 1) == -ERANGE);
        CHECK(corelocal_cell_here(&two[0]) && corelocal_cell_here(&two[0]) != corelocal_cell_here(&two[1]));
        corelocal_cell_put(&two[0]);
        CHECK(corelocal_area_take(&area, &two[2]) == 0 && corelocal_cell_sum(&two[2], words - 1) == 0);
        corelocal_cell_put(&two[1]);
        corelocal_cell_put(&two[2]);
        corelocal_area_trim(&area);
        corelocal_area_destroy(&area);
        corelocal_area_destroy(&area);
    }
    CHECK(corelocal_area_create(&area, 5, 0) == 0 && corelocal_area_take(&area, &cell) == 0);
    on_threads(adds);
    CHECK(corelocal_cell_sum(&cell, 0) == (uint64_t)ADDS * THREADS * (THREADS - 1) / 2);
    struct walked walked = {0, 0};
    corelocal_cell_walk(&cell, walks, &walked);
    CHECK(walked.sum == 2u * ADDS * THREADS && walked.cores > 0);
    CHECK(corelocal_cell_sum(&cell, 4) == walked.sum);
    /* All that is there, by one core after the other: this thread may be on any. */
    while (corelocal_cell_exchange(&cell, 2, 9) != 9)
        ;
    CHECK(corelocal_cell_store_if_equal(&cell, 2, 10, 1) == 0);
    while (corelocal_cell_store_if_equal(&cell, 2, 9, 1) != 1 && corelocal_cell_exchange(&cell, 2, 9) == 0)
        ;
    corelocal_cell_put(&cell);

    static corelocal_cell tenants[TENANTS];
    for (int i = 0; i < TENANTS; i++) {
        CHECK(corelocal_area_take(&area, &tenants[i]) == 0);
        CHECK(corelocal_inline_cell_add(&tenants[i], 1, (uint64_t)i) == 0);
    }
    for (int i = 0; i < TENANTS; i++) {
        CHECK(corelocal_cell_sum(&tenants[i], 1) == (uint64_t)i && corelocal_cell_sum(&tenants[i], 0) == 0);
        corelocal_cell_put(&tenants[i]);
    }
    corelocal_area_destroy(&area);
}

static corelocal_rcu_copy copy = CORELOCAL_RCU_COPY_INIT;
static int is_over;

static void *reads(void *number)
{
    uint64_t version[8];
    char bytes[20];
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        size_t words = 1 + (size_t)(long)number % 8;
        corelocal_inline_rcu_copy_load(&copy, version, words * 8);
        for (size_t i = 0; i < words; i++)
            CHECK(version[i] == version[0]);
        corelocal_rcu_copy_load(&copy, version, 64);
        for (size_t i = 0; i < 8; i++)
            CHECK(version[i] == version[0]);
        memset(bytes, 0x77, sizeof bytes);
        corelocal_inline_rcu_copy_load(&copy, bytes, 13);
        CHECK(memcmp(bytes, bytes + 8, 5) == 0 && bytes[13] == 0x77);
    }
    return NULL;
}

static void copies(void)
{
    uint64_t version[8] = {1, 2, 3, 4, 5, 6, 7, 8}, loaded[9];
    memset(loaded, 0x55, sizeof loaded);
    corelocal_inline_rcu_copy_load(&copy, loaded, 1000);
    for (int i = 0; i < 8; i++)
        CHECK(loaded[i] == 0);
    CHECK(loaded[8] == 0x5555555555555555);
    corelocal_rcu_copy_store(&copy, version, 20);
    corelocal_inline_rcu_copy_load(&copy, loaded, 64);
    CHECK(loaded[0] == 1 && loaded[1] == 2 && loaded[2] == 3 && loaded[3] == 0 && loaded[7] == 0);
    corelocal_rcu_copy_store(&copy, version, 1000);
    corelocal_rcu_copy_load(&copy, loaded, 64);
    CHECK(memcmp(loaded, version, sizeof version) == 0);
    corelocal_inline_rcu_copy_load(&copy, loaded, 0);

    memset(version, 0, sizeof version);
    corelocal_rcu_copy_store(&copy, version, 64);
    pthread_t readers[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&readers[i], NULL, reads, (void *)i) == 0);
    for (int n = 0; n < 300; n++) {
        memset(version, n, sizeof version);
        corelocal_rcu_copy_store(&copy, version, sizeof version);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(readers[i], NULL) == 0);
    corelocal_rcu_copy_destroy(&copy);
    corelocal_rcu_copy_load(&copy, loaded, 64);
    CHECK(loaded[0] == 0);
}

int main(void)
{
    cells();
    copies();
    return 0;
}
