/* Limit rows: a limit's numbers, changed while requests read them, by the rules of buffers.h. */
#ifndef SHMLIMIT_ROWS_H
#define SHMLIMIT_ROWS_H

#include "buffers.h"
#include "gcra.h"
#include "layout.h"

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

/* Copies the numbers; returns their head, 0 when the row is unused or kept changing. */
static inline uint64_t row_read(const limit_row *row, limit_numbers *out) {
    uint64_t words[NUMBERS_WORDS];
    uint64_t head = buffer_read(&row->head, (const uint64_t *)row->buffer, NUMBERS_WORDS, words);
    if (head != 0)
        memcpy(out, words, sizeof words);
    return head;
}

/* Call with the publisher lock held. A new row's name is written before its first publication. */
static inline void row_publish(limit_row *row, const limit_numbers *n) {
    uint64_t words[NUMBERS_WORDS];
    memcpy(words, n, sizeof words);
    buffer_publish(&row->head, (uint64_t *)row->buffer, NUMBERS_WORDS, words);
}

#endif
