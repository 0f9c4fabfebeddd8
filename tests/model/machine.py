"""The step of any process: a function of the process, the memory and the clock, nothing else."""

from __future__ import annotations

from . import clear, decide, row
from .memory import Memory
from .process import Clear, Machine, Process, Step


def step(machine: Machine, p: Process, memory: Memory, clock: int) -> Step:
    """Takes the one step that `p` can take."""
    match p.pc:
        case "READ_CLOCK":
            if isinstance(machine.programs[p.program][p.call], Clear):
                return clear.clear_read_clock(machine, p, memory, clock)
            return decide.read_clock(machine, p, memory, clock)
        case "SCAN":
            return decide.scan(machine, p, memory)
        case "RECHECK":
            return decide.recheck(machine, p, memory)
        case "CAS_STEP" | "CAS_COMMIT":
            return decide.cas_step(machine, p, memory)
        case "CAS_CLAIM" | "CAS_EVICT":
            return decide.cas_claim(machine, p, memory)
        case "CAS_KILL":
            return decide.cas_kill(machine, p, memory)
        case "COMMIT_READ":
            return decide.commit_read(machine, p, memory, clock)
        case "CLEAR_SCAN":
            return clear.clear_scan(machine, p, memory)
        case "CLEAR_COUNT":
            return clear.clear_count(machine, p, memory)
        case "CAS_ABANDON":
            return clear.cas_abandon(machine, p, memory)
        case "ROW_READ":
            return row.row_read(machine, p, memory)
        case "ROW_WRITE":
            return row.row_write(machine, p, memory)
    raise AssertionError(p.pc)
