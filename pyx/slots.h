/* The slots: finding, claiming and stepping a key's bucket without a lock.
 *
 * A key has eight candidate slots, four in each of two cache lines. A slot is one 16-byte word,
 * {fp, v = state << 1 | committed}, and every write is one compare-and-swap of the whole word. A
 * process killed between two of them leaves a table in which every rule below still holds. One that
 * dies after claiming a slot leaves it uncommitted: nothing is consumed there, the key's next
 * request commits it, and if none comes it is dead a tick later and anybody's.
 *
 *   (M) Every write strictly raises the slot's v. So a CAS that succeeds found the slot untouched
 *       since it was read (no ABA), and fp and v belong together when v reads the same before and
 *       after fp.
 *   (D) A slot may be given to another key only when it is dead by a clock reading of the process
 *       that does so: state < now. A dead bucket is full, so forgetting it loses nothing. Exempt
 *       are the kill of an uncommitted twin, which holds nothing, and eviction, which hands the
 *       victim's debt to the newcomer.
 *   (C) A key's first consumption (uncommitted -> committed) is preceded, in this order, by: read
 *       the own slot; scan every other candidate and see no such key; read the clock.
 *
 * Why (C) leaves a key at most one committed slot: let P commit slot x and Q commit slot y. Both
 * hold the key uncommitted from the read of their own slot to the commit. Whoever read its own
 * slot last scans the other's slot after that, while the other still holds it or has committed it,
 * and does not commit. If the other slot was given away before the scan, then by (D) its state had
 * passed on a clock read before ours, which comes after the scan: its debt is over.
 *
 * tests/model/ explores every interleaving of these steps for small cases, under the same names.
 */
#ifndef SHMLIMIT_SLOTS_H
#define SHMLIMIT_SLOTS_H

#include "gcra.h"
#include "layout.h"
#include "syncpoints.h"

#define CANDIDATES (2 * SLOTS_PER_LINE)
#define ATTEMPTS_MAX 256u
#define CLEAR_LEAVES_DEAD 2u /* the dead candidates that a clear leaves to its key */

typedef struct {
    slot_line *lines;
    uint64_t count;
} slot_table;

/* A key's two candidate lines. */
typedef struct {
    slot_line *line[2];
} slot_set;

enum decided_by { BY_STEP, BY_FULL_SET, BY_CONTENTION };

typedef struct {
    bool allowed;
    uint32_t decided_by;  /* enum decided_by */
    uint32_t evicted;     /* live slots of other keys taken over */
    uint32_t attempts;    /* passes of the retry loop, 1 = nobody was in the way */
    uint64_t now;         /* ticks: the clock reading that decided */
    uint64_t state;       /* ticks: the bucket afterwards */
    uint64_t retry_ticks; /* denied: until the same request fits */
} slots_outcome;

/* What one pass over the candidates saw. */
typedef struct {
    slot_word seen[CANDIDATES];
    int match;      /* a committed slot of this key, -1 = none; ends the scan */
    uint32_t twins; /* uncommitted slots of this key, a bit each */
    uint32_t dead;  /* slots that are free to claim, a bit each */
} slot_scan;

static inline uint64_t slot_state(slot_word w) { return w.v >> 1; }
static inline bool slot_committed(slot_word w) { return w.v & 1; }
static inline bool slot_dead(slot_word w, uint64_t now) { return slot_state(w) < now; }

/* Takes the slot for a key without consuming anything: the state moves by one tick, by (M). On a
 * dead slot that is a no-op if we die here; on a live one the debt stays. */
static inline slot_word slot_claim(uint64_t fp, slot_word w) {
    return (slot_word){fp, (slot_state(w) + 1) << 1};
}

static inline slot_word slot_commit(uint64_t fp, uint64_t state) {
    return (slot_word){fp, state << 1 | 1};
}

/* The fingerprint of a hash: the values that mean no key are moved out of the way. */
static inline uint64_t slot_fingerprint(uint64_t hash) {
    return hash < FP_FIRST ? hash + FP_FIRST : hash;
}

/* Two different lines, each from its own half of the fingerprint, in 0 .. count - 1 whatever the
 * fingerprint is. */
