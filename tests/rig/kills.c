/* Frozen clock, processes killed at random moments and at every named step: are the sums exact?
 *
 * kills PROCESSES KEYS BURST KILLS SEED
 *
 * With the clock frozen a key admits its burst and not one cell more, however often and wherever
 * processes die, and at most the cells in flight at the kills are lost. Every process marks the key
 * it is deciding on before the call and books the admission after it. All of them move over the
 * keys together, so that they meet on fresh keys, where most of the protocol's steps are. */
#include "rig.h"

static uint64_t seed;
static uint64_t die_at; /* enum sync_point + 1, 0 = nowhere */

typedef struct {
    uint64_t in_flight; /* key + 1 during a call */
    uint64_t decided, granted; /* decisions: made, and allowed before the next kill */
    uint64_t attempts_max;
    uint64_t died_at[SYNC_POINTS];
    uint64_t admitted[]; /* by key */
} book;

static book *own;

void shmlimit_sync(enum sync_point point) {
    if (die_at == (uint64_t)point + 1) {
        own->died_at[point]++;
        kill(getpid(), SIGKILL);
    }
}

static uint64_t frozen_ns(void *context) {
    return *(uint64_t *)context;
}

static void decide(const slot_table *table, const limit_numbers *n, const ticker *clock,
                   uint64_t key) {
    slots_outcome out;
    own->in_flight = key + 1;
    slots_decide(slots_of(table, rig_key(key)), n, rig_key(key), 1, ticker_now(clock), clock, false, &out);
    if (out.allowed)
        own->admitted[key]++;
    own->in_flight = 0;
    if (out.attempts > own->attempts_max)
        own->attempts_max = out.attempts;
}

static pid_t start(book *b, const slot_table *table, const limit_numbers *n, const ticker *clock,
                   uint64_t keys, uint64_t *cursor, uint64_t seed_of_it, uint64_t die) {
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    own = b, seed = seed_of_it, die_at = die;
    for (;;) {
        while (load64_relaxed(&own->decided) >= load64_relaxed(&own->granted))
            sched_yield();
        add64_owned(&own->decided, 1);
        add64_shared(cursor, 1);
        decide(table, n, clock, (*cursor / 64 + rig_random(&seed) % 4) % keys);
    }
}

int main(int argc, char **argv) {
    uint64_t processes = rig_argument(argv, argc, 1, 4), keys = rig_argument(argv, argc, 2, 2000);
    uint64_t burst = rig_argument(argv, argc, 3, 500), kills = rig_argument(argv, argc, 4, 1000);
    uint64_t x = rig_argument(argv, argc, 5, 1) + 1, now_ns = 2000000000u;
    slot_table table = rig_table(keys); /* four slots a key */
    limit_numbers n = rig_numbers(1u << 30, burst, FULL_DENY);
    ticker clock = {.epoch_ns = 1000000000u, .read_ns = frozen_ns, .context = &now_ns};
    uint64_t *lost = calloc(keys, sizeof *lost), *cursor = rig_shared(sizeof *cursor);
    uint64_t taken_at_end = 0, in_flight = 0, over = 0, under = 0, admitted = 0, attempts_max = 0;
    uint64_t grant = keys * burst / (kills * processes * 2);
    book *books[processes + 1];
    pid_t pid[processes];

    for (uint64_t p = 0; p <= processes; p++)
        books[p] = rig_shared(sizeof(book) + keys * sizeof(uint64_t));
    for (uint64_t p = 0; p < processes; p++)
        pid[p] = start(books[p], &table, &n, &clock, keys, cursor, rig_random(&x), 0);
    for (uint64_t k = 0; k < kills; k++) {
        uint64_t p = rig_random(&x) % processes;
        /* So that the bursts outlast the kills, however slowly this process gets its turns. */
        for (uint64_t q = 0; q < processes; q++)
            store64_relaxed(&books[q]->granted, load64_relaxed(&books[q]->decided) + grant);
        usleep(rig_random(&x) % 200);
        kill(pid[p], SIGKILL);
        waitpid(pid[p], NULL, 0);
        if (books[p]->in_flight) {
            lost[books[p]->in_flight - 1]++;
            in_flight++;
            books[p]->in_flight = 0;
        }
        /* every other one is to die at a named step, if it gets there before it is killed */
        pid[p] = start(books[p], &table, &n, &clock, keys, cursor, rig_random(&x),
                       k % 2 ? 1 + rig_random(&x) % SYNC_POINTS : 0);
    }
    for (uint64_t p = 0; p < processes; p++) {
        kill(pid[p], SIGKILL);
        waitpid(pid[p], NULL, 0);
        if (books[p]->in_flight)
            lost[books[p]->in_flight - 1]++, in_flight++;
    }
    own = books[processes]; /* this process takes what is left, then asks for one more of each */
    for (uint64_t key = 0; key < keys; key++) {
        uint64_t sum = 0;
        for (uint64_t i = 0; i <= burst; i++)
            decide(&table, &n, &clock, key);
        for (uint64_t p = 0; p <= processes; p++)
            sum += books[p]->admitted[key];
        over += sum > burst;
        under += sum + lost[key] < burst;
        admitted += sum;
        taken_at_end += own->admitted[key];
    }
    for (uint64_t p = 0; p <= processes; p++)
        if (books[p]->attempts_max > attempts_max)
            attempts_max = books[p]->attempts_max;
    printf("kills %llu\nin_flight %llu\nadmitted %llu\nburst_total %llu\nadmitted_at_end %llu\n"
           "keys_over %llu\nkeys_under %llu\nattempts_max %llu\n",
           (unsigned long long)(kills + processes), (unsigned long long)in_flight,
           (unsigned long long)admitted, (unsigned long long)(keys * burst),
           (unsigned long long)taken_at_end,
           (unsigned long long)over, (unsigned long long)under, (unsigned long long)attempts_max);
    for (int point = 0; point < SYNC_POINTS; point++) {
        uint64_t died = 0;
        for (uint64_t p = 0; p < processes; p++)
            died += books[p]->died_at[point];
        printf("died_at_%d %llu\n", point, (unsigned long long)died);
    }
    rig_print_check(&table, ticker_now(&clock));
    return 0;
}
