// corelocal for C++17: the C library's objects as classes.
//
//     corelocal::counter hits;                          // static, too: its constructor is constexpr
//     hits.add(1);                                      // a critical section in this function, no call
//     std::lock_guard<corelocal::mutex> lock(mutex);    // Mutex and TimedMutex of the standard
//     auto start = corelocal::clock::now();             // a clock of std::chrono
//
// Objects can be neither copied nor moved. What holds for functions of C holds here: their headers say where each may be
// called. Errors that a program can do nothing about end it, as a mutex of std does; others are std::system_error or
// std::bad_alloc.
//
// The destructor of a static object ends it when the program exits: a thread that may still use it then needs one that is
// never destroyed, such as `static auto &hits = *new corelocal::counter;`.
#ifndef CORELOCAL_HPP
#define CORELOCAL_HPP

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "corelocal/alloc.h"
#include "corelocal/clock.h"
#include "corelocal/counter.h"
#include "corelocal/histogram.h"
#include "corelocal/inline.h"
#include "corelocal/mutex.h"
#include "corelocal/rcu.h"

namespace corelocal {

namespace detail {

// What has no copy.
struct immovable {
    constexpr immovable() noexcept = default;
    immovable(const immovable &) = delete;
    immovable &operator=(const immovable &) = delete;
};

[[noreturn]] inline void fail(int error, const char *what)
{
    throw std::system_error(-error, std::generic_category(), what);
}

// Nanoseconds of a C function: a span that has passed is 0, the longest one is no limit.
template <class Rep, class Period>
std::int64_t nanoseconds(const std::chrono::duration<Rep, Period> &span)
{
    using std::chrono::nanoseconds;
    if (span <= span.zero())
        return 0;
    // Without overflow.
    if (std::chrono::duration<double>(span) >= std::chrono::duration<double>(nanoseconds::max()))
        return -1;
    const auto whole = std::chrono::duration_cast<nanoseconds>(span);
    return (whole < span ? whole + nanoseconds(1) : whole).count();
}

// Waits by a C function until a point of a clock that may be another one, or be set meanwhile.
template <class Clock, class Duration, class Lock>
bool until(const std::chrono::time_point<Clock, Duration> &end, Lock lock)
{
    for (;;) {
        const int locked = lock(nanoseconds(end - Clock::now()));
        if (locked != -ETIMEDOUT)
            return locked == 0;
        if (Clock::now() >= end)
            return false;
    }
}

} // namespace detail

// A counter: see corelocal/counter.h.
class counter : detail::immovable {
public:
    constexpr counter() noexcept = default;
    ~counter() { corelocal_counter_destroy(&object); }

    void add(std::int64_t n) noexcept { corelocal_inline_counter_add(&object, n); }
    counter &operator+=(std::int64_t n) noexcept { return add(n), *this; }
    counter &operator-=(std::int64_t n) noexcept { return add(static_cast<std::int64_t>(-static_cast<std::uint64_t>(n))), *this; }
    counter &operator++() noexcept { return add(1), *this; }
    counter &operator--() noexcept { return add(-1), *this; }

    std::int64_t get() const noexcept { return corelocal_counter_get(&object); }
    // Returns the value and leaves 0.
    std::int64_t take() noexcept { return corelocal_counter_take(&object); }

    corelocal_counter *native_handle() noexcept { return &object; }

private:
    corelocal_counter object = CORELOCAL_COUNTER_INIT;
};

// Many counters side by side. Throws std::bad_alloc, or std::system_error for a number that a set cannot have.
class counter_set : detail::immovable {
public:
    explicit counter_set(std::size_t n)
    {
        const int made = corelocal_counter_set_create(&object, n);
        if (made == -ENOMEM)
            throw std::bad_alloc();
        if (made != 0)
            detail::fail(made, "corelocal::counter_set");
    }
    ~counter_set() { corelocal_counter_set_destroy(&object); }

    std::size_t size() const noexcept { return object.len; }
    // False if there is no such counter.
    bool add(std::size_t index, std::int64_t n) noexcept { return corelocal_inline_counter_set_add(&object, index, n) == 0; }
    std::int64_t get(std::size_t index) const noexcept { return corelocal_counter_set_get(&object, index); }
    std::int64_t take(std::size_t index) noexcept { return corelocal_counter_set_take(&object, index); }
    std::vector<std::int64_t> get_all() const
    {
        std::vector<std::int64_t> values(size());
        corelocal_counter_set_get_all(&object, values.data(), values.size());
        return values;
    }

