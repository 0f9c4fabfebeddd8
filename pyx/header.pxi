# The header of a segment: its identity and its geometry.

SLOTS_PER_KEY = 2  # half load: one new key in about five thousand meets a full set


class Header(NamedTuple):
    """The identity of a segment. Times in nanoseconds of the segment's clock."""

    lines: int
    worker_rows: int
    segment_bytes: int
    epoch_ns: int
    wall_offset_ns: int
    clock_id: int
    boot_id: bytes
    time_ns_inode: int
    pid_ns_inode: int
    name: str  # as configured


def lines_for(keys):
    """Slot lines (64 bytes, four slots) for that many live keys."""
    return max(LINES_MIN, -(-keys * SLOTS_PER_KEY // 4))


def segment_bytes(uint64_t lines, uint64_t worker_rows):
    """The size of a segment of that geometry, in bytes."""
    cdef geometry g
    if not geometry_of(lines, worker_rows, &g):
        raise ValueError(
            f"lines must be {LINES_MIN}..{LINES_MAX} and worker rows 1..{WORKER_ROWS_MAX}, "
            f"not {lines} and {worker_rows}"
        )
    return g.segment_bytes


def format_segment(uint8_t[::1] target not None, header, bytes secret):
    """Writes the header of a new segment into zeroed memory of header.segment_bytes."""
    cdef segment_header *h = <segment_header *>&target[0]
    cdef geometry g
    cdef bytes name = header.name.encode("ascii")
    if (not geometry_of(header.lines, header.worker_rows, &g)
            or <uint64_t>target.shape[0] != g.segment_bytes or len(secret) != 16
            or len(header.boot_id) != 16 or len(name) >= <int>SEGMENT_NAME_BYTES):
        raise ValueError("the header and the memory do not fit together")
    h.layout_version = LAYOUT_VERSION
    h.header_bytes = HEADER_BYTES
    h.segment_bytes = g.segment_bytes
    memcpy(h.secret, PyBytes_AS_STRING(secret), 16)
    h.epoch_ns = header.epoch_ns
    h.wall_offset_ns = header.wall_offset_ns
    h.time_ns_inode = header.time_ns_inode
    h.pid_ns_inode = header.pid_ns_inode
    memcpy(h.boot_id, PyBytes_AS_STRING(header.boot_id), 16)
    h.clock_id = header.clock_id
    h.worker_rows = header.worker_rows
    h.lines = header.lines
    geometry_sections(&g, h.sections)
    memcpy(h.name, PyBytes_AS_STRING(name), len(name))
    h.magic = LAYOUT_MAGIC


def read_header(const uint8_t[::1] source not None, name):
    """The header of a mapped segment. Raises WrongSize, WrongMagic, WrongLayout, WrongGeometry."""
    cdef const segment_header *h
    cdef uint64_t size = source.shape[0]
    cdef geometry g
    remedy = f"if nothing uses it, remove /dev/shm{name} and start again"
    if size < HEADER_BYTES:
        raise WrongSize(
            f"segment {name} has {size} bytes, less than a header of {HEADER_BYTES}; {remedy}"
        )
    h = <const segment_header *>&source[0]
    if h.magic != LAYOUT_MAGIC:
        raise WrongMagic(f"segment {name} was not made by shmlimit; {remedy}")
    if h.layout_version != LAYOUT_VERSION:
        raise WrongLayout(
            f"segment {name} has layout version {h.layout_version}, this shmlimit reads "
            f"{LAYOUT_VERSION}: stop the older servers first; {remedy}"
        )
    if h.segment_bytes != size:
        raise WrongSize(
            f"segment {name} has {size} bytes, its header states {h.segment_bytes}; {remedy}"
        )
    if not geometry_read(h, size, &g):
        raise WrongGeometry(f"segment {name} has a directory that does not fit its size; {remedy}")
    told = h.name[:SEGMENT_NAME_BYTES].partition(b"\0")[0].decode("ascii", "backslashreplace")
    return Header(h.lines, h.worker_rows, h.segment_bytes, h.epoch_ns, h.wall_offset_ns,
                  h.clock_id, bytes(h.boot_id[:16]), h.time_ns_inode, h.pid_ns_inode, told)
