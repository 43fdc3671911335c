// A plugin in C++ for a program in C: what is in it, and in its C++ library, the program does not know.
// `tries` returns 0, or the number of what is wrong.

#include <cstddef>
#include <cstdint>
#include <new>

static std::size_t huge_at_run_time = SIZE_MAX / 4;
static int asked;

static void *seen(void *at) {
    asm volatile("" : "+r"(at) : : "memory");
    return at;
}

static bool throws() {
    try {
        seen(::operator new(huge_at_run_time));
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

extern "C" int tries() {
    if (!throws())
        return 1;
    // Again: what was found is remembered.
    if (!throws())
        return 2;
    if (seen(::operator new(huge_at_run_time, std::nothrow)))
        return 3;
    std::set_new_handler([] {
        asked++;
        throw std::bad_alloc();
    });
    if (!throws() || asked != 1)
        return 4;
    if (seen(::operator new(huge_at_run_time, std::nothrow)) || asked != 2)
        return 5;
    std::set_new_handler(nullptr);
    delete static_cast<int *>(seen(new int));
    return 0;
}