static inline void slots_line_numbers(uint64_t fp, uint64_t count, uint64_t out[2]) {
    uint64_t first = ((fp >> 32) * count) >> 32;
    uint64_t second = ((fp & 0xffffffffu) * (count - 1)) >> 32;
    out[0] = first;
    out[1] = second + (second >= first);
}

static inline slot_set slots_of(const slot_table *t, uint64_t fp) {
    uint64_t number[2];
    slots_line_numbers(fp, t->count, number);
    return (slot_set){{t->lines + number[0], t->lines + number[1]}};
}

static inline slot_word *slots_at(slot_set set, int i) {
    return &set.line[i / SLOTS_PER_LINE]->slot[i % SLOTS_PER_LINE];
}

static inline bool slots_cas(slot_set set, int i, slot_word seen, slot_word next) {
    return cas128(slots_at(set, i), seen, next);
}

/* v before fp: at the moment fp was read the slot held that key; that v is of the same write is
 * known once v reads the same again, or once a CAS on the pair succeeds. */
static inline slot_word slot_read(const slot_word *slot) {
    slot_word w;
    w.v = load64_slot(&slot->v);
    w.fp = load64_slot(&slot->fp);
    return w;
}

static inline bool slot_unchanged(const slot_word *slot, slot_word seen) {
    return load64_slot(&slot->v) == seen.v;
}

/* Reads slot `hint` first and then the others in order, until a committed slot of the key. */
static inline void slots_scan(slot_set set, uint64_t fp, uint64_t now, int hint, slot_scan *s) {
    s->match = -1;
    s->twins = s->dead = 0;
    for (int k = 0; k < (int)CANDIDATES; k++) {
        int i = k == 0 ? hint : k <= hint ? k - 1 : k;
        slot_word w = slot_read(slots_at(set, i));
        s->seen[i] = w;
        if (w.fp == fp) {
            if (slot_committed(w)) {
                s->match = i;
                return;
            }
            s->twins |= 1u << i;
        } else if (slot_dead(w, now)) {
            s->dead |= 1u << i;
        }
    }
}

/* The emptier of the two lines takes the key: that is what lets a table run at half load with
 * hardly a full set. */
static inline int slots_pick_dead(uint32_t dead) {
    const uint32_t first_line = (1u << SLOTS_PER_LINE) - 1;
    uint32_t first = dead & first_line, second = dead & ~first_line;
    bool take_second = __builtin_popcount(second) > __builtin_popcount(first);
    return __builtin_ctz(take_second ? second : first);
}

/* Field by field, into the caller's memory: a struct that is returned or assigned whole is copied
 * in wider pieces than it was written in, which stalls the processor for longer than the CAS. */
static inline void slots_answer(slots_outcome *out, gcra_outcome step, uint64_t now) {
    out->allowed = step.allowed;
    out->decided_by = BY_STEP;
    out->now = now;
    out->state = step.state;
    out->retry_ticks = step.retry_ticks;
}

/* One step from a state: what slots_answer takes, for the limit at hand. The floor is the same for a
 * key with a slot and for one without, so a slot that dies while it is above it is no loss. */
static inline gcra_outcome slots_gcra(uint64_t state, const limit_numbers *n, uint64_t now,
                                      uint64_t cost) {
    uint64_t from = state > n->floor_ticks ? state : n->floor_ticks;
    return gcra_step(from, now, n->interval_ticks, n->tolerance_ticks, cost);
}

/* Every candidate is live and a stranger's. Evict: the slot whose debt is smallest, among those
 * that would still admit this request with the debt it takes over; an uncommitted one, which
 * another newcomer is about to use, only when there is no other. Returns the victim, -1 = none; the
 * outcome is final when there is none, and else tells what the takeover will lead to. */
