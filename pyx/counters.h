/* Counters: a row for each worker, written by that worker only, summed by readers.
 *
 * A row is never zeroed: a worker that takes a dead worker's row goes on counting where that one
 * stopped, so that sums never fall. When every row belongs to a live worker, the rest share the
 * last row and pay for a locked add.
 *
 * owner = start time << 22 | pid. The start time (clock ticks since boot, from /proc) tells a
 * worker from a later process with the same pid.
 */
#ifndef SHMLIMIT_COUNTERS_H
#define SHMLIMIT_COUNTERS_H

#include <pthread.h>

#include "layout.h"
#include "slots.h"

#define OWNER_PID_BITS 22

/* Raised in every child by fork, however the fork was made: a row belongs to one process. */
static uint32_t process_forks;

static void counters_forked(void) { process_forks++; }

static inline int counters_watch_forks(void) {
    return pthread_atfork(NULL, NULL, counters_forked);
}

static inline void counters_add(uint64_t *counter, uint64_t n, bool shared) {
    if (shared)
        add64_shared(counter, n);
    else
        add64_owned(counter, n);
}

/* Accounts for one decision. `mode` is not MODE_OFF. */
static inline void counters_record(limit_counters *c, const slots_outcome *out, uint64_t cost,
                                   uint32_t mode, bool shared) {
    if (__builtin_expect(out->evicted != 0, 0))
        counters_add(&c->evicted, out->evicted, shared);
    if (out->allowed) {
        counters_add(&c->allowed, 1, shared);
        counters_add(&c->cells, cost, shared);
        if (__builtin_expect(out->decided_by == BY_FULL_SET, 0))
            counters_add(&c->full_allowed, 1, shared);
        return;
    }
    counters_add(mode == MODE_SHADOW ? &c->shadow_denied : &c->denied, 1, shared);
    if (out->decided_by == BY_CONTENTION)
        counters_add(&c->contended, 1, shared);
    else if (out->decided_by == BY_FULL_SET)
        counters_add(&c->full_denied, 1, shared);
}

#endif
