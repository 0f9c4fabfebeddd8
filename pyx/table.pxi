# The table: a mapped segment, its limits and this process's row of counters.

MODES = ("enforce", "shadow", "off")
WHEN_FULL = ("evict", "deny", "allow")
SCOPES = ("global", "host")
REPLACE = ("none", "file", "by hand")
COUNTERS = ("allowed", "denied", "cells", "shadow_denied", "contended", "evicted", "full_denied",
            "full_allowed", "lost")
DAMAGES = {
    1: "a slot without a key is marked as consumed from",
    2: "a key in a slot that was never written",
    3: "a key outside its two candidate lines",
    4: "a key with two committed slots",
    5: "a state further ahead than any burst can run",
    6: "a limit row whose numbers cannot be used",
    7: "a limit row without a proper name",
}


class CheckReport(NamedTuple):
    """What a structural check walked. Slots are counted at one reading of the clock each."""

    slots: int
    unused: int
    live: int
    dead: int
    uncommitted: int
    abandoned: int
    furthest_ahead_ns: int
    limits: int


class WorkerRow(NamedTuple):
    """What one row counted: {limit: {counter: count}}. The pid and the start time, in kernel clock
    ticks since boot, are of the process that took it last; both 0 in the row that is shared."""

    pid: int
    start_ticks: int
    counters: dict


class Reset(NamedTuple):
    """What a reset leaves behind: the slots now live in the whole table, the limit's former keys
    among them, and the nanoseconds until the last of them is dead if nothing more is taken."""

    occupied_slots: int
    dead_after_ns: int