    corelocal_counter_set *native_handle() noexcept { return &object; }

private:
    corelocal_counter_set object;
};

// What a histogram held at one moment: 15 KiB.
class snapshot {
public:
    using bucket = corelocal_bucket;

    std::uint64_t count() const noexcept { return corelocal_snapshot_count(&object); }
    // The bucket of the value that a share q of all does not exceed; none if there are no values.
    std::optional<bucket> quantile(double q) const noexcept
    {
        bucket found;
        if (corelocal_snapshot_quantile(&object, q, &found) != 0)
            return std::nullopt;
        return found;
    }
    // Not a number if there are no values.
    double mean() const noexcept { return corelocal_snapshot_mean(&object); }
    std::vector<bucket> buckets() const
    {
        std::vector<bucket> found(corelocal_snapshot_buckets(&object, nullptr, 0));
        corelocal_snapshot_buckets(&object, found.data(), found.size());
        return found;
    }
    snapshot &operator+=(const snapshot &other) noexcept
    {
        // A C function has two different ones.
        const snapshot copy = other;
        corelocal_snapshot_merge(&object, &copy.object);
        return *this;
    }

    corelocal_snapshot *native_handle() noexcept { return &object; }

private:
    corelocal_snapshot object = CORELOCAL_SNAPSHOT_INIT;
};

// A histogram: see corelocal/histogram.h. 15 KiB: for static memory or the heap.
class histogram : detail::immovable {
public:
    constexpr histogram() noexcept = default;
    ~histogram() { corelocal_histogram_destroy(&object); }

    void record(std::uint64_t value, std::uint64_t n = 1) noexcept { corelocal_histogram_record(&object, value, n); }
    void read(snapshot &into) const noexcept { corelocal_histogram_snapshot(&object, into.native_handle()); }
    // Leaves the histogram empty.
    void take(snapshot &into) noexcept { corelocal_histogram_take(&object, into.native_handle()); }

    corelocal_histogram *native_handle() noexcept { return &object; }

private:
    corelocal_histogram object = CORELOCAL_HISTOGRAM_INIT;
};

// Mutex and TimedMutex: for std::lock_guard, std::unique_lock, std::scoped_lock, std::condition_variable_any.
//
// In a child of fork, lock throws std::system_error with errc::owner_dead if another thread of the parent owned it at the
// fork: what it protects may be half changed. It is free then.
class mutex : detail::immovable {
public:
    constexpr mutex() noexcept = default;

    void lock()
    {
        const int locked = corelocal_mutex_lock(&object);
        if (locked != 0) {
            corelocal_mutex_unlock(&object);
            detail::fail(locked, "corelocal::mutex");
        }
    }
    bool try_lock() noexcept { return corelocal_mutex_try_lock(&object) == 0; }
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &span)
    {
        return corelocal_mutex_lock_for(&object, detail::nanoseconds(span)) == 0;
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &end)
    {
        return detail::until(end, [this](std::int64_t span) { return corelocal_mutex_lock_for(&object, span); });
    }
    void unlock() noexcept { corelocal_mutex_unlock(&object); }

    using native_handle_type = corelocal_mutex *;
    native_handle_type native_handle() noexcept { return &object; }

private:
    corelocal_mutex object = CORELOCAL_MUTEX_INIT;
};

// SharedMutex and SharedTimedMutex: for std::shared_lock and std::unique_lock.
//
// In a child of fork, locking throws std::system_error with errc::no_such_process if threads of the parent held it.
class shared_mutex : detail::immovable {
public:
    constexpr shared_mutex() noexcept = default;

    void lock() { wait(corelocal_rwlock_write(&object, -1)); }
    bool try_lock() noexcept { return corelocal_rwlock_write(&object, 0) == 0; }
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &span)
    {
        return corelocal_rwlock_write(&object, detail::nanoseconds(span)) == 0;
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &end)
    {
        return detail::until(end, [this](std::int64_t span) { return corelocal_rwlock_write(&object, span); });
    }
    void unlock() noexcept { corelocal_rwlock_write_unlock(&object); }

    void lock_shared() { wait(corelocal_rwlock_read(&object, -1)); }
    bool try_lock_shared() noexcept { return corelocal_rwlock_read(&object, 0) == 0; }
    template <class Rep, class Period>
    bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &span)
    {
        return corelocal_rwlock_read(&object, detail::nanoseconds(span)) == 0;
    }
    template <class Clock, class Duration>
    bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &end)
    {
        return detail::until(end, [this](std::int64_t span) { return corelocal_rwlock_read(&object, span); });
    }
    void unlock_shared() noexcept { corelocal_rwlock_read_unlock(&object); }

    using native_handle_type = corelocal_rwlock *;
    native_handle_type native_handle() noexcept { return &object; }

