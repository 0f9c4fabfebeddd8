/* Forced interleavings: whole calls run inside another call, at its sync points.
 *
 * nested ROUNDS SEED WHEN_FULL CLEARS BURST
 *
 * At a sync point of one call, further calls may run to their end, and inside those again others:
 * exactly what another process would do while the first stands still there. Some calls die at one
 * of their sync points and never go on, as a process killed there. One thread, a clock
 * that moves only when told to, so that every round can be repeated from its seed. A round is a
 * fresh set of eight slots and a few dozen calls on a few keys.
 *
 * Without clears and evictions: no window of a key holds more than burst + rate * length. With
 * clears (frozen clock): a key admits at most burst * (1 + clears of it). With evictions (frozen
 * clock): the debt in the table is at least what was admitted, as evicted debt is handed on. */
#include "rig.h"

#include <setjmp.h>

#define KEYS 10
#define LOG_MAX 4096
#define DEPTH_MAX 3

static uint64_t seed, now_ns, reached[SYNC_POINTS], calls, retried, contended, deaths;
static int depth;
static jmp_buf *caller; /* of the innermost call */
static slot_table table;
static limit_numbers numbers;
static bool clears, frozen;
static struct {
    uint64_t count, cleared, times[LOG_MAX];
} admitted[KEYS];

static uint64_t read_ns(void *context) { return *(uint64_t *)context; }
static ticker clock_of_round = {.epoch_ns = 1000, .read_ns = read_ns, .context = &now_ns};

static void decide(void) {
    uint64_t key = rig_random(&seed) % KEYS;
    calls++;
    if (clears && rig_random(&seed) % 8 == 0) {
        if (slots_clear(&table, rig_key(key), ticker_now(&clock_of_round)) == CLEARED)
            admitted[key].cleared++;
        return;
    }
    uint64_t now = ticker_now(&clock_of_round);
    slots_outcome out;
    slots_decide(slots_of(&table, rig_key(key)), &numbers, rig_key(key), 1, now, &clock_of_round,
                 false, &out);
    retried += out.attempts > 2;
    contended += out.decided_by == BY_CONTENTION;
    if (out.allowed && admitted[key].count < LOG_MAX)
        admitted[key].times[admitted[key].count++] = out.now;
}

static void call(void) {
    jmp_buf here, *outer = caller;
    int depth_here = depth;
    caller = &here;
    if (setjmp(here) == 0)
        decide();
    depth = depth_here;
    caller = outer;
}

void shmlimit_sync(enum sync_point point) {
    reached[point]++;
    if (rig_random(&seed) % 64 == 0) {
        deaths++;
        longjmp(*caller, 1);
    }
    if (depth >= DEPTH_MAX)
        return;
    depth++;
    while (rig_random(&seed) % 3 == 0) {
        if (!frozen && rig_random(&seed) % 4 == 0)
            now_ns += rig_random(&seed) % 40;
        call();
    }
    depth--;
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static bool violated(int key) {
    uint64_t count = admitted[key].count, *times = admitted[key].times;
    if (clears)
        return count > numbers.burst_cells * (1 + admitted[key].cleared);
    qsort(times, count, sizeof *times, ascending);
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t j = i; j < count; j++)
            if ((j - i + 1) * numbers.interval_ticks > numbers.tolerance_ticks + times[j] - times[i])
                return true;
    return false;
}

/* The debt in the table, in ticks beyond now. */
static uint64_t debt(uint64_t now) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < table.count * SLOTS_PER_LINE; i++) {
        uint64_t state = slot_state(table.lines[i / SLOTS_PER_LINE].slot[i % SLOTS_PER_LINE]);
        sum += state > now ? state - now : 0;
    }
    return sum;
}

int main(int argc, char **argv) {
    uint64_t rounds = rig_argument(argv, argc, 1, 1000), violations = 0, damaged = 0, dropped = 0;
    seed = rig_argument(argv, argc, 2, 1) * 2 + 1;
    table = rig_table(2);
    numbers = rig_numbers(20 * TICKS_PER_NS, rig_argument(argv, argc, 5, 2),
                          (uint32_t)rig_argument(argv, argc, 3, FULL_DENY));
    clears = rig_argument(argv, argc, 4, 0);
    bool evicting = numbers.when_full == FULL_EVICT;
    frozen = clears || evicting;
    for (uint64_t round = 0; round < rounds; round++) {
        check_report report = {0};
        memset(table.lines, 0, table.count * sizeof(slot_line));
        memset(admitted, 0, sizeof admitted);
        now_ns = 2000;
        for (int i = 0; i < 30; i++) {
            call();
            if (!frozen)
                now_ns += rig_random(&seed) % 20;
        }
        check_slots(&table, ticker_now(&clock_of_round), &report);
        damaged += report.damages;
        for (int key = 0; key < KEYS && !evicting; key++)
            violations += violated(key);
        if (evicting) {
            uint64_t cells = 0;
            for (int key = 0; key < KEYS; key++)
                cells += admitted[key].count;
            dropped += debt(ticker_now(&clock_of_round)) < cells * numbers.interval_ticks;
        }
    }
    printf("calls %llu\nretried %llu\ncontended %llu\ndeaths %llu\nviolations %llu\ndamages %llu\ndropped %llu\n",
           (unsigned long long)calls, (unsigned long long)retried, (unsigned long long)contended,
           (unsigned long long)deaths, (unsigned long long)violations, (unsigned long long)damaged,
           (unsigned long long)dropped);
    for (int point = 0; point < SYNC_POINTS; point++)
        printf("reached_%d %llu\n", point, (unsigned long long)reached[point]);
    return 0;
}
