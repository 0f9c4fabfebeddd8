/* What a segment holds, byte by byte, and the geometry that every access is bounded by.
 *
 *   header      one page: identity, secret, directory of sections
 *   limit rows  one per rate: name and two buffers of numbers, published by a generation
 *   hosts       how many hosts share the limits, who says so and since when
 *   counters    one row per worker, then one shared row; each begins a cache line
 *   slots       two candidate lines of four slots for each key
 *
 * The directory has room for the sections still to come (lease records, hot-key sketch, demand
 * array). A process computes the geometry once, at attach, checks it against the
 * directory and the real size, and keeps it in its own memory: nothing that is read from the
 * segment later serves as a bound or as an index.
 */
#ifndef SHMLIMIT_LAYOUT_H
#define SHMLIMIT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "atomics.h"

#define LAYOUT_MAGIC 0x54494d494c4d4853u /* "SHMLIMIT" in memory */
#define LAYOUT_VERSION 3u
#define HEADER_BYTES 4096u
#define LINE_BYTES 64u
#define SLOTS_PER_LINE 4u
#define SECTIONS_MAX 16u
#define SEGMENT_NAME_BYTES 208u /* with its terminating zeros */
#define LIMIT_ROWS 256u
#define LIMIT_NAME_BYTES 52u /* with its terminating zero */
#define RATES_MAX 8u         /* of one limit */
#define WORKER_ROWS_MAX 4096u
#define HOSTS_MAX 1000000u /* a count above this is no count of hosts but a mistake */
#define LINES_MIN 2u
#define LINES_MAX (1u << 31) /* 8.6 G slots: lines are picked by 32 bits of the fingerprint */

enum section_kind {
    SECTION_LIMITS = 1,
    SECTION_COUNTERS = 2,
    SECTION_SLOTS = 3,
    SECTION_HOSTS = 4
};

typedef struct {
    uint32_t kind; /* enum section_kind, 0 = unused entry */
    uint32_t item_bytes;
    uint64_t offset_bytes;
    uint64_t items;
} section_entry;

/* Written before the segment gets its name, never changed afterwards. */
typedef struct {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t header_bytes;
    uint64_t segment_bytes;
    uint64_t secret[2];       /* SipHash key: a key's slot cannot be guessed without it */
    uint64_t epoch_ns;        /* clock reading at tick 0 */
    int64_t wall_offset_ns;   /* wall clock minus that clock, when the segment was made */
    uint64_t time_ns_inode;   /* time namespace: the clock's origin */
    uint64_t pid_ns_inode;    /* pid namespace: what the pids in counter rows mean */
    uint8_t boot_id[16];      /* the clock restarts at boot */
    uint32_t clock_id;
    uint32_t worker_rows;     /* without the shared one */
    uint64_t lines;
    section_entry sections[SECTIONS_MAX];
    char name[SEGMENT_NAME_BYTES]; /* as configured; the file's may be a shortened one */
} segment_header;

/* A bucket: 16 bytes that are read and swapped as one.
 *   fp   fingerprint of (limit, key); EMPTY and ABANDONED are no key's
 *   v    state << 1 | committed
 * All zero is a slot never used, so that fresh pages need no initialisation. */
#define FP_EMPTY 0u
#define FP_ABANDONED 1u
#define FP_FIRST 2u

typedef struct {
    slot_word slot[SLOTS_PER_LINE];
} __attribute__((aligned(64))) slot_line;

enum limit_mode { MODE_ENFORCE = 0, MODE_SHADOW = 1, MODE_OFF = 2, MODE_REMOVED = 3 };
enum full_policy { FULL_EVICT = 0, FULL_DENY = 1, FULL_ALLOW = 2 };
enum algorithm { ALGORITHM_GCRA = 1 }; /* what the states of its keys mean */
enum limit_flag {
    LIMIT_OF_HOST = 1, /* each host has the whole rate: the count of hosts does not divide it */
    LIMIT_BY_HAND = 2  /* set by an operator: stands until the configuration is loaded again */
};

