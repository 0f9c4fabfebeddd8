/* The count of hosts, changed while others read it, by the rules of buffers.h. No request reads it:
 * what follows from it lies in the limit rows. */
#ifndef SHMLIMIT_HOSTS_H
#define SHMLIMIT_HOSTS_H

#include "buffers.h"
#include "layout.h"

#define HOSTS_WORDS (sizeof(hosts_numbers) / sizeof(uint64_t))

/* False when nothing was published yet, or it kept changing. */
static inline bool hosts_read(const hosts_state *state, hosts_numbers *out) {
    uint64_t words[HOSTS_WORDS];
    if (!buffer_read(&state->head, (const uint64_t *)state->buffer, HOSTS_WORDS, words))
        return false;
    memcpy(out, words, sizeof words);
    return true;
}

/* Call with the publisher lock held. */
static inline void hosts_publish(hosts_state *state, const hosts_numbers *n) {
    uint64_t words[HOSTS_WORDS];
    memcpy(words, n, sizeof words);
    buffer_publish(&state->head, (uint64_t *)state->buffer, HOSTS_WORDS, words);
}

/* Whether every limit is divided by the count that is published: not while a publisher is between
 * the two, or when one was killed there. */
static inline bool hosts_divided(const hosts_state *state) {
    return load64_acquire(&state->divided) == load64_acquire(&state->head);
}

/* Call with the publisher lock held, after the limits were divided. */
static inline void hosts_set_divided(hosts_state *state) {
    SYNC(SYNC_DIVIDE);
    store64_release(&state->divided, load64_relaxed(&state->head));
}

/* What shares are computed for: 1 to HOSTS_MAX whatever stands there. */
static inline uint64_t hosts_in_force(const hosts_numbers *n) {
    uint64_t hosts = n->pinned ? n->pinned : n->count;
    return hosts < 1 ? 1 : hosts > HOSTS_MAX ? HOSTS_MAX : hosts;
}

#endif
