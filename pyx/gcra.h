/* GCRA, the token bucket as one number: (state, now, limit) -> (decision, new state).
 *
 * The state is the theoretical arrival time (TAT), in ticks: the moment when the bucket will be
 * full again, if nothing more is taken. A bucket is full when its TAT has passed, and may run at
 * most tau ahead of now.
 *
 * Bounds: now <= 2^62, B * ceil(16 * period / count) < 2^61 and cost * T < 2^61, so no sum below
 * leaves 63 bits. T is rounded up where the limit is made: rounding never admits more.
 */
#ifndef SHMLIMIT_GCRA_H
#define SHMLIMIT_GCRA_H

#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

typedef struct {
    bool allowed;
    uint64_t state;       /* TAT afterwards: the new one, or max(TAT, now) when denied */
    uint64_t retry_ticks; /* denied: until this same cost fits, if nobody takes anything */
} gcra_outcome;

static inline gcra_outcome gcra_step(uint64_t state, uint64_t now, uint64_t interval_ticks,
                                     uint64_t tolerance_ticks, uint64_t cost) {
    uint64_t base = state > now ? state : now;
    uint64_t increment = cost * interval_ticks;
    uint64_t reached = base + increment;
    uint64_t furthest = now + (tolerance_ticks > increment ? tolerance_ticks : increment);
    gcra_outcome out = {true, reached, 0};
    if (reached > furthest)
        out = (gcra_outcome){false, base, reached - furthest};
    return out;
}

/* How long a request waits that was let in beyond what fits at once: its cells are in `state`, and it
 * may go ahead when no more than the tolerance is ahead of the clock. */
static inline uint64_t gcra_wait(uint64_t state, uint64_t now, uint64_t interval_ticks,
                                 uint64_t tolerance_ticks, uint64_t cost) {
    uint64_t increment = cost * interval_ticks;
    uint64_t furthest = now + (tolerance_ticks > increment ? tolerance_ticks : increment);
    return state > furthest ? state - furthest : 0;
}

/* Whole cells that would be admitted at once now: rounded down. */
static inline uint64_t gcra_remaining(uint64_t state, uint64_t now, uint64_t interval_ticks,
                                      uint64_t tolerance_ticks) {
    uint64_t ahead = state > now ? state - now : 0;
    return ahead < tolerance_ticks ? (tolerance_ticks - ahead) / interval_ticks : 0;
}

/* Rounded up, so that whoever waits this long is never early. */
static inline uint64_t ticks_to_ns(uint64_t ticks) {
    return ticks / TICKS_PER_NS + (ticks % TICKS_PER_NS != 0);
}

#endif
