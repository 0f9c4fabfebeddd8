/* A limit as one process sees it, and the straight line from a key's bytes to a decision.
 *
 * The numbers and the hash state are the process's own copies, valid as long as the row's head has
 * not changed and the process has not forked; limit_ready says so, and `_core.pyx` makes them anew
 * when they are not. */
#ifndef SHMLIMIT_LIMIT_H
#define SHMLIMIT_LIMIT_H

#include "counters.h"
#include "rows.h"
#include "siphash.h"
#include "slots.h"

typedef struct {
    const limit_row *row;
    uint64_t head;            /* of the copies below */
    siphash_state keyed;      /* the hash after secret and salt: each key goes on from here */
    limit_numbers numbers;
    slot_table slots;
    ticker clock;
    limit_counters *counters; /* this process's, or the shared row's */
    bool counters_shared;
    uint32_t forks;           /* of this process when the copies were made */
} limit_view;

static inline bool limit_ready(const limit_view *v) {
    return __builtin_expect(row_head(v->row) == v->head && v->forks == process_forks, 1);
}

static inline uint64_t limit_fingerprint(const limit_view *v, const uint8_t *key, size_t bytes) {
    return slot_fingerprint(siphash_finish(v->keyed, key, bytes));
}

/* The same for a tuple's bytes, which are never those of a str or bytes: one block more is absorbed,
 * and the length at the message's end, which counts what lies before it, does not count that one. */
static inline uint64_t limit_fingerprint_joined(const limit_view *v, const uint8_t *key,
                                                size_t bytes) {
    siphash_state keyed = v->keyed;
    siphash_absorb(&keyed, 1);
    return slot_fingerprint(siphash_finish(keyed, key, bytes));
}

/* Decides at `now` and accounts for it. True when the request passes, which in shadow mode it also
 * does when it is not allowed. */
static inline bool limit_decide(const limit_view *v, uint64_t fp, uint64_t cost, uint64_t now,
                                bool peek, slots_outcome *out) {
    slots_decide(slots_of(&v->slots, fp), &v->numbers, fp, cost, now, &v->clock, peek, out);
    if (!peek)
        counters_record(v->counters, out, cost, v->numbers.mode, v->counters_shared);
    return out->allowed || v->numbers.mode == MODE_SHADOW;
}

/* The view of a limit that lets a request of `cost` cells run that many ticks further ahead of the
 * clock than it otherwise may. A reservation is such a request, and then waits; so is a charge. */
static inline limit_view limit_reaching(const limit_view *v, uint64_t cost, uint64_t reach_ticks) {
    limit_view further = *v;
    uint64_t increment = cost * v->numbers.interval_ticks;
    if (further.numbers.tolerance_ticks < increment)
        further.numbers.tolerance_ticks = increment;
    further.numbers.tolerance_ticks += reach_ticks;
    return further;
}

#define CHARGE_TRIES_MAX 64

/* Takes cells whether they fit or not, as many as leave the key's debt within the view's tolerance.
 * Returns how many were taken. Each try is a decision of its own, on what was too much the last time;
 * it takes more than two only when others take cells of the same key meanwhile. */
static inline uint64_t limit_charge(const limit_view *v, uint64_t fp, uint64_t cells,
                                    uint64_t now) {
    const limit_numbers *n = &v->numbers;
    for (int attempt = 0; attempt < CHARGE_TRIES_MAX && cells != 0; attempt++) {
        slots_outcome out;
        uint64_t too_many;
        slots_decide(slots_of(&v->slots, fp), n, fp, cells, now, &v->clock, false, &out);
        if (out.evicted)
            counters_add(&v->counters->evicted, out.evicted, v->counters_shared);
        if (out.allowed && out.decided_by != BY_FULL_SET) {
            counters_add(&v->counters->cells, cells, v->counters_shared);
            return cells;
        }
        if (out.allowed || out.decided_by == BY_CONTENTION ||
            (out.decided_by == BY_FULL_SET && n->when_full != FULL_EVICT))
            return 0;
        too_many = (out.retry_ticks - 1) / n->interval_ticks + 1;
        cells -= too_many < cells ? too_many : cells;
    }
    return 0;
}

/* Asks for a key's lines ahead of their use. */
static inline void limit_prefetch(const limit_view *v, uint64_t fp) {
    slot_set set = slots_of(&v->slots, fp);
    prefetch_line(set.line[0]);
    prefetch_line(set.line[1]);
}

#endif
