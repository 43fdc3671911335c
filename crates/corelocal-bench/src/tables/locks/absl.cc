/*
 * Abseil's lock and condition variable: see foreign.rs.
 */
#include <absl/synchronization/mutex.h>

#include <new>

struct place {
    absl::Mutex lock;
    absl::CondVar condition;
};

static_assert(sizeof(place) <= 32 && alignof(place) <= 16, "too little room in foreign.rs");

extern "C" {

void corelocal_absl_init(void *at)
{
    // Where it was built without NDEBUG, as Debian's is, it looks for cycles at each lock.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    new (at) place;
}

void corelocal_absl_destroy(place *at)
{
    at->~place();
}

void corelocal_absl_lock(place *at)
{
    at->lock.Lock();
}

void corelocal_absl_unlock(place *at)
{
    at->lock.Unlock();
}

void corelocal_absl_read(place *at)
{
    at->lock.ReaderLock();
}

void corelocal_absl_unread(place *at)
{
    at->lock.ReaderUnlock();
}

void corelocal_absl_wait(place *at)
{
    at->condition.Wait(&at->lock);
}

void corelocal_absl_notify_one(place *at)
{
    at->condition.Signal();
}

void corelocal_absl_notify_all(place *at)
{
    at->condition.SignalAll();
}
}