/* One consistent set of a rate's numbers. Ticks are sixteenths of a nanosecond. */
typedef struct {
    uint64_t interval_ticks;  /* T: what one cell costs on this host */
    uint64_t tolerance_ticks; /* tau: how far ahead of now a bucket may run */
    uint64_t burst_cells;     /* B: the most cells at once, on all hosts together */
    uint64_t rate_count;      /* the rate as configured: cells ... */
    uint64_t rate_period_ns;  /* ... per period */
    uint64_t salt;            /* sets this limit's keys apart; a new one forgets them all */
    uint16_t mode;            /* enum limit_mode */
    uint16_t when_full;       /* enum full_policy */
    uint16_t algorithm;       /* enum algorithm */
    uint16_t flags;           /* enum limit_flag */
    uint64_t floor_ticks;     /* no bucket's state is earlier: empty at first, 0 = full at first */
} limit_numbers; /* aligned by the row it lies in; copies lie anywhere */

/* head = generation << 1 | index of the valid buffer; 0 = row never used. See buffers.h.
 *
 * A limit has a row for each of its rates, with the same name. The first one is its own: it has the
 * counters, and its head changes whenever one of the others comes, so that readers look again. */
typedef struct {
    uint64_t head;
    char name[LIMIT_NAME_BYTES];
    uint32_t rate_index; /* 0 .. RATES_MAX - 1 */
    limit_numbers buffer[2];
} __attribute__((aligned(64))) limit_row;

/* How many hosts share the limits, as one consistent set. Texts are UTF-8 with terminating zeros;
 * times are ticks, 0 = never. */
#define HOSTS_TEXT_BYTES 320u

enum hosts_origin {
    HOSTS_ASSUMED = 0, /* nothing was read yet: what the configuration says for that case */
    HOSTS_READ = 1     /* the source has answered: the count follows it, or stands */
};

typedef struct {
    uint64_t count;               /* as the agent has it; shares are of this, unless pinned */
    uint64_t pinned;              /* an operator's: shares are of this one; 0 = none */
    uint64_t origin;              /* enum hosts_origin, of `count` */
    uint64_t read_count;          /* what the last good reading said */
    uint64_t read_ticks;          /* when that was */
    uint64_t changed_ticks;       /* when the shares last changed */
    uint64_t failing_since_ticks; /* the first failure since; 0 = the last reading was good */
    uint64_t reserved;
    char source[HOSTS_TEXT_BYTES];
    char failure[HOSTS_TEXT_BYTES]; /* of the last reading, or empty */
    char refusal[HOSTS_TEXT_BYTES]; /* why the configuration's last change does not count, or empty */
} hosts_numbers;

/* head as in a limit row. The rest are words of their own. */
typedef struct {
    uint64_t head;
    uint64_t agent;           /* as in counter_owner: the agent that works, or the last that did */
    uint64_t heartbeat_ticks; /* its last sign of life */
    uint64_t reloads;         /* how often the configuration was loaded again */
    uint64_t divided;         /* the head whose count all limits were divided by, as in hosts.h */
    uint64_t reserved[3];
    hosts_numbers buffer[2];
} __attribute__((aligned(64))) hosts_state;

/* What one worker did under one limit. Written by its owner only, never reset. A cache line holds
 * counters of neighbouring limits too, but never those of two workers. */
typedef struct {
    uint64_t allowed;       /* decisions */
    uint64_t denied;        /* decisions, the following included */
    uint64_t cells;         /* cells admitted */
    uint64_t shadow_denied; /* decisions that would have been denied, were it not shadow mode */
    uint64_t contended;     /* denied because the retries ran out */
    uint64_t evicted;       /* buckets of other keys that were taken over */
    uint64_t full_denied;   /* denied because no slot could be had */
    uint64_t full_allowed;  /* admitted unrecorded because no slot could be had */
    uint64_t lost;          /* cells taken for requests that another rate or limit then refused */
} limit_counters;

/* owner = start time of the process << 22 | pid, 0 = never used. See counters.h. */
typedef struct {
    uint64_t owner;
    uint64_t reserved[7];
} __attribute__((aligned(64))) counter_owner;

