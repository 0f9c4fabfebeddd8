/* The structural check: walks a table and asserts every invariant that holds between two writes.
 *
 * It may run beside live workers. What looks wrong is read again before it is reported, since two
 * slots cannot be read at one moment.
 */
#ifndef SHMLIMIT_CHECK_H
#define SHMLIMIT_CHECK_H

#include "rows.h"
#include "slots.h"

#define CHECK_EVIDENCE_MAX 32
#define CHECK_READS 3

enum damage {
    DAMAGE_EMPTY_COMMITTED = 1, /* a slot without a key is marked as consumed from */
    DAMAGE_KEY_NEVER_WRITTEN,   /* a key in a slot whose word was never raised */
    DAMAGE_WRONG_LINE,          /* a key outside its two candidate lines */
    DAMAGE_TWO_COMMITTED,       /* a key with two committed slots: two buckets */
    DAMAGE_STATE_TOO_FAR,       /* a state further ahead than any burst can run */
    DAMAGE_ROW_NUMBERS,         /* a limit row whose numbers cannot be used */
    DAMAGE_ROW_NAME             /* a limit row without a proper name */
};

typedef struct {
    uint32_t damage; /* enum damage */
    uint64_t where;  /* index of the slot, or of the limit row */
    slot_word word;
} check_evidence;

typedef struct {
    uint64_t slots, unused, live, dead, uncommitted, abandoned;
    uint64_t ahead_ticks_max; /* of the live ones */
    uint64_t limits;
    uint64_t damages;
    check_evidence evidence[CHECK_EVIDENCE_MAX]; /* the first of them */
} check_report;

static inline void check_damage(check_report *r, enum damage damage, uint64_t where, slot_word w) {
    if (r->damages < CHECK_EVIDENCE_MAX)
        r->evidence[r->damages] = (check_evidence){damage, where, w};
    r->damages++;
}

/* Whether another candidate of the key holds it committed while this one still does. */
static inline bool check_two_committed(const slot_table *t, const slot_word *own, slot_word w) {
    slot_set set = slots_of(t, w.fp);
    for (int i = 0; i < (int)CANDIDATES; i++) {
        const slot_word *other = slots_at(set, i);
        for (int read = 0; other != own && read < CHECK_READS; read++) {
            slot_word seen = slot_read(other);
            if (seen.fp != w.fp || !slot_committed(seen))
                break;
            if (slot_unchanged(other, seen) && slot_unchanged(own, w) &&
                slot_unchanged(other, seen))
                return true;
        }
    }
    return false;
}

static inline enum damage check_slot(const slot_table *t, uint64_t index, const slot_word *slot,
                                     slot_word w, uint64_t now) {
    uint64_t line[2], own = index / SLOTS_PER_LINE;
    if (slot_state(w) > now && slot_state(w) - now >= 2 * AHEAD_TICKS_MAX)
        return DAMAGE_STATE_TOO_FAR;
    if (w.fp < FP_FIRST)
        return slot_committed(w) ? DAMAGE_EMPTY_COMMITTED : 0;
    if (slot_state(w) == 0)
        return DAMAGE_KEY_NEVER_WRITTEN;
    slots_line_numbers(w.fp, t->count, line);
    if (own != line[0] && own != line[1])
        return DAMAGE_WRONG_LINE;
    if (slot_committed(w) && check_two_committed(t, slot, w))
        return DAMAGE_TWO_COMMITTED;
    return 0;
}

static inline void check_slots(const slot_table *t, uint64_t now, check_report *r) {
    for (uint64_t i = 0; i < t->count * SLOTS_PER_LINE; i++) {
        const slot_word *slot = &t->lines[i / SLOTS_PER_LINE].slot[i % SLOTS_PER_LINE];
        slot_word w = slot_read(slot);
        enum damage damage = 0;
        for (int read = 0; read < CHECK_READS; read++) {
            damage = check_slot(t, i, slot, w, now);
            if (!damage)
                break;
            slot_word again = slot_read(slot);
            if (again.v == w.v && again.fp == w.fp)
                break;
            w = again;
        }
        if (damage)
            check_damage(r, damage, i, w);
        r->slots++;
        r->unused += w.v == 0;
        if (w.v == 0)
            continue;
        bool dead = slot_dead(w, now);
        r->dead += dead;
        r->live += !dead;
        r->uncommitted += !dead && w.fp >= FP_FIRST && !slot_committed(w);
        r->abandoned += !dead && w.fp == FP_ABANDONED;
        if (!dead && slot_state(w) - now > r->ahead_ticks_max)
            r->ahead_ticks_max = slot_state(w) - now;
    }
}

static inline void check_rows(uint8_t *base, const geometry *g, check_report *r) {
    for (uint64_t i = 0; i < LIMIT_ROWS; i++) {
        const limit_row *row = layout_limit_row(base, g, i);
        limit_numbers n;
        slot_word none = {0, row_head(row)};
        if (none.v == 0)
            continue;
        r->limits++;
        if (row->rate_index >= RATES_MAX || row->name[0] == 0 || memchr(row->name, 0, LIMIT_NAME_BYTES) == NULL)
            check_damage(r, DAMAGE_ROW_NAME, i, none);
        if (row_read(row, &n) && !numbers_valid(&n))
            check_damage(r, DAMAGE_ROW_NUMBERS, i, none);
    }
}

#endif
