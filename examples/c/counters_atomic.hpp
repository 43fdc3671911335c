// Before: one atomic for each event, eight in a cache line, which all threads of the level write.
#include <atomic>

namespace profile_events {

class shared_counters {
public:
    void increment(event which, std::int64_t amount) noexcept { values[which].fetch_add(amount, std::memory_order_relaxed); }
    std::int64_t get(event which) const noexcept { return values[which].load(std::memory_order_relaxed); }

private:
    std::array<std::atomic<std::int64_t>, event_count> values{};
};

} // namespace profile_events