private:
    static void wait(int locked)
    {
        if (locked != 0)
            detail::fail(locked, "corelocal::shared_mutex");
    }

    corelocal_rwlock object = CORELOCAL_RWLOCK_INIT;
};

// CLOCK_MONOTONIC, as std::chrono::steady_clock, by reading memory.
struct clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<clock>;
    static constexpr bool is_steady = true;

    static time_point now() noexcept { return time_point(duration(static_cast<rep>(corelocal_clock_monotonic()))); }
};

// CLOCK_REALTIME in the time points of std::chrono::system_clock.
struct system_clock {
    using duration = std::chrono::system_clock::duration;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::system_clock::time_point;
    static constexpr bool is_steady = false;

    static time_point now() noexcept
    {
        const std::chrono::nanoseconds since(static_cast<std::int64_t>(corelocal_clock_realtime()));
        return time_point(std::chrono::duration_cast<duration>(since));
    }
};

// Memory of corelocal's malloc for containers of std::pmr. All objects of the class are equal.
class memory_resource : public std::pmr::memory_resource {
    void *do_allocate(std::size_t bytes, std::size_t align) override
    {
        void *const memory = corelocal_allocate(bytes, align);
        if (memory == nullptr)
            throw std::bad_alloc();
        return memory;
    }
    void do_deallocate(void *memory, std::size_t bytes, std::size_t align) override
    {
        corelocal_deallocate(memory, bytes, align);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return this == &other || dynamic_cast<const memory_resource *>(&other) != nullptr;
    }
};

// RCU with the names of C++26 (P2545). There is one domain.
class rcu_domain : detail::immovable {
public:
    // A reader: for std::scoped_lock and std::unique_lock. Readers nest.
    void lock() noexcept { corelocal_rcu_read_lock(); }
    bool try_lock() noexcept { return lock(), true; }
    void unlock() noexcept { corelocal_rcu_read_unlock(); }

private:
    constexpr rcu_domain() noexcept = default;
    friend rcu_domain &rcu_default_domain() noexcept;
};

inline rcu_domain &rcu_default_domain() noexcept
{
    static rcu_domain domain;
    return domain;
}

// Waits for all readers. Throws std::system_error: see corelocal_rcu_synchronize.
inline void rcu_synchronize(rcu_domain & = rcu_default_domain())
{
    if (const int error = corelocal_rcu_synchronize(-1))
        detail::fail(error, "corelocal::rcu_synchronize");
}

// Waits until what was retired has been deleted.
inline void rcu_barrier(rcu_domain & = rcu_default_domain())
{
    if (const int error = corelocal_rcu_barrier())
        detail::fail(error, "corelocal::rcu_barrier");
}

// Has the object deleted once all readers have ended. Throws std::bad_alloc; then it is not retired.
template <class T, class D = std::default_delete<T>>
void rcu_retire(T *object, D deleter = D(), rcu_domain & = rcu_default_domain())
{
    struct retired {
        T *object;
        D deleter;
    };
    std::unique_ptr<retired> parcel(new retired{object, std::move(deleter)});
    corelocal_rcu_call(
        [](void *argument) {
            const std::unique_ptr<retired> parcel(static_cast<retired *>(argument));
            parcel->deleter(parcel->object);
        },
        parcel.get(), sizeof(T));
    parcel.release();
}

// The base of objects that retire themselves.
template <class T, class D = std::default_delete<T>>
class rcu_obj_base {
public:
    void retire(D deleter = D(), rcu_domain &domain = rcu_default_domain())
    {
        rcu_retire(static_cast<T *>(this), std::move(deleter), domain);
    }

protected:
    rcu_obj_base() = default;
    rcu_obj_base(const rcu_obj_base &) = default;
    rcu_obj_base(rcu_obj_base &&) = default;
    rcu_obj_base &operator=(const rcu_obj_base &) = default;
    rcu_obj_base &operator=(rcu_obj_base &&) = default;
    ~rcu_obj_base() = default;
};

} // namespace corelocal

#endif
