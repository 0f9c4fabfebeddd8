/* A set of words that is changed while others read it.
 *
 * There are two buffers. The publisher (one at a time, under the publisher lock of segment.py)
 * writes the idle one and then flips `head`, which holds a generation and the index of the valid
 * buffer. A reader copies the valid buffer and accepts the copy if head has not changed meanwhile.
 * A publisher killed before the flip leaves the old words valid and nothing to clean up: the next
 * one writes the idle buffer again. A reader never waits: it gives up after BUFFER_READS_MAX copies
 * that were all overtaken, and keeps what it has.
 */
#ifndef SHMLIMIT_BUFFERS_H
#define SHMLIMIT_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#include "atomics.h"
#include "syncpoints.h"

#define BUFFER_READS_MAX 64

/* Copies the valid buffer; returns its head, 0 when nothing was ever published or it kept changing.
 * `buffers` are two of `words` words each, one after the other. */
static inline uint64_t buffer_read(const uint64_t *head, const uint64_t *buffers, size_t words,
                                   uint64_t *out) {
    for (int i = 0; i < BUFFER_READS_MAX; i++) {
        uint64_t seen = load64_acquire(head);
        const uint64_t *from = buffers + (seen & 1) * words;
        if (seen == 0)
            return 0;
        for (size_t w = 0; w < words; w++)
            out[w] = load64_relaxed(from + w);
        fence_acquire();
        if (load64_relaxed(head) == seen)
            return seen;
    }
    return 0;
}

/* Call with the publisher lock held. */
static inline void buffer_publish(uint64_t *head, uint64_t *buffers, size_t words,
                                  const uint64_t *new_words) {
    uint64_t seen = load64_relaxed(head);
    uint64_t idle = (seen & 1) ^ 1;
    uint64_t *to = buffers + idle * words;
    fence_release(); /* whoever sees a word below also sees the flip before it */
    for (size_t w = 0; w < words; w++) {
        SYNC(SYNC_PUBLISH_WORD);
        store64_relaxed(to + w, new_words[w]);
    }
    SYNC(SYNC_PUBLISH);
    store64_release(head, ((seen >> 1) + 1) << 1 | idle);
    SYNC(SYNC_PUBLISHED);
}

#endif
