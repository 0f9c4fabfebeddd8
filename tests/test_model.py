"""The slot protocol, model-checked: tests/model/ explores every interleaving of small worlds.

`python -m tests.model` prints the same as a table. The long scenarios (minutes, gigabytes) run with
the environment variable SHMLIMIT_SOAK set, or with `python -m tests.model --long`.
"""

from __future__ import annotations

import os
import random

import pytest

from .model.__main__ import main
from .model.explorer import Search, explore, search
from .model.history import Epoch, History, overdrawn
from .model.memory import Key, Limit, Memory, stepped
from .model.model import CLOCK, HISTORY, MEMORY, Model
from .model.rules import BROKEN, PROTOCOL
from .model.scenario import Scenario
from .model.scenarios import CAUGHT_IN, OVER_ADMITS, SCENARIOS
from .model.stepper import ALONE_PASSES
from .model.trace import render

FAST = [name for name, scenario in SCENARIOS.items() if not scenario.long]
LONG = [name for name, scenario in SCENARIOS.items() if scenario.long]
SOAK = os.environ.get("SHMLIMIT_SOAK", "0") != "0"


@pytest.mark.parametrize("name", FAST)
def test_the_protocol_holds_in_every_interleaving(name: str) -> None:
    result = explore(SCENARIOS[name], PROTOCOL)
    assert result.finding is None, render(result.finding)
    assert result.states >= 100, "nothing to interleave: this run proves nothing"


@pytest.mark.skipif(not SOAK, reason="minutes and gigabytes: set SHMLIMIT_SOAK")
@pytest.mark.parametrize("name", LONG)
def test_the_protocol_holds_in_larger_worlds(name: str) -> None:
    result = explore(SCENARIOS[name], PROTOCOL)
    assert result.finding is None, render(result.finding)


@pytest.mark.parametrize("variant", BROKEN)
def test_without_one_of_its_rules_it_does_not_hold(variant: str) -> None:
    scenario, invariant = CAUGHT_IN[variant]
    result = explore(SCENARIOS[scenario], BROKEN[variant])
    assert result.finding is not None
    trace = render(result.finding)
    print(trace)
    assert result.finding.message.startswith(invariant)
    assert trace.endswith(f"VIOLATION {result.finding.message}")


@pytest.mark.parametrize("variant", OVER_ADMITS)
def test_a_broken_variant_admits_too_much(variant: str) -> None:
    """Not only an inner invariant: the promise to the user is broken."""
    result = explore(SCENARIOS[OVER_ADMITS[variant]], BROKEN[variant], bound_only=True)
    assert result.finding is not None
    assert result.finding.message.startswith("window")


def test_eight_clears_in_a_row_never_lock_a_key_out() -> None:
    """Six of eight candidates can be abandoned; then the key keeps the slot it has."""
    model = Model(SCENARIOS["eight_clears"], PROTOCOL)
    _, memory, _, process = model.initial()
    answers: list[str] = []
    while model.stepper.processes.values[process].pc != "DONE":
        process, memory, events = model.stepper.step(process, memory, 12)
        process = model.stepper.watched(process, memory, 12)
        answers += [event.kind for event in model.stepper.events.values[events]]
    clears = [answer for answer in answers if answer in ("cleared", "set_full")]
    assert clears == ["cleared"] * 6 + ["set_full"] * 2
    assert answers.count("forgiven") == 6
    # One hit before each clear, of a burst of 2; the last two clears forgive nothing.
    assert answers.count("admitted") == 6 + 2


# ---- the checker itself --------------------------------------------------------------------------


