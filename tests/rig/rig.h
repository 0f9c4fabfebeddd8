/* What the rigs share: a table in anonymous shared memory, and sync points that do something.
 *
 * A rig is a small program over the product's own headers. It prints `name value` lines for the
 * test that runs it, and judges nothing itself. */
#ifndef RIG_H
#define RIG_H

#define SHMLIMIT_SYNC_POINTS
#include "check.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *rig_shared(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return p;
}

static slot_table rig_table(uint64_t lines) {
    return (slot_table){rig_shared(lines * sizeof(slot_line)), lines};
}

/* A limit of `burst` cells at one cell per `interval_ticks`. */
static limit_numbers rig_numbers(uint64_t interval_ticks, uint64_t burst, uint32_t when_full) {
    return (limit_numbers){.interval_ticks = interval_ticks,
                           .tolerance_ticks = interval_ticks * burst,
                           .burst_cells = burst,
                           .rate_count = 1,
                           .rate_period_ns = 1,
                           .when_full = when_full,
                           .algorithm = ALGORITHM_GCRA};
}

static uint64_t rig_random(uint64_t *x) { /* xorshift64, x != 0 */
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* Fingerprints that spread over all lines. */
static uint64_t rig_key(uint64_t i) {
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return slot_fingerprint(z ^ z >> 31);
}

static uint64_t rig_argument(char **argv, int argc, int i, uint64_t otherwise) {
    return i < argc ? strtoull(argv[i], NULL, 10) : otherwise;
}

static inline void rig_print_check(const slot_table *table, uint64_t now) {
    check_report r = {0};
    check_slots(table, now, &r);
    printf("damages %llu\n", (unsigned long long)r.damages);
}

#endif