@cython.final
cdef class Table:
    """A mapped segment. `publisher` is called for a context manager that holds the publisher lock.

    Raises what read_header raises. The mapping stays as long as the Table or a Limit of it does.
    """

    cdef Py_buffer view
    cdef uint8_t *base
    cdef geometry geometry
    cdef slot_table slots
    cdef ticker ticker
    cdef _InjectedClock injected
    cdef object publisher
    cdef public object limiter  # a weak reference to the Limiter that holds this table, or None()
    cdef bint closed
    cdef bint same_pids
    cdef counter_owner *worker_row
    cdef bint worker_row_shared
    cdef uint32_t worker_row_forks
    cdef dict limits
    cdef readonly object header
    cdef readonly str name

    def __cinit__(self, mapping, str name, publisher, clock=None, uint64_t pid_ns_inode=0):
        self.header = read_header(mapping, name)
        PyObject_GetBuffer(mapping, &self.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.base = <uint8_t *>self.view.buf
        if <size_t>self.base % LINE_BYTES != 0:
            raise ValueError(f"a table has to be mapped at a multiple of {LINE_BYTES} bytes")
        # read again from the segment, but checked against what is mapped, as always
        if not geometry_read(<segment_header *>self.base, self.view.len, &self.geometry):
            raise WrongGeometry(f"segment {name} changed while it was attached")
        self.slots.lines = layout_lines(self.base, &self.geometry)
        self.slots.count = self.geometry.lines
        self.ticker.epoch_ns = self.header.epoch_ns
        self.ticker.read_ns = NULL
        if clock is not None:
            self.injected = _InjectedClock(clock)
            self.ticker.read_ns = _read_injected
            self.ticker.context = <void *>self.injected
        self.name = name
        self.publisher = publisher
        self.limiter = _no_limiter
        self.closed = False
        self.same_pids = pid_ns_inode != 0 and pid_ns_inode == self.header.pid_ns_inode
        self.worker_row = NULL
        self.limits = {}

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    def close(self):
        """Every later call on a limit of this table raises LimiterClosed. The memory is given back
        with the last Limit."""
        cdef Limit limit
        self.closed = True
        for limit in self.limits.values():
            limit.forget_copies()
        self.limits = {}
        self.publisher = None

    cdef int require_open(self) except -1:
        if self.closed:
            raise LimiterClosed(f"limiter {self.name} was closed in this process; open it again")
        return 0

    cdef object published(self):
        """The context in which limits are published."""
        publisher = self.publisher
        self.require_open()
        return publisher()

    cdef uint64_t now(self) except? 0:
        cdef uint64_t now = ticker_now(&self.ticker)
        raise_clock_error(self.injected)
        return now

    cdef int claim_worker_row(self) except -1:
        """Gives this process a row of counters: its own, a dead worker's, or the shared one.

        At its first decision, not before: a master that decides nothing takes no row."""
        cdef uint64_t i, owner, own, pid = os.getpid()
        cdef counter_owner *row
        cdef counter_owner *shared
        cdef counter_owner *found
        if self.worker_row != NULL and self.worker_row_forks == process_forks:
            return 0
        found = shared = layout_counter_row(self.base, &self.geometry, self.geometry.worker_rows)
        start = process_start_ticks(pid)
        if self.same_pids and start is not None:
            own = <uint64_t>start << OWNER_PID_BITS | pid
            for i in range(self.geometry.worker_rows):
                row = layout_counter_row(self.base, &self.geometry, i)
                owner = load64_acquire(&row.owner)
                if owner == own or (not _owner_lives(owner) and cas64(&row.owner, owner, own)):
                    found = row
                    break
        self.worker_row_shared = found == shared
        self.worker_row = found
        self.worker_row_forks = process_forks
        return 0

    def limit(self, str name):
        """The limit of that name. Raises LimitNotFound, LimitRemoved, and LimiterClosed."""
        cdef Limit limit = self.limits.get(name)
        cdef int64_t row
        self.require_open()
        if limit is None:
            row = self._row_of(name, 0)
            if row < 0:
                raise LimitNotFound(
                    f"segment {self.name} has no limit {name!r}; it has: "
                    f"{', '.join(self.names()) or 'none'}"
                )
            limit = self.limits[name] = Limit.__new__(Limit, self, row, name)
        if limit.is_removed():
            raise LimitRemoved(name)
        return limit

    def names(self):
        """The names of the limits in the segment, in the order in which they were made."""
        return [name for name, removed in self._names() if not removed]

    cdef list _names(self):
        """(name, whether it was removed) of each limit there ever was."""
        cdef uint64_t i
        names = []
        for i in range(LIMIT_ROWS):
            if row_head(layout_limit_row(self.base, &self.geometry, i)) == 0:
                break
            if layout_limit_row(self.base, &self.geometry, i).rate_index == 0:
                names.append((self._row_name(i), self._row_removed(i)))
        return names

    cdef str _row_name(self, uint64_t i):
        cdef const char *name = layout_limit_row(self.base, &self.geometry, i).name
        return name[:LIMIT_NAME_BYTES].partition(b"\0")[0].decode("ascii", "backslashreplace")

    cdef bint _row_removed(self, uint64_t i):
        cdef limit_numbers n
        return (row_read(layout_limit_row(self.base, &self.geometry, i), &n) != 0
                and n.mode == MODE_REMOVED)

    cdef int64_t _row_of(self, str name, uint32_t rate_index) except -2:
        """The row of one of a limit's rates; -1 when there is none."""
        cdef uint64_t i
        cdef limit_row *row
        for i in range(LIMIT_ROWS):
            row = layout_limit_row(self.base, &self.geometry, i)
            if row_head(row) == 0:
                break
            if row.rate_index == rate_index and self._row_name(i) == name:
                return i
        return -1

    cdef list _further_rows(self, str name):
        """The rows of a limit's other rates, in their order."""
        cdef limit_numbers n
        cdef int64_t row
        rows = []
        for i in range(1, <int>RATES_MAX):
            row = self._row_of(name, i)
            if row < 0 or self._row_removed(row):
                break
            rows.append(row)
        return rows

    @property
    def hosts(self):
        """How many hosts share the limits: a Hosts, to read and to publish."""
        return Hosts.__new__(Hosts, self)

    @property
    def reloads(self):
        """How often the configuration was loaded again. Cheap: to be asked at every request."""
        self.require_open()
        return load64_acquire(&layout_hosts(self.base, &self.geometry).reloads)

    def rows_missing(self, limits):
        """How many rows these limits, as (name, number of rates), need beyond those there are. More
        than 0: publishing them all would raise TooManyLimits."""
        cdef uint64_t used = 0
        cdef int64_t needed = 0
        while used < LIMIT_ROWS and row_head(layout_limit_row(self.base, &self.geometry, used)):
            used += 1
        for name, rates in limits:
            needed += sum(self._row_of(name, i) < 0 for i in range(rates))
        return max(needed - <int64_t>(LIMIT_ROWS - used), 0)

    def publish(self, str name, rates, str mode="enforce", str when_full="evict", *,
                str scope="global", str initial="full", str replace="file", bint by_hand=False):
        """Makes the limit, or gives an existing one new numbers and leaves its buckets alone.

        Each rate is published as the share of this host, unless `scope` is "host". `initial` is for
        a rate that is made: "empty" drains all its buckets as of now, once. `replace` says which
        numbers give way to these: those of "file" or code, those an operator has set "by hand" too,
        or "none", where an existing limit stays as it is. One that was removed is made anew.
        Returns whether anything was published. Raises TooManyLimits.
        """
        if replace not in REPLACE:
            raise ValueError(f"replace: {replace!r}; accepted: {', '.join(REPLACE)}")
        with self.published():
            return publish_limit(self, name, rates, mode, when_full, scope, initial, replace,
                                 by_hand)

    def remove(self, str name):
        """Marks a limit as removed: whoever uses it gets LimitRemoved, until it is published again.
        It keeps its counters. False when it was removed already, or never there."""
        with self.published():
            return remove_rates(self, name, 0)

    def check(self):
        """Walks the whole table. Raises TableDamaged with the evidence, else returns a report."""
        cdef check_report r
        cdef uint64_t now = self.now(), i
        memset(&r, 0, sizeof(r))
        with nogil:
            check_rows(self.base, &self.geometry, &r)
            check_slots(&self.slots, now, &r)
        if r.damages:
            evidence = [
                f"  {'row' if r.evidence[i].damage >= 6 else 'slot'} {r.evidence[i].where}: "
                f"{DAMAGES[r.evidence[i].damage]} (fp {r.evidence[i].word.fp:#x}, "
                f"v {r.evidence[i].word.v:#x})"
                for i in range(min(r.damages, <uint64_t>32))
            ]
            raise TableDamaged(
                f"segment {self.name}: {r.damages} broken invariants at tick {now}, the first of "
                f"them:\n" + "\n".join(evidence)
            )
        return CheckReport(r.slots, r.unused, r.live, r.dead, r.uncommitted, r.abandoned,
                           ticks_to_ns(r.ahead_ticks_max), r.limits)

    def worker_rows(self):
        """A WorkerRow for each row that was ever taken, then the one that workers share when all
        others are taken. A row goes on counting under the next worker that takes it."""
        cdef uint64_t i, owner
        cdef counter_owner *row
        names = [
            (i, self._row_name(i)) for i in range(LIMIT_ROWS)
            if row_head(layout_limit_row(self.base, &self.geometry, i)) != 0
            and layout_limit_row(self.base, &self.geometry, i).rate_index == 0
        ]
        rows = []
        for i in range(self.geometry.worker_rows + 1):
            row = layout_counter_row(self.base, &self.geometry, i)
            owner = load64_acquire(&row.owner)
            if owner == 0 and i < self.geometry.worker_rows:
                continue
            counters = {}
            for j, name in names:
                _add_counts(counters.setdefault(name, dict.fromkeys(COUNTERS, 0)),
                            layout_counters(row, j))
            rows.append(WorkerRow(_owner_pid(owner), owner >> OWNER_PID_BITS, counters))
        return rows

    def worker_counters(self):
        """Counters by worker and limit: {pid: {limit: {counter: count}}}. Pid 0 is the shared row.
        """
        rows = {}
        for row in self.worker_rows():
            _add_all(rows.setdefault(row.pid, {}), row.counters)
        return rows

    def counters(self):
        """Counters by limit, summed over all workers that ever were: {limit: {counter: count}}.
        Limits that were removed are among them."""
        sums = {name: dict.fromkeys(COUNTERS, 0) for name, _ in self._names()}
        for row in self.worker_rows():
            _add_all(sums, row.counters)
        return sums


cdef _add_counts(dict counts, limit_counters *c):
    counts["allowed"] += load64_relaxed(&c.allowed)
    counts["denied"] += load64_relaxed(&c.denied)
    counts["cells"] += load64_relaxed(&c.cells)
    counts["shadow_denied"] += load64_relaxed(&c.shadow_denied)
    counts["contended"] += load64_relaxed(&c.contended)
    counts["evicted"] += load64_relaxed(&c.evicted)
    counts["full_denied"] += load64_relaxed(&c.full_denied)
    counts["full_allowed"] += load64_relaxed(&c.full_allowed)
    counts["lost"] += load64_relaxed(&c.lost)


cdef _add_all(dict sums, dict counters):
    for name, counts in counters.items():
        of_limit = sums.setdefault(name, dict.fromkeys(COUNTERS, 0))
        for counter, count in counts.items():
            of_limit[counter] += count


cdef uint64_t _owner_pid(uint64_t owner) noexcept:
    return owner & ((<uint64_t>1 << OWNER_PID_BITS) - 1)


def _no_limiter():
    return None


cdef bint _owner_lives(uint64_t owner) except? True:
    return owner != 0 and process_lives(_owner_pid(owner), owner >> OWNER_PID_BITS)
