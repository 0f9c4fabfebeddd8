/* A limit with several rates: one request is put to all of them, and is admitted when all admit it.
 *
 * Each rate has a bucket of its own. All are looked at first; when one would refuse, nothing is
 * taken from any. Taking from several is not one atomic step: a rate whose answer changes between
 * the look and the step refuses, and what earlier ones took is lost, and counted. Nothing is ever
 * put back. A request is counted once, by the first rate's counters.
 */
#ifndef SHMLIMIT_RATES_H
#define SHMLIMIT_RATES_H

#include "limit.h"

/* What the rates answered, and which of them decided: of those that refuse the one with the longest
 * wait, else the one with the fewest cells remaining. */
typedef struct {
    slots_outcome of[RATES_MAX];
    uint32_t deciding;
    uint32_t taken; /* how many rates took their cells */
} rates_outcome;

static inline uint32_t rates_deciding(const limit_view *v, uint32_t rates, const slots_outcome *of) {
    uint32_t deciding = 0;
    uint64_t fewest = UINT64_MAX;
    bool refused = false;
    for (uint32_t i = 0; i < rates; i++) {
        const limit_numbers *n = &v[i].numbers;
        uint64_t remaining;
        if (!of[i].allowed) {
            if (!refused || of[i].retry_ticks > of[deciding].retry_ticks)
                deciding = i;
            refused = true;
        }
        if (refused)
            continue;
        remaining = gcra_remaining(of[i].state, of[i].now, n->interval_ticks, n->tolerance_ticks);
        if (remaining < fewest) {
            fewest = remaining;
            deciding = i;
        }
    }
    return deciding;
}

/* Decides at `now`, by the fingerprint that the key has under each rate. `evicted` sums up. */
static inline void rates_decide(const limit_view *v, uint32_t rates, const uint64_t *fp,
                                uint64_t cost, uint64_t now, bool peek, rates_outcome *out) {
    uint32_t evicted = 0, i;
    bool passes = true;
    out->taken = 0;
    for (i = 0; i < rates; i++) {
        slots_decide(slots_of(&v[i].slots, fp[i]), &v[i].numbers, fp[i], cost, now, &v[i].clock, true,
                     &out->of[i]);
        passes &= out->of[i].allowed;
    }
    for (i = 0; i < rates && passes && !peek; i++) {
        slots_decide(slots_of(&v[i].slots, fp[i]), &v[i].numbers, fp[i], cost, now, &v[i].clock,
                     false, &out->of[i]);
        evicted += out->of[i].evicted;
        passes = out->of[i].allowed;
        out->taken += passes && out->of[i].decided_by != BY_FULL_SET;
    }
    out->deciding = rates_deciding(v, rates, out->of);
    out->of[out->deciding].evicted = evicted;
}

/* Accounts for it. True when the request passes. */
static inline bool rates_record(const limit_view *v, const rates_outcome *out, uint64_t cost) {
    const slots_outcome *decided = &out->of[out->deciding];
    counters_record(v->counters, decided, cost, v->numbers.mode, v->counters_shared);
    if (__builtin_expect(!decided->allowed && out->taken != 0, 0))
        counters_add(&v->counters->lost, cost * out->taken, v->counters_shared);
    return decided->allowed || v->numbers.mode == MODE_SHADOW;
}

#endif
