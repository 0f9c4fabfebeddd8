/* What the sync points of a SHMLIMIT_BUILD=sync extension do: give up the processor at random, so
 * that processes meet inside the protocol; and with SHMLIMIT_KILL_AT=n in the environment, end the
 * process at the n-th that it reaches from then on. Included once, by _core.pyx. */
#ifndef SHMLIMIT_SYNCING_H
#define SHMLIMIT_SYNCING_H

#include "syncpoints.h"

#ifdef SHMLIMIT_SYNC_POINTS
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

void shmlimit_sync(enum sync_point point) {
    static uint64_t x;
    static long reached;
    const char *kill_at = getenv("SHMLIMIT_KILL_AT");
    if (kill_at != NULL && ++reached == atol(kill_at))
        raise(SIGKILL);
    if (x == 0) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        x = ((uint64_t)t.tv_nsec << 8) | 1;
    }
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    if ((x + point) % 4 == 0)
        sched_yield();
}
#endif

#endif
