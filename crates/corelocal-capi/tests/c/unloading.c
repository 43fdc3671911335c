/* Loads libcorelocal and a plugin with inline sections, and closes both while a thread sleeps that has used them: the
 * kernel then reads what describes its last section. Arguments: the two files. */
#include <dlfcn.h>

#include "check.h"

static int64_t (*adds)(int);
static int step;

static void *uses(void *number)
{
    (void)number;
    CHECK(adds(1000) == 1000);
    __atomic_store_n(&step, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&step, __ATOMIC_ACQUIRE) < 2)
        nap(1);
    nap(20);
    return NULL;
}

int main(int count, char **files)
{
    CHECK(count == 3);
    void *library = dlopen(files[1], RTLD_NOW), *plugin = dlopen(files[2], RTLD_NOW);
    if (!library || !plugin) {
        printf("%s\n", dlerror());
        return 1;
    }
    void *symbol = dlsym(plugin, "plugin_adds");
    CHECK(symbol);
    memcpy(&adds, &symbol, sizeof adds);
    pthread_t user;
    CHECK(pthread_create(&user, NULL, uses, NULL) == 0);
    while (!__atomic_load_n(&step, __ATOMIC_ACQUIRE))
        nap(1);
    CHECK(dlclose(plugin) == 0 && dlclose(library) == 0);
    __atomic_store_n(&step, 2, __ATOMIC_RELEASE);
    CHECK(pthread_join(user, NULL) == 0);
    CHECK(adds(1) == 1001);
    return 0;
}