def test_every_compare_and_swap_was_seen_to_succeed_and_to_fail() -> None:
    seen = set[tuple[str, str]]()
    for name in ("twins_split", "evict_same", "clear_twice", "reset", "two_limits"):
        stepper = search(Model(SCENARIOS[name], PROTOCOL)).model.stepper
        for (process, memory, _), (_, after, events) in stepper.taken.items():
            pc = stepper.processes.values[process].pc
            kinds = [event.kind for event in stepper.events.values[events]]
            seen |= {(pc, kind) for kind in kinds}
            if pc.startswith("CAS"):
                seen.add((pc, "fails" if after == memory else "succeeds"))
            if pc == "RECHECK" and not kinds:
                seen.add((pc, "fails"))
    swaps = ("CLAIM", "EVICT", "KILL", "COMMIT", "STEP", "ABANDON")
    expected = {(f"CAS_{swap}", end) for swap in swaps for end in ("succeeds", "fails")}
    expected |= {("RECHECK", "fails"), ("RECHECK", "denied"), ("SCAN", "denied"), ("SCAN", "full")}
    expected |= {("CLEAR_COUNT", "set_full"), ("CLEAR_SCAN", "cleared"), ("CAS_EVICT", "evicted")}
    assert expected <= seen, expected - seen


def test_the_bound_on_a_run_alone_is_tight() -> None:
    found = search(Model(SCENARIOS["twins"], PROTOCOL))
    assert max(found.model.stepper.passes.values()) == ALONE_PASSES


@pytest.mark.parametrize("name", ["two_same", "twins_killed", "clear_twice", "reset"])
def test_sorting_equal_processes_loses_no_memory_and_no_history(name: str) -> None:
    reduced = search(Model(SCENARIOS[name], PROTOCOL))
    whole = search(Model(SCENARIOS[name], PROTOCOL, symmetry=False))
    assert len(whole.parent) > 1.5 * len(reduced.parent)
    assert shared_parts(whole) == shared_parts(reduced)


def test_a_window_is_overdrawn_exactly_when_some_window_is() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        limit = Limit(chance.randint(1, 3), 0)
        limit = limit._replace(tolerance=limit.interval * chance.randint(1, 3))
        times = sorted(chance.sample(range(12), chance.randint(0, 5)))
        epoch: Epoch = tuple((time, chance.randint(1, 3)) for time in times)
        over = any(
            sum(cells for time, cells in epoch if start <= time <= end) * limit.interval
            > limit.tolerance + end - start
            for start in range(12)
            for end in range(start, 12)
        )
        assert (overdrawn(epoch, limit) is not None) == over


def test_a_process_alone_decides_like_a_dictionary_of_buckets() -> None:
    chance = random.Random(2)
    limits = Limit(2, 4), Limit(3, 3), Limit(1, 3)
    keys = tuple(
        Key(name, limit, order)
        for name, limit, order in zip("KLV", limits, ((0, 1, 2), (2, 1, 0), (1, 0, 2)), strict=True)
    )
    for _ in range(200):
        model = Model(Scenario("alone", "", keys, (), 3, (0,)), PROTOCOL)
        memory, now, states = model.initial()[MEMORY], 5, [0, 0, 0]
        for _ in range(30):
            now += chance.choice((0, 0, 1, 2))
            key = chance.randrange(3)
            memory, events = model.stepper.answer(memory, now, key)
            new = stepped(limits[key], states[key], now, 1)
            assert [event.kind for event in events] == ["denied" if new is None else "admitted"]
            states[key] = states[key] if new is None else new


def test_the_command_prints_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["model", "--scenario", "twins", "--variant", "no_rescan"])
    assert main() == 0
    out = capsys.readouterr().out
    assert "single: K has 2 committed slots" in out
    assert "CAS_COMMIT slot 0 from K:14? => admitted 1 at 14" in out
    assert "CAS_COMMIT, and:" in out


def shared_parts(found: Search) -> set[tuple[int, Memory, History]]:
    """(clock, memory, history) of all worlds, by value: numbers differ from model to model."""
    memories, histories = found.model.stepper.memories.values, found.model.histories.values
    return {
        (world[CLOCK], memories[world[MEMORY]], histories[world[HISTORY]]) for world in found.parent
    }
