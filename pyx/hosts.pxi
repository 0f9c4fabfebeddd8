# The count of hosts in a table, and the division of all its limits by it.

ORIGINS = ("assumed", "read")


class HostsState(NamedTuple):
    """How many hosts share the limits of a table, who says so and since when. Ages in seconds."""

    counted: int  # as the agent has it
    pinned: int | None  # an operator's count, in force instead of it
    origin: str  # of `counted`: "assumed" until the source was read for the first time, then "read"
    source: str  # as configured; "" while nothing was published
    read_count: int | None  # what the last good reading said, before min, max and settle
    read_age: float | None  # since the last good reading
    changed_age: float | None  # since the shares changed
    failing: float | None  # since the first failure after it; None: the last reading was good
    failure: str  # why the last reading failed, or ""
    refusal: str  # why the configuration's last change does not count, or ""
    agent_pid: int | None  # the agent that works, or was the last to
    agent_start_ticks: int | None  # when it started, in kernel clock ticks since boot
    heartbeat_age: float | None  # since its last sign of life
    reloads: int  # how often the configuration was loaded again

    @property
    def in_force(self):
        """What the shares are computed for."""
        return self.pinned or self.counted


@cython.final
cdef class Hosts:
    """The count of hosts of a table. What changes it holds the publisher lock, divides every limit
    by the new count and returns whether the count in force is another one now.

    A publisher that dies in between leaves a new count and some rows still divided by the old one:
    the next publication puts that right, and so does `divide`, which agents call now and then.
    """

    cdef Table table
    cdef hosts_state *of

    def __cinit__(self, Table table not None):
        self.table = table
        self.of = layout_hosts(table.base, &table.geometry)

    cdef Table opened(self):
        self.table.require_open()
        return self.table

    def state(self):
        """A HostsState."""
        cdef hosts_numbers n
        cdef uint64_t agent = load64_acquire(&self.of.agent)
        cdef uint64_t now = self.opened().now()
        if not hosts_read(self.of, &n):
            memset(&n, 0, sizeof(n))
            n.count = 1
        return HostsState(
            counted=n.count,
            pinned=n.pinned or None,
            origin=ORIGINS[n.origin != HOSTS_ASSUMED],
            source=_text(n.source),
            read_count=n.read_count or None,
            read_age=_age(n.read_ticks, now),
            changed_age=_age(n.changed_ticks, now),
            failing=_age(n.failing_since_ticks, now),
            failure=_text(n.failure),
            refusal=_text(n.refusal),
            agent_pid=_owner_pid(agent) or None,
            agent_start_ticks=(agent >> OWNER_PID_BITS) or None,
            heartbeat_age=_age(load64_acquire(&self.of.heartbeat_ticks), now),
            reloads=load64_acquire(&self.of.reloads),
        )

    def follow(self, str source, count, str origin="assumed"):
        """A source that was not followed before begins with that count; one that is followed
        already goes on with what it has."""
        cdef hosts_numbers n
        with self.opened().published():
            known = hosts_read(self.of, &n)
            if known and _text(n.source) == _clipped(source).decode():
                return False
            before = shared_by(self.table)
            pinned = n.pinned if known else 0
            memset(&n, 0, sizeof(n))
            n.pinned, n.count, n.origin = pinned, count, ORIGINS.index(origin)
            _set_text(n.source, source)
            return self.publish(&n, before)

    def read(self, count, read_count):
        """The source has answered `read_count`, and what counts by the rules is `count`."""
        cdef hosts_numbers n
        with self.opened().published():
            before = self.current(&n)
            n.count, n.origin, n.read_count = count, HOSTS_READ, read_count
            n.read_ticks = self.table.now()
            n.failing_since_ticks = 0
            _set_text(n.failure, "")
            return self.publish(&n, before)

    def failed(self, str reason):
        """The source has not answered: the count stands."""
        cdef hosts_numbers n
        with self.opened().published():
            before = self.current(&n)
            if n.failing_since_ticks == 0:
                n.failing_since_ticks = self.table.now()
            _set_text(n.failure, reason)
            return self.publish(&n, before)

    def assume(self, count):
        """Another count until the source has answered. Nothing, once it has."""
        cdef hosts_numbers n
        with self.opened().published():
            before = self.current(&n)
            if n.origin == HOSTS_ASSUMED:
                n.count = count
            return self.publish(&n, before)

    def clamp(self, least, most):
        """Moves the count into bounds that the configuration has changed, without a new reading."""
        cdef hosts_numbers n
        with self.opened().published():
            before = self.current(&n)
            n.count = max(least, min(n.count, most))
            return self.publish(&n, before)

    def pin(self, count):
        """An operator's count, until it is None again."""
        cdef hosts_numbers n
        with self.opened().published():
            before = self.current(&n)
            n.pinned = count or 0
            return self.publish(&n, before)

    def refuse(self, str reason):
        """Why the configuration's last change does not count; "" when it does."""
        cdef hosts_numbers n
        with self.opened().published():
            before = self.current(&n)
            _set_text(n.refusal, reason)
            return self.publish(&n, before)

    def divide(self):
        """Divides all limits by the count in force, if a publisher has died before it did. Takes no
        lock otherwise. Returns whether there was something to do."""
        self.opened()
        if hosts_divided(self.of):
            return False
        with self.table.published():
            if hosts_divided(self.of):  # the publisher was alive, and has done it
                return False
            share_rows(self.table, shared_by(self.table))
            hosts_set_divided(self.of)
        return True

    cdef object current(self, hosts_numbers *n):
        """Copies the state and returns the count in force."""
        if not hosts_read(self.of, n):
            memset(n, 0, sizeof(n[0]))
            n.count = 1
        return hosts_in_force(n)

    cdef bint publish(self, hosts_numbers *n, before) except *:
        """The count first, then the rows that follow from it."""
        cdef bint changed = hosts_in_force(n) != before, divided = hosts_divided(self.of)
        if changed or not divided:
            n.changed_ticks = self.table.now()
        hosts_publish(self.of, n)
        if changed or not divided:
            share_rows(self.table, hosts_in_force(n))
        hosts_set_divided(self.of)
        return changed

    def beat(self, pid, start_ticks):
        """A sign of life of the agent that works."""
        self.opened()
        store64_release(&self.of.agent, <uint64_t>start_ticks << OWNER_PID_BITS | <uint64_t>pid)
        store64_release(&self.of.heartbeat_ticks, self.table.now())

    def reloaded(self):
        """The configuration was loaded again. Returns how often it was by now."""
        self.opened()
        add64_shared(&self.of.reloads, 1)
        return self.table.reloads


cdef object shared_by(Table table):
    """The count that is in force; 1 in a table that was never told."""
    cdef hosts_numbers n
    return hosts_in_force(&n) if hosts_read(layout_hosts(table.base, &table.geometry), &n) else 1


cdef object _age(uint64_t ticks, uint64_t now):
    return ticks_to_ns(now - min(ticks, now)) / 1e9 if ticks else None


cdef str _text(const char *text):
    return text[:HOSTS_TEXT_BYTES].partition(b"\0")[0].decode("utf-8", "replace")


cdef bytes _clipped(str text):
    """As many whole characters as there is room for."""
    encoded = text.encode("utf-8", "backslashreplace").replace(b"\0", b"\\0")
    return encoded[:HOSTS_TEXT_BYTES - 1].decode("utf-8", "ignore").encode()


cdef _set_text(char *target, str text):
    encoded = _clipped(text)
    memset(target, 0, HOSTS_TEXT_BYTES)
    memcpy(target, PyBytes_AS_STRING(encoded), len(encoded))
