// Counters of events in the manner of ClickHouse's ProfileEvents: some 500 of them on each of several levels, where what a thread
// counts is counted for its user and for the process as well. How the shared levels count is in the header that COUNTERS names,
// the only thing in which two builds differ:
//
//     counters_atomic.hpp   an atomic for each event
//     counters.hpp          a set of corelocal's counters
//
//     c++ -std=c++17 -O2 -pthread -DCOUNTERS='"counters.hpp"' profile_events.cpp $(pkg-config --cflags --libs corelocal)
//     ./a.out 500 20000
//
// Each of 500 threads counts 20,000 events for one user. It prints the threads' cpu time for one event in nanoseconds, and fails
// unless nothing is lost. `compare` runs all.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <thread>
#include <vector>

namespace profile_events {

// A few of the events; the others have numbers only.
enum event : std::size_t { query, selected_rows, selected_bytes, read_blocks, cache_hits, cache_misses, others, last = 499 };
constexpr std::size_t event_count = last + 1;

} // namespace profile_events

// Has the class shared_counters: increment(event, amount), get(event).
#include COUNTERS

namespace profile_events {

// What a thread counts: its own counters, and a level above.
class thread_counters {
public:
    explicit thread_counters(shared_counters &user, shared_counters &process) : user(user), process(process) {}

    void increment(event which, std::int64_t amount = 1) noexcept
    {
        own[which] += amount;
        user.increment(which, amount);
        process.increment(which, amount);
    }

    std::int64_t get(event which) const noexcept { return own[which]; }

private:
    std::array<std::int64_t, event_count> own{};
    shared_counters &user;
    shared_counters &process;
};

// Threads that end before what they use, also where one cannot be started.
struct threads_that_end : std::vector<std::thread> {
    void join()
    {
        for (auto &thread : *this)
            if (thread.joinable())
                thread.join();
    }
    ~threads_that_end() { join(); }
};

// One thread of a query, which reads blocks. Seven events each.
void read_a_block(thread_counters &counters, std::size_t block)
{
    counters.increment(read_blocks);
    counters.increment(selected_rows, 8192);
    counters.increment(selected_bytes, 65536);
    counters.increment(block % 4 == 0 ? cache_misses : cache_hits);
    // Some that are rarer in truth.
    for (std::size_t i = 0; i < 3; i++)
        counters.increment(static_cast<event>(others + (block * 3 + i) % (event_count - others)));
}

} // namespace profile_events

int main(int count, char **words)
{
    using namespace profile_events;
    const long threads = count == 3 ? std::atol(words[1]) : 0, events = count == 3 ? std::atol(words[2]) : 0;
    if (threads < 1 || threads > 10000 || events < 7) {
        std::fprintf(stderr, "usage: profile_events THREADS EVENTS\n1 to 10000 threads; at least 7 events for each\n");
        return 2;
    }
    const std::size_t blocks = static_cast<std::size_t>(events / 7);
    try {
        shared_counters process, user;
        std::vector<double> nanoseconds(static_cast<std::size_t>(threads));
        threads_that_end running;
        for (auto &used : nanoseconds)
            running.emplace_back([&] {
                thread_counters counters(user, process);
                counters.increment(query);
                std::timespec from, until;
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
                for (std::size_t block = 0; block < blocks; block++)
                    read_a_block(counters, block);
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &until);
                used = static_cast<double>(until.tv_sec - from.tv_sec) * 1e9 + static_cast<double>(until.tv_nsec - from.tv_nsec);
            });
        running.join();
        double sum = 0;
        for (const double used : nanoseconds)
            sum += used;
        const auto rows = static_cast<std::int64_t>(blocks) * 8192 * threads;
        for (const shared_counters *level : {&user, &process})
            if (level->get(query) != threads || level->get(selected_rows) != rows) {
                std::fprintf(stderr, "profile_events: %lld queries and %lld rows, and there were %ld and %lld\n",
                             static_cast<long long>(level->get(query)), static_cast<long long>(level->get(selected_rows)), threads,
                             static_cast<long long>(rows));
                return 1;
            }
        std::printf("%.2f\n", sum / (7.0 * static_cast<double>(blocks) * static_cast<double>(threads)));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "profile_events: %s\n", error.what());
        return 1;
    }
}
