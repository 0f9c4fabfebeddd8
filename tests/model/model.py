"""A scenario under a set of rules: the successors of a world, and what is checked of it.

A world is a tuple of small integers: the clock's index, then the numbers of the memory, of the
history and of each process.
"""

from __future__ import annotations

from collections.abc import Iterator

from .history import History, admitted, forgotten, overdrawn, owed, with_cells
from .invariants import debt
from .memory import EMPTY, Memory
from .process import Clear, ended, killed, start_call
from .rules import Rules
from .scenario import Scenario
from .stepper import Stepper
from .table import Table
from .violation import Violation

World = tuple[int, ...]
CLOCK, MEMORY, HISTORY, FIRST_PROCESS = range(4)


class Model:
    """With `bound_only` it looks for a broken window alone: whether anything is over-admitted."""

    def __init__(
        self, scenario: Scenario, rules: Rules, bound_only: bool = False, symmetry: bool = True
    ) -> None:
        self.scenario = scenario
        self.stepper = Stepper(scenario, rules, bound_only)
        self.histories: Table[History] = Table()
        self.bound_only = bound_only
        self._recorded: dict[tuple[int, int], int] = {}
        self._checked: set[World] = set()
        self._clears = any(isinstance(call, Clear) for calls in scenario.programs for call in calls)
        self._twins = [  # the places of each group of processes that run one program
            (FIRST_PROCESS + scenario.programs.index(program), scenario.programs.count(program))
            for program in dict.fromkeys(scenario.programs)
            if symmetry and scenario.programs.count(program) > 1
        ]

    # ---- worlds --------------------------------------------------------------------------------

    def initial(self) -> World:
        scenario, stepper = self.scenario, self.stepper
        empty = Memory(((EMPTY, 0),) * scenario.slots, scenario.row)
        memory = stepper.memories.number(empty)
        history = self.histories.number(History(((),) * len(scenario.keys)))
        for program, before in enumerate(scenario.before, len(scenario.programs)):
            p = stepper.processes.number(start_call(stepper.machine, program, 0, empty))
            while stepper.processes.values[p].pc not in ("DONE", before.dies_at):
                p, memory, events = stepper.step(p, memory, before.clock)
                history = self.record(history, events)
        started = (
            # Equal programs share one number, which makes their processes equal.
            start_call(stepper.machine, scenario.programs.index(program), 0, empty)
            for program in scenario.programs
        )
        return self.watched((0, memory, history, *map(stepper.processes.number, started)))

    def canonical(self, world: World) -> World:
        """Ghosts up to date, and processes of one program sorted: nothing tells them apart."""
        world = self.watched(world)
        for first, count in self._twins:
            end = first + count
            world = (*world[:first], *sorted(world[first:end]), *world[end:])
        return world

    def watched(self, world: World) -> World:
        if not self._clears:
            return world
        clock, memory = self.scenario.clock[world[CLOCK]], world[MEMORY]
        processes = (self.stepper.watched(p, memory, clock) for p in world[FIRST_PROCESS:])
        return (*world[:FIRST_PROCESS], *processes)

    def successors(self, world: World) -> Iterator[World]:
        """Raises Violation at a step that breaks an invariant."""
        at, memory, history = world[:FIRST_PROCESS]
        scenario, stepper, processes = self.scenario, self.stepper, self.stepper.processes
        clock = scenario.clock[at]
        kills = scenario.kills
        if kills:
            kills -= sum(processes.values[p].pc == "KILLED" for p in world[FIRST_PROCESS:])
        for i in range(FIRST_PROCESS, len(world)):
            if ended(processes.values[world[i]]):
                continue
            p, after, events = stepper.step(world[i], memory, clock)
            stepper.check_alone(world[i], memory, clock)
            recorded = history if events == stepper.no_events else self.record(history, events)
            yield (at, after, recorded, *world[FIRST_PROCESS:i], p, *world[i + 1 :])
            if kills:
                p = processes.number(killed(processes.values[world[i]]))
                yield (*world[:i], p, *world[i + 1 :])
        if at + 1 < len(scenario.clock):
            yield (at + 1, *world[1:])

    # ---- checks --------------------------------------------------------------------------------

    def record(self, history: int, events: int) -> int:
        """The number of the history after `events`."""
        found = self._recorded.get((history, events))
        if found is None:
            after = self.histories.values[history]
            for event in self.stepper.events.values[events]:
                key = self.scenario.keys[event.key]
                if event.kind == "admitted":
                    after = admitted(after, event.key, key.limit, event.now, event.cells)
                    excess = overdrawn(after.epochs[event.key], key.limit)
                    if excess:
                        raise Violation(f"window: {key.name}: {excess}")
                elif event.kind in ("forgiven", "evicted"):
                    after = forgotten(after, event.key)
            found = self._recorded[history, events] = self.histories.number(after)
        return found

    def check(self, world: World) -> None:
        """What must hold if everybody were killed in this world: of its clock, its memory and its
        history."""
        at, memory, history = shared = world[:FIRST_PROCESS]
        if shared in self._checked:
            return
        self._checked.add(shared)
        clock, ledger = self.scenario.clock[at], self.histories.values[history]
        for number, epoch in enumerate(ledger.epochs):
            key = self.scenario.keys[number]
            cells = self.stepper.probe(memory, clock, number)
            excess = overdrawn(with_cells(epoch, clock, cells), key.limit)
            if excess:
                raise Violation(f"window: {key.name}, probed: {excess}", number)
            least = owed(epoch, key.limit, clock)
            if number in self.scenario.lossless and cells < least and not self.bound_only:
                raise Violation(f"lossless: {key.name} is left {cells} cells of {least}", number)
        slots = self.stepper.memories.values[memory]
        if self.scenario.conserves and debt(slots, clock) < ledger.spent and not self.bound_only:
            raise Violation(f"eviction: the slots hold less debt than the {ledger.spent} spent")
