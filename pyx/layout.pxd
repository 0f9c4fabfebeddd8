# What a segment holds: layout.h, rows.h, hosts.h and check.h.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from slots cimport slot_line, slot_table, slot_word


cdef extern from "layout.h" nogil:
    const uint64_t LAYOUT_MAGIC
    const uint32_t LAYOUT_VERSION
    const uint32_t HEADER_BYTES
    const uint32_t LINE_BYTES
    const uint32_t SEGMENT_NAME_BYTES
    const uint32_t LIMIT_ROWS
    const uint32_t LIMIT_NAME_BYTES
    const uint32_t RATES_MAX
    const uint32_t WORKER_ROWS_MAX
    const uint32_t LINES_MIN
    const uint32_t LINES_MAX
    const uint32_t HOSTS_MAX
    const uint32_t HOSTS_TEXT_BYTES

    ctypedef struct section_entry:
        uint64_t offset_bytes

    ctypedef struct segment_header:
        uint64_t magic
        uint32_t layout_version
        uint32_t header_bytes
        uint64_t segment_bytes
        uint64_t secret[2]
        uint64_t epoch_ns
        int64_t wall_offset_ns
        uint64_t time_ns_inode
        uint64_t pid_ns_inode
        uint8_t boot_id[16]
        uint32_t clock_id
        uint32_t worker_rows
        uint64_t lines
        section_entry sections[16]
        char name[208]

    cdef enum limit_mode:
        MODE_ENFORCE, MODE_SHADOW, MODE_OFF, MODE_REMOVED

    cdef enum full_policy:
        FULL_EVICT, FULL_DENY, FULL_ALLOW

    cdef enum algorithm:
        ALGORITHM_GCRA

    cdef enum limit_flag:
        LIMIT_OF_HOST, LIMIT_BY_HAND

    cdef enum hosts_origin:
        HOSTS_ASSUMED, HOSTS_READ

    ctypedef struct hosts_numbers:
        uint64_t count
        uint64_t pinned
        uint64_t origin
        uint64_t read_count
        uint64_t read_ticks
        uint64_t changed_ticks
        uint64_t failing_since_ticks
        char source[320]
        char failure[320]
        char refusal[320]

    ctypedef struct hosts_state:
        uint64_t agent
        uint64_t heartbeat_ticks
        uint64_t reloads

    ctypedef struct limit_numbers:
        uint64_t interval_ticks
        uint64_t tolerance_ticks
        uint64_t burst_cells
        uint64_t rate_count
        uint64_t rate_period_ns
        uint64_t salt
        uint64_t floor_ticks
        uint16_t mode
        uint16_t when_full
        uint16_t algorithm
        uint16_t flags

    ctypedef struct limit_row:
        uint64_t head
        char name[52]
        uint32_t rate_index

    ctypedef struct limit_counters:
        uint64_t allowed
        uint64_t denied
        uint64_t cells
        uint64_t shadow_denied
        uint64_t contended
        uint64_t evicted
        uint64_t full_denied
        uint64_t full_allowed
        uint64_t lost

    ctypedef struct counter_owner:
        uint64_t owner

    ctypedef struct geometry:
        uint64_t lines
        uint64_t worker_rows
        uint64_t segment_bytes

    bint geometry_of(uint64_t lines, uint64_t worker_rows, geometry *g)
    void geometry_sections(const geometry *g, section_entry *out)
    bint geometry_read(const segment_header *h, uint64_t mapped_bytes, geometry *g)
    limit_row *layout_limit_row(uint8_t *base, const geometry *g, uint64_t row)
    hosts_state *layout_hosts(uint8_t *base, const geometry *g)
    counter_owner *layout_counter_row(uint8_t *base, const geometry *g, uint64_t row)
    limit_counters *layout_counters(counter_owner *row, uint64_t limit)
    slot_line *layout_lines(uint8_t *base, const geometry *g)


cdef extern from "rows.h" nogil:
    uint64_t row_head(const limit_row *row)
    uint64_t row_read(const limit_row *row, limit_numbers *out)
    void row_publish(limit_row *row, const limit_numbers *n)
    bint numbers_valid(const limit_numbers *n)


cdef extern from "hosts.h" nogil:
    bint hosts_read(const hosts_state *state, hosts_numbers *out)
    bint hosts_divided(const hosts_state *state)
    void hosts_set_divided(hosts_state *state)
    void hosts_publish(hosts_state *state, const hosts_numbers *n)
    uint64_t hosts_in_force(const hosts_numbers *n)


cdef extern from "check.h" nogil:
    ctypedef struct check_evidence:
        uint32_t damage
        uint64_t where
        slot_word word

    ctypedef struct check_report:
        uint64_t slots
        uint64_t unused
        uint64_t live
        uint64_t dead
        uint64_t uncommitted
        uint64_t abandoned
        uint64_t ahead_ticks_max
        uint64_t limits
        uint64_t damages
        check_evidence evidence[32]

    void check_slots(const slot_table *t, uint64_t now, check_report *r)
    void check_rows(uint8_t *base, const geometry *g, check_report *r)