_Static_assert(sizeof(slot_line) == LINE_BYTES, "a slot line is a cache line");
_Static_assert(sizeof(limit_numbers) == LINE_BYTES, "a buffer is a cache line");
_Static_assert(offsetof(limit_row, buffer) % LINE_BYTES == 0, "a buffer begins a cache line");
_Static_assert(sizeof(limit_row) == 3 * LINE_BYTES, "a limit row is three cache lines");
_Static_assert(sizeof(hosts_numbers) % LINE_BYTES == 0, "a buffer begins a cache line");
_Static_assert(sizeof(segment_header) <= HEADER_BYTES, "the header fits its page");

/* Where everything is: kept in process memory by all who attach. */
typedef struct {
    uint64_t lines;
    uint64_t worker_rows;
    uint64_t limits_offset, hosts_offset, counters_offset, slots_offset; /* bytes */
    uint64_t segment_bytes;
} geometry;

static const uint64_t COUNTER_ROW_BYTES =
    sizeof(counter_owner) + LIMIT_ROWS * sizeof(limit_counters);
_Static_assert(LIMIT_ROWS * sizeof(limit_counters) % LINE_BYTES == 0, "a row begins a cache line");

/* Computes the geometry; false when the numbers are out of range. */
static inline bool geometry_of(uint64_t lines, uint64_t worker_rows, geometry *g) {
    if (lines < LINES_MIN || lines > LINES_MAX || worker_rows < 1 || worker_rows > WORKER_ROWS_MAX)
        return false;
    g->lines = lines;
    g->worker_rows = worker_rows;
    g->limits_offset = HEADER_BYTES;
    g->hosts_offset = g->limits_offset + LIMIT_ROWS * sizeof(limit_row);
    g->counters_offset = g->hosts_offset + sizeof(hosts_state);
    g->slots_offset = g->counters_offset + (worker_rows + 1) * COUNTER_ROW_BYTES;
    g->segment_bytes = g->slots_offset + lines * sizeof(slot_line);
    return true;
}

static inline void geometry_sections(const geometry *g, section_entry out[4]) {
    const section_entry sections[4] = {
        {SECTION_LIMITS, sizeof(limit_row), g->limits_offset, LIMIT_ROWS},
        {SECTION_HOSTS, sizeof(hosts_state), g->hosts_offset, 1},
        {SECTION_COUNTERS, (uint32_t)COUNTER_ROW_BYTES, g->counters_offset, g->worker_rows + 1},
        {SECTION_SLOTS, sizeof(slot_line), g->slots_offset, g->lines},
    };
    memcpy(out, sections, sizeof sections);
}

/* Reads the geometry of a header; false unless the directory says the same. `mapped_bytes` is the
 * real size of what is mapped. The caller has checked magic and layout version. */
static inline bool geometry_read(const segment_header *h, uint64_t mapped_bytes, geometry *g) {
    section_entry expected[SECTIONS_MAX] = {{0}};
    if (!geometry_of(h->lines, h->worker_rows, g))
        return false;
    geometry_sections(g, expected);
    return h->header_bytes == HEADER_BYTES && h->segment_bytes == g->segment_bytes &&
           g->segment_bytes <= mapped_bytes &&
           memcmp(h->sections, expected, sizeof expected) == 0;
}

static inline limit_row *layout_limit_row(uint8_t *base, const geometry *g, uint64_t row) {
    return (limit_row *)(base + g->limits_offset) + row;
}

static inline hosts_state *layout_hosts(uint8_t *base, const geometry *g) {
    return (hosts_state *)(base + g->hosts_offset);
}

static inline counter_owner *layout_counter_row(uint8_t *base, const geometry *g, uint64_t row) {
    return (counter_owner *)(base + g->counters_offset + row * COUNTER_ROW_BYTES);
}

static inline limit_counters *layout_counters(counter_owner *row, uint64_t limit) {
    return (limit_counters *)(row + 1) + limit;
}

static inline slot_line *layout_lines(uint8_t *base, const geometry *g) {
    return (slot_line *)(base + g->slots_offset);
}

#endif
