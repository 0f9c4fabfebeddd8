/* Real clock, several processes, logged decision times: does any window admit too much?
 *
 * window PROCESSES KEYS LINES DECISIONS INTERVAL_NS BURST SEED KILLS
 *
 * A few keys on a small table, with buckets that refill within microseconds, so that slots die and
 * are taken over all the time while processes are inside the protocol; sync points yield. Every
 * admission is logged with the clock reading that decided it. For cells admitted at t_i <= t_j:
 * (j - i + 1) * T <= tau + (t_j - t_i), in ticks, no slack.
 *
 * With KILLS, processes are killed at random moments and replaced by others that go on; what a
 * killed one had admitted but not yet logged is missing from the log, which can hide at most one
 * violation a kill. */
#include "rig.h"

static uint64_t seed;

void shmlimit_sync(enum sync_point point) {
    if ((rig_random(&seed) + point) % 3 == 0)
        sched_yield();
}

typedef struct {
    uint64_t done, count, retried, contended, full; /* done: decisions */
    struct {
        uint64_t key, now;
    } admitted[];
} process_log;

static void work(process_log *log, const slot_table *table, const limit_numbers *n,
                 const ticker *clock, uint64_t keys, uint64_t decisions) {
    for (; log->done < decisions; log->done++) {
        uint64_t key = rig_random(&seed) % keys;
        slots_outcome out;
        slots_decide(slots_of(table, rig_key(key)), n, rig_key(key), 1, ticker_now(clock), clock, false, &out);
        log->retried += out.attempts > 2;
        log->contended += out.decided_by == BY_CONTENTION;
        log->full += out.decided_by == BY_FULL_SET;
        if (out.allowed) {
            log->admitted[log->count].key = key;
            log->admitted[log->count].now = out.now;
            store64_release(&log->count, log->count + 1); /* a kill leaves no half entry */
        }
    }
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Windows that end at an admission and hold too much. With a_i = t_i - i * T the bound reads
 * a_i - a_j <= tau - T for every i <= j: only the largest a_i so far matters. */
static uint64_t violations(uint64_t *times, uint64_t count, const limit_numbers *n) {
    uint64_t bad = 0;
    int64_t highest = INT64_MIN;
    qsort(times, count, sizeof *times, ascending);
    for (uint64_t j = 0; j < count; j++) {
        int64_t a = (int64_t)(times[j] - j * n->interval_ticks);
        highest = a > highest ? a : highest;
        bad += highest - a > (int64_t)(n->tolerance_ticks - n->interval_ticks);
    }
    return bad;
}

static pid_t start(process_log *log, const slot_table *table, const limit_numbers *n,
                   const ticker *clock, uint64_t keys, uint64_t decisions, uint64_t seed_of_it) {
    pid_t pid = fork();
    if (pid == 0) {
        seed = seed_of_it;
        work(log, table, n, clock, keys, decisions);
        _exit(0);
    }
    return pid;
}

int main(int argc, char **argv) {
    uint64_t processes = rig_argument(argv, argc, 1, 4), keys = rig_argument(argv, argc, 2, 6);
    uint64_t lines = rig_argument(argv, argc, 3, 3);
    uint64_t decisions = rig_argument(argv, argc, 4, 200000);
    uint64_t interval_ns = rig_argument(argv, argc, 5, 500), burst = rig_argument(argv, argc, 6, 2);
    uint64_t base_seed = rig_argument(argv, argc, 7, 1) + 1;
    uint64_t kills = rig_argument(argv, argc, 8, 0), killed = 0;
    slot_table table = rig_table(lines);
    limit_numbers n = rig_numbers(interval_ns * TICKS_PER_NS, burst, FULL_DENY);
    ticker clock = {.epoch_ns = clock_monotonic_ns() - 1000000000u};
    size_t log_bytes = sizeof(process_log) + decisions * 16;
    process_log *log[processes];
    pid_t pid[processes];
    uint64_t *times, count, admitted = 0, retried = 0, contended = 0, full = 0, bad = 0;

    for (uint64_t p = 0; p < processes; p++) {
        log[p] = rig_shared(log_bytes);
        pid[p] = start(log[p], &table, &n, &clock, keys, decisions, ++base_seed * 7919);
    }
    for (; killed < kills; killed++) {
        uint64_t p = rig_random(&base_seed) % processes;
        usleep(rig_random(&base_seed) % 500);
        kill(pid[p], SIGKILL);
        waitpid(pid[p], NULL, 0);
        pid[p] = start(log[p], &table, &n, &clock, keys, decisions, ++base_seed * 7919);
    }
    for (uint64_t p = 0; p < processes; p++) {
        int status;
        waitpid(pid[p], &status, 0);
        if (status != 0)
            return 2;
        retried += log[p]->retried, contended += log[p]->contended, full += log[p]->full;
        admitted += log[p]->count;
    }
    times = malloc((admitted + 1) * sizeof *times);
    for (uint64_t key = 0; key < keys; key++) {
        count = 0;
        for (uint64_t p = 0; p < processes; p++)
            for (uint64_t i = 0; i < log[p]->count; i++)
                if (log[p]->admitted[i].key == key)
                    times[count++] = log[p]->admitted[i].now;
        bad += violations(times, count, &n);
    }
    free(times);
    printf("decisions %llu\nadmitted %llu\nretried %llu\ncontended %llu\nfull %llu\n"
           "violations %llu\n",
           (unsigned long long)(processes * decisions), (unsigned long long)admitted,
           (unsigned long long)retried, (unsigned long long)contended, (unsigned long long)full,
           (unsigned long long)bad);
    rig_print_check(&table, ticker_now(&clock));
    return 0;
}
