// The classes of corelocal.hpp.
#include <corelocal/corelocal.hpp>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "check.h"

using namespace std::chrono_literals;

static corelocal::counter hits;
static corelocal::mutex of_all;
static corelocal::shared_mutex of_readers;
static corelocal::histogram sizes;

static_assert(!std::is_copy_constructible_v<corelocal::counter> && !std::is_move_constructible_v<corelocal::mutex>);
static_assert(std::is_nothrow_default_constructible_v<corelocal::mutex>);
static_assert(sizeof(corelocal::counter) == 24 && sizeof(corelocal::mutex) == 8 && sizeof(corelocal::shared_mutex) == 8);

template <class F>
static void together(F run)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back(run, i);
    for (auto &thread : threads)
        thread.join();
}

static void counts()
{
    corelocal::counter_set set(100);
    together([&](int number) {
        for (int i = 0; i < 10000; i++) {
            ++hits;
            hits += 2;
            --hits;
            hits -= 1;
            CHECK(set.add(static_cast<std::size_t>(number), 1));
            sizes.record(static_cast<std::uint64_t>(i));
        }
    });
    CHECK(hits.get() == THREADS * 10000 && hits.take() == THREADS * 10000 && hits.get() == 0);
    hits -= INT64_MIN;
    CHECK(hits.take() == INT64_MIN);
    CHECK(set.size() == 100 && !set.add(100, 1) && set.get(3) == 10000 && set.get_all().at(7) == 10000);
    CHECK(set.take(3) == 10000 && set.get_all().at(3) == 0);
    try {
        corelocal::counter_set none(0);
        CHECK(false);
    } catch (const std::system_error &error) {
        CHECK(error.code() == std::errc::invalid_argument);
    }
    auto seen = std::make_unique<corelocal::snapshot>();
    CHECK(!seen->quantile(0.5) && seen->mean() != seen->mean() && seen->buckets().empty());
    sizes.read(*seen);
    CHECK(seen->count() == THREADS * 10000 && seen->quantile(0.5)->low <= 4999 && seen->buckets().front().count == THREADS);
    *seen += *seen;
    CHECK(seen->count() == 2 * THREADS * 10000);
    sizes.take(*seen);
    sizes.read(*seen);
    CHECK(seen->count() == 0);
}

static void locks()
{
    long sum = 0, turn = 0;
    std::condition_variable_any changed;
    together([&](int number) {
        for (int i = 0; i < 5000; i++) {
            {
                std::scoped_lock lock(of_all, of_readers);
                sum++;
            }
            std::shared_lock lock(of_readers);
            CHECK(sum > 0);
        }
        std::unique_lock lock(of_all);
        changed.wait(lock, [&] { return turn == number; });
        turn++;
        changed.notify_all();
    });
    CHECK(sum == THREADS * 5000 && turn == THREADS);

    std::unique_lock held(of_all);
    std::shared_lock reads(of_readers);
    together([&](int number) {
        CHECK(!of_all.try_lock() && !of_readers.try_lock());
        CHECK(!of_all.try_lock_for(1ms) && !of_all.try_lock_for(-1s));
        CHECK(!of_all.try_lock_until(std::chrono::system_clock::now() + 1ms));
        CHECK(!of_readers.try_lock_until(corelocal::clock::now() + 1ms) && !of_readers.try_lock_for(1us));
        if (number % 2) {
            CHECK(of_readers.try_lock_shared_for(std::chrono::hours::max()));
            of_readers.unlock_shared();
        }
    });
    reads.unlock();
    CHECK(of_readers.try_lock_until(corelocal::clock::now() + std::chrono::hours(1)));
    of_readers.unlock();
}

static void of_another_thread()
{
    try {
        of_all.lock();
        CHECK(false);
    } catch (const std::system_error &error) {
        CHECK(error.code() == std::errc::owner_dead);
    }
    std::scoped_lock lock(of_all);
    try {
        of_readers.lock_shared();
        CHECK(false);
    } catch (const std::system_error &error) {
        CHECK(error.code() == std::errc::no_such_process);
    }
}

