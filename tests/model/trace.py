"""A finding for the human eye: one line a step, with the slots as the step left them.

    @4  P2  CAS_CLAIM   slot 0  -:0 -> K:1?         [K:1? -:0]

A word is key:state, `?` uncommitted, `!` committed; `-` is an empty slot, `x` an abandoned one.
"""

from __future__ import annotations

from .explorer import Finding
from .memory import ABANDONED, EMPTY, FP_FIRST, Memory, Word, is_committed, state_of
from .model import CLOCK, FIRST_PROCESS, HISTORY, MEMORY, Model, World
from .process import Clear, Event, Hit, Machine, Process, ended
from .violation import Violation


def render(finding: Finding) -> str:
    """The interleaving, line by line, and what is wrong at its end."""
    model = finding.model
    world = model.initial()
    lines = [f"processes: {programs_text(model)}", moment(model, world, "start", "")]
    for reached in finding.way[1:]:
        world, line = follow(model, world, reached)
        lines.append(line)
    if finding.probed is None:
        lines += last_step(model, world)
    else:
        lines += probe_lines(model, world, finding.probed)
    lines.append(f"VIOLATION {finding.message}")
    return "\n".join(lines)


def follow(model: Model, world: World, reached: World) -> tuple[World, str]:
    """Takes the step that leads to `reached`. The search keeps processes sorted; here each keeps
    its place, so that a name means one process from beginning to end."""
    after = next(step for step in model.successors(world) if model.canonical(step) == reached)
    if after[CLOCK] != world[CLOCK]:
        return model.watched(after), moment(model, after, "clock", "")
    i = next(i for i in range(FIRST_PROCESS, len(world)) if world[i] != after[i])
    name = f"P{i - FIRST_PROCESS + 1}"
    if model.stepper.processes.values[after[i]].pc == "KILLED":
        return model.watched(after), moment(model, after, name, "is killed")
    text = step_text(model, world[i], world[MEMORY], model.scenario.clock[world[CLOCK]])
    return model.watched(after), moment(model, after, name, text)


def last_step(model: Model, world: World) -> list[str]:
    """The step that the finding is about, if it is about a step."""
    clock = model.scenario.clock[world[CLOCK]]
    for i in range(FIRST_PROCESS, len(world)):
        p = model.stepper.processes.values[world[i]]
        if ended(p):
            continue
        try:
            _, _, events = model.stepper.step(world[i], world[MEMORY], clock)
            model.record(world[HISTORY], events)
            model.stepper.check_alone(world[i], world[MEMORY], clock)
        except Violation:
            return [moment(model, world, f"P{i - FIRST_PROCESS + 1}", f"{pc_text(p)}, and:")]
    return []


def probe_lines(model: Model, world: World, key: int) -> list[str]:
    clock, memory = model.scenario.clock[world[CLOCK]], world[MEMORY]
    lines = [f"everybody is killed; a fresh process hits {model.scenario.keys[key].name}:"]
    try:
        kinds = ["admitted"]
        while "admitted" in kinds:
            memory, seen = model.stepper.answer(memory, clock, key)
            kinds = [event.kind for event in seen]
            slots = slots_text(model.stepper.machine, model.stepper.memories.values[memory])
            lines.append(f"  {', '.join(kinds):<60} {slots}")
    except Violation:
        pass
    return lines


# ---- words -----------------------------------------------------------------------------------


def moment(model: Model, world: World, who: str, what: str) -> str:
    slots = slots_text(model.stepper.machine, model.stepper.memories.values[world[MEMORY]])
    return f"@{model.scenario.clock[world[CLOCK]]:<2} {who:<6}{what:<52} {slots}"


def step_text(model: Model, process: int, memory: int, clock: int) -> str:
    machine = model.stepper.machine
    p, before = model.stepper.processes.values[process], model.stepper.memories.values[memory]
    _, after, events = model.stepper.step(process, memory, clock)
    text = pc_text(p)
    if p.pc in ("SCAN", "CLEAR_SCAN"):
        hint = p.hint if p.pc == "SCAN" and machine.rules.own_slot_first else 0
        i = hint if p.at == 0 else p.at - 1 if p.at <= hint else p.at
        slot = machine.keys[p.key].candidates[i]
        text += f" slot {slot}: {word_text(machine, before.slots[slot])}"
        if p.now != clock:
            text += f" (by clock {p.now})"
    elif "CAS" in p.pc:
        index = p.matches[0][0] if p.matches else p.at
        slot = machine.keys[p.key].candidates[index]
        text += f" slot {slot}"
        word = word_text(machine, before.slots[slot])
        text += " fails" if after == memory else f" from {word}"
    answers = [event_text(machine, event) for event in model.stepper.events.values[events]]
    return " ".join([text, *answers])


def pc_text(p: Process) -> str:
    return f"{p.pc} {p.at}" if p.pc.startswith("ROW") else p.pc


def event_text(machine: Machine, event: Event) -> str:
    if event.kind in ("admitted", "denied"):
        return f"=> {event.kind} {event.cells} at {event.now}"
    return f"=> {event.kind}"


def slots_text(machine: Machine, memory: Memory) -> str:
    row = f" row {memory.row.head}" if memory.row else ""
    return f"[{' '.join(word_text(machine, word) for word in memory.slots)}]{row}"


def word_text(machine: Machine, word: Word) -> str:
    fixed = {EMPTY: "-", ABANDONED: "x"}
    name = fixed.get(word[0]) or machine.keys[word[0] - FP_FIRST].name
    mark = "" if word[0] in fixed else "!" if is_committed(word) else "?"
    return f"{name}:{state_of(word)}{mark}"


def programs_text(model: Model) -> str:
    keys = model.scenario.keys
    texts = []
    for n, program in enumerate(model.scenario.programs, 1):
        calls = []
        for call in program:
            if isinstance(call, Hit):
                calls.append(f"hit {keys[call.key].name}" + (f" x{call.cells}" * (call.cells > 1)))
            elif isinstance(call, Clear):
                calls.append(f"clear {keys[call.key].name}")
            else:
                calls.append(f"reset to salt {call.salt}")
        texts.append(f"P{n} {', '.join(calls)}")
    return "; ".join(texts)