static inline int slots_full(const slot_scan *s, const limit_numbers *n, uint64_t now,
                             uint64_t cost, slots_outcome *out) {
    uint64_t wait_ticks = UINT64_MAX;
    slot_word best = {0, 0};
    int victim = -1;
    out->decided_by = BY_FULL_SET;
    out->now = out->state = now;
    out->retry_ticks = 0;
    out->allowed = n->when_full == FULL_ALLOW;
    if (out->allowed)
        return victim;
    for (int i = 0; i < (int)CANDIDATES; i++) {
        slot_word w = s->seen[i];
        uint64_t carried = slot_state(w) + 1, ticks = carried - now; /* until it is dead */
        if (n->when_full == FULL_EVICT) {
            gcra_outcome step = slots_gcra(carried, n, now, cost);
            bool better = victim < 0 || slot_committed(w) > slot_committed(best) ||
                          (slot_committed(w) == slot_committed(best) && w.v < best.v);
            if (step.allowed && better) {
                victim = i;
                best = w;
                out->state = step.state;
            }
            ticks = step.retry_ticks;
        }
        wait_ticks = ticks < wait_ticks ? ticks : wait_ticks;
    }
    out->allowed = victim >= 0;
    out->retry_ticks = out->allowed ? 0 : wait_ticks;
    return victim;
}

/* Kills all uncommitted twins but the one with the lowest index, which every process keeps.
 * Returns that index. A CAS that fails is seen by the scan that follows. */
static inline int slots_kill_twins(slot_set set, const slot_scan *s) {
    int keep = __builtin_ctz(s->twins);
    for (int i = keep + 1; i < (int)CANDIDATES; i++) {
        if (s->twins >> i & 1) {
            SYNC(SYNC_KILL);
            slots_cas(set, i, s->seen[i], slot_claim(FP_EMPTY, s->seen[i]));
        }
    }
    return keep;
}

/* Answers for a key that has no committed slot, without giving it one. */
static inline void slots_look(const slot_scan *s, const limit_numbers *n, uint64_t now,
                              uint64_t cost, slots_outcome *out) {
    uint64_t state = s->twins ? slot_state(s->seen[__builtin_ctz(s->twins)]) : now;
    if (!s->twins && !s->dead)
        slots_full(s, n, now, cost, out);
    else
        slots_answer(out, slots_gcra(state, n, now, cost), now);
}

/* Steps a committed slot of the key as it was read. True when the answer stands: the CAS succeeded,
 * or nothing was to be written and the slot still is what was read. */
static inline bool slots_step(slot_word *slot, slot_word w, const limit_numbers *n, uint64_t now,
                              uint64_t cost, bool peek, slots_outcome *out) {
    slots_answer(out, slots_gcra(slot_state(w), n, now, cost), now);
    SYNC(SYNC_STEP);
    if (out->allowed && !peek)
        return cas128(slot, w, slot_commit(w.fp, out->state));
    return slot_unchanged(slot, w);
}

/* The one loop that retries a CAS: decides a request whose key has no committed slot yet, or whose
 * slot another process wrote to. Every pass starts from a fresh scan; a pass ends without an answer
 * only when this process has just prepared a slot, or when another wrote to one of the candidates.
 * Kept out of line: it would cost the common case more than it takes itself. */
static __attribute__((noinline)) void slots_settle(slot_set set, const limit_numbers *n,
                                                   uint64_t fp, uint64_t cost, uint64_t now,
                                                   const ticker *clock, bool peek,
                                                   slots_outcome *out) {
    int hint = 0;
    slot_scan s;

    while (out->attempts++ < ATTEMPTS_MAX) { /* the first pass was slots_decide's */
        slots_scan(set, fp, now, hint, &s);
        SYNC(SYNC_SCANNED);

        /* The key has its slot: step it. A denial writes nothing. */
        if (s.match >= 0) {
            if (slots_step(slots_at(set, s.match), s.seen[s.match], n, now, cost, peek, out))
                return;
            continue;
        }
        if (peek) {
            slots_look(&s, n, now, cost, out);
            return;
        }

        /* The key has none: claim one, and look again whether somebody else did the same. */
        if (s.twins == 0) {
            int claim;
            if (s.dead) {
                claim = slots_pick_dead(s.dead);
                SYNC(SYNC_CLAIM);
            } else {
                claim = slots_full(&s, n, now, cost, out);
                if (claim < 0)
                    return;
                SYNC(SYNC_EVICT);
            }
            if (!slots_cas(set, claim, s.seen[claim], slot_claim(fp, s.seen[claim])))
                continue;
            out->evicted += !s.dead;
            hint = claim;
            SYNC(SYNC_CLAIMED);
#ifdef SHMLIMIT_BAD_NO_RESCAN /* the control of the race tests: breaks (C), over-admits */
            s.twins = 1u << claim;
            s.seen[claim] = slot_claim(fp, s.seen[claim]);
#else
            continue;
#endif
        }

        /* Somebody else did: agree on the lowest slot. */
        if (s.twins != 1u << hint) {
            hint = slots_kill_twins(set, &s);
            continue;
        }

        /* This scan read the own slot first and saw no other: read the clock, then commit (C). */
        SYNC(SYNC_COMMIT_READ);
        now = ticker_now(clock);
        slots_answer(out, slots_gcra(slot_state(s.seen[hint]), n, now, cost), now);
        SYNC(SYNC_COMMIT);
        if (!out->allowed || slots_cas(set, hint, s.seen[hint], slot_commit(fp, out->state)))
            return;
    }
    /* Never an admission that was not recorded. */
    slots_answer(out, (gcra_outcome){false, now, n->interval_ticks}, now);
    out->decided_by = BY_CONTENTION;
}

