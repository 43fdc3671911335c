/*
 * nsync's lock and condition variable: see foreign.rs.
 */
#include <nsync.h>

struct place {
    nsync_mu lock;
    nsync_cv condition;
};

_Static_assert(sizeof(struct place) <= 32 && _Alignof(struct place) <= 16, "too little room in foreign.rs");

void corelocal_nsync_init(struct place *at)
{
    nsync_mu_init(&at->lock);
    nsync_cv_init(&at->condition);
}

void corelocal_nsync_destroy(struct place *at)
{
    (void)at;
}

void corelocal_nsync_lock(struct place *at)
{
    nsync_mu_lock(&at->lock);
}

void corelocal_nsync_unlock(struct place *at)
{
    nsync_mu_unlock(&at->lock);
}

void corelocal_nsync_read(struct place *at)
{
    nsync_mu_rlock(&at->lock);
}

void corelocal_nsync_unread(struct place *at)
{
    nsync_mu_runlock(&at->lock);
}

void corelocal_nsync_wait(struct place *at)
{
    nsync_cv_wait(&at->condition, &at->lock);
}

void corelocal_nsync_notify_one(struct place *at)
{
    nsync_cv_signal(&at->condition);
}

void corelocal_nsync_notify_all(struct place *at)
{
    nsync_cv_broadcast(&at->condition);
}
