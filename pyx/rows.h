/* Limit rows: a limit's numbers, changed while requests read them.
 *
 * A row has two buffers. The publisher (one at a time, under the publisher lock of segment.py)
 * writes the idle one and then flips `head`, which holds a generation and the index of the valid
 * buffer. A reader copies the valid buffer and accepts the copy if head has not changed meanwhile.
 * A publisher killed before the flip leaves the old numbers valid and nothing to clean up: the next
 * one writes the idle buffer again. A reader never waits; it keeps the numbers it has when a copy
 * fails ROW_READS_MAX times in a row.
 */
#ifndef SHMLIMIT_ROWS_H
#define SHMLIMIT_ROWS_H

#include "gcra.h"
#include "layout.h"
#include "syncpoints.h"

#define ROW_READS_MAX 64
#define NUMBERS_WORDS (sizeof(limit_numbers) / sizeof(uint64_t))
#define AHEAD_TICKS_MAX ((uint64_t)1 << 61) /* the furthest a full burst may run ahead of now */

static inline uint64_t row_head(const limit_row *row) { return load64_acquire(&row->head); }

/* Numbers that the steps can take without leaving 63 bits or dividing by zero. */
static inline bool numbers_valid(const limit_numbers *n) {
    return n->interval_ticks >= 1 && n->burst_cells >= 1 &&
           n->interval_ticks <= n->tolerance_ticks && n->tolerance_ticks < AHEAD_TICKS_MAX &&
           n->interval_ticks <= (AHEAD_TICKS_MAX - 1) / n->burst_cells && n->rate_count >= 1 &&
           n->rate_period_ns >= 1 && n->floor_ticks < TICKS_MAX + AHEAD_TICKS_MAX &&
           n->mode <= MODE_REMOVED && n->when_full <= FULL_ALLOW &&
           n->algorithm == ALGORITHM_GCRA;
}

/* Copies the valid buffer; returns its head, 0 when the row is unused or kept changing. */
static inline uint64_t row_read(const limit_row *row, limit_numbers *out) {
    for (int i = 0; i < ROW_READS_MAX; i++) {
        uint64_t head = row_head(row);
        const uint64_t *from = (const uint64_t *)&row->buffer[head & 1];
        uint64_t words[NUMBERS_WORDS];
        if (head == 0)
            return 0;
        for (size_t w = 0; w < NUMBERS_WORDS; w++)
            words[w] = load64_relaxed(from + w);
        fence_acquire();
        if (load64_relaxed(&row->head) == head) {
            memcpy(out, words, sizeof words);
            return head;
        }
    }
    return 0;
}

/* Call with the publisher lock held. A new row's name is written before its first publication. */
static inline void row_publish(limit_row *row, const limit_numbers *n) {
    uint64_t head = load64_relaxed(&row->head);
    uint64_t idle = (head & 1) ^ 1;
    uint64_t *to = (uint64_t *)&row->buffer[idle], words[NUMBERS_WORDS];
    memcpy(words, n, sizeof words);
    fence_release(); /* whoever sees a word below also sees the flip before it */
    for (size_t w = 0; w < NUMBERS_WORDS; w++)
        store64_relaxed(to + w, words[w]);
    SYNC(SYNC_PUBLISH);
    store64_release(&row->head, ((head >> 1) + 1) << 1 | idle);
}

#endif
