// C++'s operators new and delete in every shape, as the standard has them, for whatever malloc the program runs
// with. Ends with exit code 0 and a line of what it did, or with 1 and a line of what is wrong.
//
// Compiled a second time with OVERRIDES the program brings operators of its own, the plain ones only: the others
// are to come to these.
//
// A first argument `limited` says that there is little memory.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static void expect(bool holds, const char *what, long with = 0) {
    if (!holds) {
        std::fprintf(stderr, "wrong: %s, %ld\n", what, with);
        std::_Exit(1);
    }
}

// The compiler must not see that nobody uses it.
static void *seen(void *at) {
    asm volatile("" : "+r"(at) : : "memory");
    return at;
}

#ifdef OVERRIDES
static const std::size_t sizes[] = {0, 1, 8, 15, 16, 17, 100, 1000, 1024, 1025, 5000, 70000};
static const std::size_t aligns[] = {1, 8, 16, 32, 64, 256, 4096};
#else
static const std::size_t sizes[] = {0, 1, 8, 15, 16, 17, 100, 1000, 1024, 1025, 5000, 70000, 1 << 20, 3000000};
static const std::size_t aligns[] = {1, 8, 16, 32, 64, 256, 4096, 65536, 2 << 20};
#endif
static const std::size_t huge = SIZE_MAX / 4;
static std::size_t huge_at_run_time = huge;

#ifdef OVERRIDES
// A place of its own: what is given back here must lie in it.
static std::atomic<long> taken, given;
static char place[64 << 20];
static std::atomic<std::size_t> used;

static void *from_place(std::size_t size, std::size_t align) {
    if (size > sizeof place)
        throw std::bad_alloc();
    std::size_t at = used.fetch_add(size + align);
    expect(at + size + align <= sizeof place, "the place is large enough");
    taken++;
    std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(place) + at;
    return reinterpret_cast<void *>((begin + align - 1) / align * align);
}
static void to_place(void *at) {
    if (!at)
        return;
    char *bytes = static_cast<char *>(at);
    expect(bytes >= place && bytes < place + sizeof place, "a foreign object came to the program's delete");
    given++;
}
void *operator new(std::size_t size) { return from_place(size, 16); }
void operator delete(void *at) noexcept { to_place(at); }
void *operator new(std::size_t size, std::align_val_t align) { return from_place(size, std::size_t(align)); }
void operator delete(void *at, std::align_val_t) noexcept { to_place(at); }
#endif

static void *filled(void *at, std::size_t size, std::size_t align) {
    seen(at);
    expect(at != nullptr, "no memory for", long(size));
    expect(reinterpret_cast<std::uintptr_t>(at) % align == 0, "not aligned to", long(align));
    std::memset(at, 0x5a, size);
    return seen(at);
}

static long shapes() {
    long count = 0;
    for (std::size_t size : sizes) {
        // Twice, so that what was given back is taken again.
        for (int again = 0; again < 2; again++) {
            std::size_t plain = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
            ::operator delete(filled(::operator new(size), size, plain));
            ::operator delete(filled(::operator new(size), size, plain), size);
            ::operator delete(filled(::operator new(size), size, plain), std::nothrow);
            ::operator delete(filled(::operator new(size, std::nothrow), size, plain));
            ::operator delete[](filled(::operator new[](size), size, plain));
            ::operator delete[](filled(::operator new[](size), size, plain), size);
            ::operator delete[](filled(::operator new[](size), size, plain), std::nothrow);
            ::operator delete[](filled(::operator new[](size, std::nothrow), size, plain));
            count += 8;
        }
        for (std::size_t align : aligns) {
            std::align_val_t a{align};
            ::operator delete(filled(::operator new(size, a), size, align), a);
            ::operator delete(filled(::operator new(size, a), size, align), size, a);
            ::operator delete(filled(::operator new(size, a), size, align), a, std::nothrow);
            ::operator delete(filled(::operator new(size, a, std::nothrow), size, align), a);
            ::operator delete[](filled(::operator new[](size, a), size, align), a);
            ::operator delete[](filled(::operator new[](size, a), size, align), size, a);
            ::operator delete[](filled(::operator new[](size, a), size, align), a, std::nothrow);
            ::operator delete[](filled(::operator new[](size, a, std::nothrow), size, align), a);
            count += 8;
        }
    }
    ::operator delete(seen(nullptr));
    ::operator delete(seen(nullptr), std::size_t(8));
    ::operator delete[](seen(nullptr), std::nothrow);
    ::operator delete(seen(nullptr), std::align_val_t(64));
    return count;
}

