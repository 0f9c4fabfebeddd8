"""Breadth-first search over all worlds of a model. The first violation found is a shortest one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from .model import Model, World
from .rules import Rules
from .scenario import Scenario
from .violation import Violation


@dataclass(frozen=True, slots=True)
class Finding:
    message: str
    way: tuple[World, ...]  # from the initial world to the one that showed it
    probed: int | None  # the key whose probe showed it there
    model: Model


@dataclass(slots=True)
class Search:
    model: Model
    parent: dict[World, World | None] = field(default_factory=dict)  # all worlds reached
    steps: int = 0
    finding: Finding | None = None

    def way_to(self, world: World) -> tuple[World, ...]:
        way: list[World] = []
        step: World | None = world
        while step is not None:
            way.append(step)
            step = self.parent[step]
        return tuple(reversed(way))


@dataclass(frozen=True, slots=True)
class Result:
    scenario: Scenario
    states: int
    steps: int
    seconds: float
    finding: Finding | None


def explore(scenario: Scenario, rules: Rules, bound_only: bool = False) -> Result:
    """Explores every interleaving, or as far as the first violation."""
    started = time.perf_counter()
    found = search(Model(scenario, rules, bound_only))
    seconds = time.perf_counter() - started
    return Result(scenario, len(found.parent), found.steps, seconds, found.finding)


def search(model: Model) -> Search:
    found = Search(model)
    world = model.canonical(model.initial())
    found.parent[world] = None
    level = [world]
    try:
        model.check(world)
        while level:
            following: list[World] = []
            for world in level:
                for reached in model.successors(world):
                    found.steps += 1
                    after = model.canonical(reached)
                    if after not in found.parent:
                        found.parent[after] = world
                        following.append(after)
            for world in following:
                model.check(world)
            level = following
    except Violation as violation:
        found.finding = Finding(str(violation), found.way_to(world), violation.probed, model)
    return found
