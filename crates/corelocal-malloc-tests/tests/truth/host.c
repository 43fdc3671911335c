/* A program in C that loads a plugin, its first argument, for itself. */

#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words) {
    void *plugin = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    int (*tries)(void) = plugin ? (int (*)(void))dlsym(plugin, "tries") : NULL;
    if (!tries) {
        fprintf(stderr, "no plugin: %s\n", dlerror());
        return 100;
    }
    return tries();
}