/* The committed slot of a key in one line and what was read there; NULL = none. */
static inline slot_word *slots_find(slot_line *line, uint64_t fp, slot_word *seen) {
    for (int i = 0; i < (int)SLOTS_PER_LINE; i++) {
        slot_word w = slot_read(&line->slot[i]);
        if (w.fp == fp && slot_committed(w)) {
            *seen = w;
            return &line->slot[i];
        }
    }
    return NULL;
}

/* Decides one request of `cost` cells and consumes it when admitted; with `peek`, only says what
 * would be decided, and writes nothing. A cost of 0 is for a peek only. `now` is the caller's
 * reading of the clock, in ticks.
 *
 * Here stands the common case: the key has a committed slot, and nobody is in the way. It leaves
 * `out` to the compiler's registers, which is why the other case has a memory of its own. */
static inline void slots_decide(slot_set set, const limit_numbers *n, uint64_t fp, uint64_t cost,
                                uint64_t now, const ticker *clock, bool peek, slots_outcome *out) {
    slot_word seen, *slot = slots_find(set.line[0], fp, &seen);
    slots_outcome settled;
    out->evicted = 0;
    out->attempts = 1;
    if (slot == NULL)
        slot = slots_find(set.line[1], fp, &seen);
    if (__builtin_expect(slot != NULL, 1) &&
        __builtin_expect(slots_step(slot, seen, n, now, cost, peek, out), 1))
        return;
    settled.evicted = 0;
    settled.attempts = 1;
    slots_settle(set, n, fp, cost, now, clock, peek, &settled);
    *out = settled;
}

enum cleared { CLEARED, SET_FULL, CLEAR_CONTENDED };

/* Forgets a key: its slot is abandoned, and dies by its own state, since no write may lower it.
 *
 * Changes nothing unless at least two dead slots are left to the key. A stranger's live slot is no
 * home for it: that one may not be evictable, and hands over its debt if it is. The dead are counted
 * after the key's own slots were read: if one of these is still there when it is abandoned, no other
 * clear of the key has used up a slot since.
 *
 * It is done once it abandoned a committed slot, whatever became of uncommitted ones: a second pass
 * could forgive what was admitted since. */
static inline enum cleared slots_clear(const slot_table *table, uint64_t fp, uint64_t now) {
    const slot_set set = slots_of(table, fp);
    for (uint32_t attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        uint32_t matches = 0, dead = 0;
        slot_word seen[CANDIDATES];
        bool lost = false, forgave = false;
        for (int i = 0; i < (int)CANDIDATES; i++) {
            seen[i] = slot_read(slots_at(set, i));
            matches |= (uint32_t)(seen[i].fp == fp) << i;
        }
        if (!matches)
            return CLEARED;
        SYNC(SYNC_CLEAR_COUNT);
        for (int i = 0; i < (int)CANDIDATES; i++)
            dead += slot_dead(slot_read(slots_at(set, i)), now);
        if (dead < CLEAR_LEAVES_DEAD)
            return SET_FULL;
        for (int i = 0; i < (int)CANDIDATES; i++) {
            if (matches >> i & 1) {
                SYNC(SYNC_ABANDON);
                if (!slots_cas(set, i, seen[i], slot_claim(FP_ABANDONED, seen[i])))
                    lost = true;
                else
                    forgave |= slot_committed(seen[i]);
            }
        }
        if (forgave || !lost)
            return CLEARED;
    }
    return CLEAR_CONTENDED;
}

#endif
