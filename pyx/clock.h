/* The clock: read once by the outermost call, and once more by a commit (rule C in slots.h).
 *
 * Ticks are sixteenths of a nanosecond since the segment's epoch, one scale for every limit, so
 * that a bucket keeps its meaning when its limit's rate changes. Readings go up to 2^62, which is
 * nine years after the segment was made, and stand still there. A reading from before the epoch,
 * which only an injected clock can give, counts as tick 1: tick 0 is the state of a slot never used,
 * which has to be dead at every reading.
 */
#ifndef SHMLIMIT_CLOCK_H
#define SHMLIMIT_CLOCK_H

#include <stdint.h>
#include <time.h>

#define TICKS_PER_NS 16u
#define TICKS_MAX ((uint64_t)1 << 62)

/* read = NULL: the system's monotonic clock, through the vdso. Otherwise an injected one. */
typedef struct {
    uint64_t epoch_ns;
    uint64_t (*read_ns)(void *context);
    void *context;
} ticker;

static inline uint64_t clock_monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_ticks(uint64_t ns, uint64_t epoch_ns) {
    uint64_t since_ns = ns - epoch_ns;
    if (__builtin_expect(ns <= epoch_ns, 0))
        return 1;
    if (__builtin_expect(since_ns >= TICKS_MAX / TICKS_PER_NS, 0))
        return TICKS_MAX;
    return since_ns * TICKS_PER_NS;
}

static inline uint64_t ticker_now(const ticker *t) {
    if (__builtin_expect(t->read_ns != NULL, 0))
        return clock_ticks(t->read_ns(t->context), t->epoch_ns);
    return clock_ticks(clock_monotonic_ns(), t->epoch_ns);
}

#endif
