"""Steps, and runs of one process alone. All of it depends on a process, the memory and the clock
only, so each combination is computed and checked once, however many worlds contain it."""

from __future__ import annotations

from .invariants import check_memory, check_step, fits, is_absent
from .machine import step
from .memory import FP_FIRST, Memory, is_committed
from .process import Event, Process, ended
from .rules import Rules
from .scenario import Scenario
from .table import Table
from .violation import Violation

At = tuple[int, int, int]
"""(process, memory, clock): the numbers of the first two, and ticks."""

ALONE_PASSES = 2
"""Passes over the candidates that a process still has to begin, at most, when it runs alone from
wherever it stands: one that claims, kills, or finds the twin to read first, and one that commits
or steps."""

ALONE_STEPS = 400  # of a run alone, a guard against variants that never end


class Stepper:
    def __init__(self, scenario: Scenario, rules: Rules, bound_only: bool) -> None:
        self.machine = scenario.machine(rules)
        self.bound_only = bound_only  # report broken windows, none of the other invariants
        self.crowded = scenario.crowded
        self.processes: Table[Process] = Table()
        self.memories: Table[Memory] = Table()
        self.events: Table[tuple[Event, ...]] = Table()
        self.no_events = self.events.number(())
        self.taken: dict[At, At] = {}  # (process, memory, events) after the step
        self.passes: dict[At, int] = {}
        self._probes: dict[At, int] = {}
        self._watched: dict[At, int] = {}
        self._first_probe = len(self.machine.programs) - len(scenario.keys)

    def step(self, process: int, memory: int, clock: int) -> At:
        """The numbers of the process, the memory and the events after one step."""
        found = self.taken.get((process, memory, clock))
        if found is None:
            p, before = self.processes.values[process], self.memories.values[memory]
            after = step(self.machine, p, before, clock)
            number = self.memories.number(after.memory)
            if not self.bound_only:
                check_step(self.machine, p, before, after, clock)
                check_memory(self.machine, after.memory)
                if p.pc == "CAS_ABANDON" and number != memory and not self.crowded:
                    self.check_clear(p, memory, number, clock)
            found = self.processes.number(after.process), number, self.events.number(after.events)
            self.taken[process, memory, clock] = found
        return found

    # ---- alone ---------------------------------------------------------------------------------

    def check_alone(self, process: int, memory: int, clock: int) -> None:
        if self.bound_only:
            return
        passes = self.passes_alone(process, memory, clock)
        if passes > ALONE_PASSES:
            raise Violation(f"alone: a process that runs alone begins {passes} more passes")

    def passes_alone(self, process: int, memory: int, clock: int) -> int:
        """Passes that begin before the call ends when nobody else moves."""
        way: list[tuple[At, bool]] = []
        call = self.processes.values[process].call
        passes = 0
        while True:
            at = process, memory, clock
            p = self.processes.values[process]
            if p.call != call or ended(p):
                break
            if at in self.passes:
                passes = self.passes[at]
                break
            if len(way) == ALONE_STEPS:
                raise Violation("alone: a process that runs alone never ends its call")
            way.append((at, begins_pass(p)))
            try:
                process, memory, _ = self.step(*at)
            except Violation:
                break  # that step is part of the exploration too, and is reported there
        for at, begins in reversed(way):
            passes += begins
            self.passes[at] = passes
        return passes

    # ---- probes: all others are dead -------------------------------------------------------------

    def probe(self, memory: int, clock: int, key: int) -> int:
        """Cells that a fresh process gets before it is denied."""
        found = self._probes.get((memory, clock, key))
        if found is not None:
            return found
        cells, after = 0, memory
        kinds = ["admitted"]
        while "admitted" in kinds:
            after, events = self.answer(after, clock, key)
            kinds = [event.kind for event in events]
            cells += "admitted" in kinds
        if not self.bound_only:
            self.check_denial(memory, clock, key, cells, kinds)
        self._probes[memory, clock, key] = cells
        return cells

    def answer(self, memory: int, clock: int, key: int) -> tuple[int, list[Event]]:
        """One hit by a process alone: the memory after it, and the events of it."""
        start = Process("READ_CLOCK", self._first_probe + key, 0, key)
        p, seen = self.processes.number(start), list[Event]()
        while not ended(self.processes.values[p]):
            try:
                p, memory, events = self.step(p, memory, clock)
            except Violation as violation:
                raise Violation(f"{violation} (by the probe)", probed=key) from violation
            seen += self.events.values[events]
        return memory, seen

    def check_denial(self, memory: int, clock: int, key: int, cells: int, kinds: list[str]) -> None:
        """Of the last answer of a probe that got `cells` before it."""
        of = self.machine.keys[key]
        if "evicted" in kinds:
            raise Violation(f"full: {of.name} evicted a key and was denied", probed=key)
        words = [self.memories.values[memory].slots[slot] for slot in of.candidates]
        own = any(word[0] == FP_FIRST + key and is_committed(word) for word in words)
        if not cells and not own and any(fits(of, word, clock, 1) for word in words):
            raise Violation(f"full: {of.name} is locked out although a slot qualifies", probed=key)

    def check_clear(self, p: Process, before: int, after: int, clock: int) -> None:
        was, left = self.probe(before, clock, p.key), self.probe(after, clock, p.key)
        forgives = is_committed(p.matches[0][1])
        if left < was or (forgives and not left):
            raise Violation(f"clear: {was} cells were left before it, {left} after it", p.key)

    # ---- clears ----------------------------------------------------------------------------------

    def watched(self, process: int, memory: int, clock: int) -> int:
        """The process with its ghost brought up to date: was the key it clears absent?"""
        found = self._watched.get((process, memory, clock))
        if found is None:
            p = self.processes.values[process]
            if p.pc in ("CLEAR_SCAN", "CLEAR_COUNT", "CAS_ABANDON") and not p.absent:
                slots = self.memories.values[memory]
                p = p._replace(absent=is_absent(slots, FP_FIRST + p.key, clock))
            found = self._watched[process, memory, clock] = self.processes.number(p)
        return found


def begins_pass(p: Process) -> bool:
    return p.pc in ("SCAN", "CLEAR_SCAN") and p.at == 0 and p.half < 0