struct alignas(128) Aligned {
    char bytes[200];
    explicit Aligned(bool throws = false) {
        if (throws)
            throw std::runtime_error("from a constructor");
    }
};

struct Counted {
    static int alive;
    std::string text;
    Counted() : text(50, 'x') {
        if (alive == 70)
            throw std::runtime_error("the seventy-first");
        alive++;
    }
    ~Counted() { alive--; }
};
int Counted::alive;

static void expressions() {
    Aligned *one = new Aligned, *many = new Aligned[7];
    expect(reinterpret_cast<std::uintptr_t>(one) % 128 == 0 && reinterpret_cast<std::uintptr_t>(many) % 128 == 0,
           "a class's alignment");
    delete one;
    delete[] many;
    // A constructor that throws: the memory goes back by the delete that belongs to the new.
    for (int again = 0; again < 100; again++) {
        try {
            seen(new Aligned(true));
            expect(false, "nothing was thrown");
        } catch (const std::runtime_error &) {
        }
        try {
            seen(new (std::nothrow) Aligned(true));
            expect(false, "nothing was thrown");
        } catch (const std::runtime_error &) {
        }
        try {
            seen(new Counted[100]);
            expect(false, "nothing was thrown");
        } catch (const std::runtime_error &) {
        }
        expect(Counted::alive == 0, "objects of an array whose construction failed", Counted::alive);
    }
}

template <class F> static const char *thrown(F f) {
    try {
        f();
    } catch (const std::bad_array_new_length &) {
        return "bad_array_new_length";
    } catch (const std::bad_alloc &) {
        return "bad_alloc";
    } catch (const char *text) {
        return text;
    }
    return "nothing";
}

static void is(const char *found, const char *expected, long where) {
    if (std::strcmp(found, expected) != 0) {
        std::fprintf(stderr, "wrong: %s was thrown, not %s, %ld\n", found, expected, where);
        std::_Exit(1);
    }
}

struct Unwound {
    int &count;
    std::vector<int> own = std::vector<int>(100, 7);
    ~Unwound() { count++; }
};

static void deep(int depth, int &count) {
    Unwound unwound{count};
    if (depth == 0)
        seen(::operator new(huge_at_run_time));
    else
        deep(depth - 1, count);
}

static void missing() {
    std::align_val_t a{256};
    is(thrown([] { seen(::operator new(huge_at_run_time)); }), "bad_alloc", 1);
    is(thrown([] { seen(::operator new[](huge_at_run_time)); }), "bad_alloc", 2);
    is(thrown([&] { seen(::operator new(huge_at_run_time, a)); }), "bad_alloc", 3);
    is(thrown([&] { seen(::operator new[](huge_at_run_time, a)); }), "bad_alloc", 4);
    is(thrown([] { seen(new int[huge_at_run_time]); }), "bad_array_new_length", 5);
    expect(!seen(::operator new(huge_at_run_time, std::nothrow)), "nothrow");
    expect(!seen(::operator new[](huge_at_run_time, std::nothrow)), "nothrow[]");
    expect(!seen(::operator new(huge_at_run_time, a, std::nothrow)), "nothrow, aligned");
    expect(!seen(::operator new[](huge_at_run_time, a, std::nothrow)), "nothrow[], aligned");
    // Through frames that have something to clean up.
    int count = 0;
    is(thrown([&] { deep(50, count); }), "bad_alloc", 6);
    expect(count == 51, "frames were cleaned up", count);
    is(thrown([] { std::string(huge_at_run_time, 'x'); }), "bad_alloc", 7);
#ifndef OVERRIDES
    static int handled;
    // The handler is asked until it gives up.
    std::set_new_handler([] {
        if (++handled == 3)
            std::set_new_handler(nullptr);
    });
    is(thrown([] { seen(::operator new(huge_at_run_time)); }), "bad_alloc", 8);
    expect(handled == 3, "the handler was called", handled);
    // By those that do not throw, too.
    handled = 0;
    std::set_new_handler([] {
        if (++handled == 5)
            throw std::bad_alloc();
    });
    expect(!seen(::operator new(huge_at_run_time, std::nothrow)), "nothrow, with a handler that throws");
    expect(handled == 5, "the handler of nothrow was called", handled);
    handled = 4;
    expect(!seen(::operator new[](huge_at_run_time, a, std::nothrow)), "aligned, with a handler that throws");
    expect(handled == 5, "the handler of aligned nothrow was called", handled);
    // What it throws comes through.
    std::set_new_handler([] { throw "mine"; });
    is(thrown([] { seen(::operator new(huge_at_run_time)); }), "mine", 9);
    is(thrown([&] { seen(::operator new[](huge_at_run_time, a)); }), "mine", 10);
    std::set_new_handler(nullptr);
#endif
}