static void clocks()
{
    const auto before = std::chrono::steady_clock::now().time_since_epoch();
    const auto now = corelocal::clock::now();
    const auto after = std::chrono::steady_clock::now().time_since_epoch();
    CHECK(before <= now.time_since_epoch() && now.time_since_epoch() <= after);
    const auto today = std::chrono::system_clock::now();
    CHECK(corelocal::system_clock::now() - today < 10s);
    static_assert(corelocal::clock::is_steady);
    std::this_thread::sleep_until(now + 1ms);
    CHECK(corelocal::clock::now() - now >= 1ms);
}

static void memory()
{
    corelocal::memory_resource resource, other;
    CHECK(resource == other && !(resource == *std::pmr::new_delete_resource()));
    std::pmr::map<std::pmr::string, std::pmr::vector<int>> map(&resource);
    together([&](int number) {
        std::pmr::vector<std::pmr::string> own(&resource);
        for (int i = 0; i < 1000; i++)
            own.emplace_back(std::to_string(i) + " of a thread's own strings, which are too long to be inline");
        std::scoped_lock lock(of_all);
        map[std::pmr::string("thread ") + std::to_string(number).c_str()].push_back(number);
    });
    CHECK(map.size() == THREADS);
    for (std::size_t align = 1; align <= 4096; align *= 2) {
        void *at = resource.allocate(100, align);
        CHECK(reinterpret_cast<std::uintptr_t>(at) % align == 0);
        resource.deallocate(at, 100, align);
    }
    try {
        (void)resource.allocate(SIZE_MAX / 2, 8);
        CHECK(false);
    } catch (const std::bad_alloc &) {
    }
    CHECK(corelocal_allocate(8, 3) == nullptr && corelocal_allocate(0, 1) != nullptr);
    corelocal_deallocate(nullptr, 8, 8);
}

static std::atomic<int> living{0};
struct version : corelocal::rcu_obj_base<version> {
    explicit version(int n) : number(n), copy(n) { living++; }
    ~version()
    {
        number = -1;
        living--;
    }
    int number, copy;
};

static void rcu()
{
    std::atomic<version *> current{new version(0)};
    std::atomic<bool> is_over{false};
    auto &domain = corelocal::rcu_default_domain();
    std::thread writer([&] {
        for (int i = 1; i <= 500; i++) {
            version *old = current.exchange(new version(i));
            if (i % 3 == 0) {
                corelocal::rcu_synchronize();
                delete old;
            } else if (i % 3 == 1) {
                old->retire();
            } else {
                corelocal::rcu_retire(old, [](version *retired) { delete retired; });
            }
        }
        corelocal::rcu_barrier();
        CHECK(living == 1);
        is_over = true;
    });
    together([&](int) {
        while (!is_over) {
            std::scoped_lock outer(domain);
            std::unique_lock inner(domain, std::try_to_lock);
            const version *seen = current.load();
            CHECK(inner.owns_lock() && seen->number == seen->copy && seen->number >= 0);
        }
    });
    writer.join();
    delete current.load();
    {
        std::scoped_lock reader(domain);
        try {
            corelocal::rcu_synchronize();
            CHECK(false);
        } catch (const std::system_error &error) {
            CHECK(error.code() == std::errc::resource_deadlock_would_occur);
        }
    }
}

int main()
{
    counts();
    locks();
    std::atomic<int> step{0};
    std::thread holder([&] {
        std::scoped_lock lock(of_all, of_readers);
        for (step = 1; step != 2;)
            std::this_thread::sleep_for(1ms);
    });
    while (step != 1)
        std::this_thread::sleep_for(1ms);
    in_child(of_another_thread);
    step = 2;
    holder.join();
    clocks();
    memory();
    rcu();
    return 0;
}
