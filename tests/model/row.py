"""A limit row, as pyx/rows.h: a call copies the valid buffer, a reset writes the idle one.

A buffer is two words, (salt, T). Every salt has its own T in a scenario, so that a torn copy shows.
One publisher at a time: the publisher lock is the kernel's.
"""

from __future__ import annotations

from .memory import Memory, Row
from .process import Machine, Process, Reset, Step, start_call
from .violation import Violation


def row_read(machine: Machine, p: Process, memory: Memory) -> Step:
    """ROW_READ: head, salt, T, head again: one of them a step."""
    row = memory.row
    assert row is not None
    if p.at == 0:
        return Step(p._replace(at=1, words=(row.head,)), memory)
    head = p.words[0]
    if p.at < 3:
        word = row.buffers[head & 1][p.at - 1]
        return Step(p._replace(at=p.at + 1, words=(*p.words, word)), memory)
    if row.head != head:
        return Step(Process("ROW_READ", p.program, p.call), memory)
    _, salt, interval = p.words
    call = machine.programs[p.program][p.call]
    assert not isinstance(call, Reset)
    if not 0 <= salt < machine.salts:
        raise Violation(f"row: nobody published salt {salt}")
    key = call.key + salt * (len(machine.keys) // machine.salts)
    if machine.keys[key].limit.interval != interval:
        raise Violation(f"row: nobody published salt {salt} with T = {interval}")
    return Step(Process("READ_CLOCK", p.program, p.call, key), memory)


def row_write(machine: Machine, p: Process, memory: Memory) -> Step:
    """ROW_WRITE: salt and T into the idle buffer, then the flip: one of them a step."""
    row = memory.row
    reset = machine.programs[p.program][p.call]
    assert row is not None
    assert isinstance(reset, Reset)
    idle = (row.head & 1) ^ 1
    if p.at == 2:
        flipped = Row(((row.head >> 1) + 1) << 1 | idle, row.buffers)
        after = memory._replace(row=flipped)
        return Step(start_call(machine, p.program, p.call + 1, after), after)
    salt, interval = row.buffers[idle]
    written = (reset.salt, interval) if p.at == 0 else (salt, reset.interval)
    buffers = (row.buffers[0], written) if idle else (written, row.buffers[1])
    return Step(p._replace(at=p.at + 1), memory._replace(row=Row(row.head, buffers)))