static void threads() {
    std::vector<std::thread> running;
    std::atomic<long> sum{0};
    std::vector<std::unique_ptr<std::string>> left(8);
    for (int nth = 0; nth < 8; nth++)
        running.emplace_back([nth, &sum, &left] {
            std::map<std::string, std::vector<std::shared_ptr<std::string>>> map;
            for (int i = 0; i < 3000; i++)
                map[std::to_string(i % 100)].push_back(std::make_shared<std::string>(i % 77, char('a' + nth)));
            for (auto &entry : map)
                for (auto &text : entry.second) {
                    expect(text->find_first_not_of(char('a' + nth)) == std::string::npos, "a text changed");
                    sum += long(text->size());
                }
            left[nth] = std::make_unique<std::string>(1000, 'x');
            try {
                throw std::runtime_error(std::string(500, 'y'));
            } catch (const std::exception &error) {
                expect(std::strlen(error.what()) == 500, "an exception's text");
            }
        });
    for (auto &thread : running)
        thread.join();
    expect(sum == 8 * [] { long all = 0; for (int i = 0; i < 3000; i++) all += i % 77; return all; }(), "sum", sum);
}

#ifndef OVERRIDES
// A reserve that is given up when there is nothing left.
static std::vector<void *> reserve;
static int handled;

static long limited() {
    const std::size_t piece = 100000;
    for (int i = 0; i < 100; i++)
        reserve.push_back(filled(::operator new(piece), piece, 16));
    std::set_new_handler([] {
        handled++;
        if (reserve.empty())
            throw std::bad_alloc();
        for (void *at : reserve)
            ::operator delete(at);
        reserve.clear();
    });
    // No vector of ours: it would want memory, too. The first word is the next one.
    void *list = nullptr;
    long had = 0, after = 0;
    try {
        for (;;) {
            void *at = had % 2 ? ::operator new(piece) : ::operator new[](piece, std::align_val_t(64));
            filled(at, piece, had % 2 ? 16 : 64);
            std::memcpy(at, &list, sizeof list);
            list = at;
            had++;
            after += handled > 0;
        }
    } catch (const std::bad_alloc &) {
    }
    expect(handled == 2, "calls of the handler", handled);
    expect(after >= 50, "pieces that the reserve was good for", after);
    expect(!seen(::operator new(50000000, std::nothrow)), "nothrow, without memory");
    while (list) {
        void *next;
        std::memcpy(&next, list, sizeof next);
        // Those of the alignment were taken at even numbers.
        if (--had % 2)
            ::operator delete(list, piece);
        else
            ::operator delete[](list, piece, std::align_val_t(64));
        list = next;
    }
    expect(seen(::operator new(piece)) != nullptr, "memory again");
    return after;
}
#endif

int main(int argc, char **) {
#ifdef OVERRIDES
    (void)argc;
    long count = shapes();
    expect(taken == given && taken == count, "the program's operators were asked", taken);
    expressions();
    expect(taken == given, "taken and given by expressions", taken - given);
    missing();
    threads();
#else
    if (argc > 1) {
        std::printf("%ld pieces after the handler\n", limited() > 0 ? 1L : 0L);
        return 0;
    }
    long count = shapes();
    expressions();
    missing();
    threads();
#endif
    std::printf("%ld of all shapes\n", count);
}
