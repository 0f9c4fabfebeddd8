"""An exhaustive model checker of the slot protocol (pyx/slots.h, pyx/rows.h).

Small worlds, two to four processes on two to four slots, are explored in every interleaving of
their shared-memory steps, and every state is checked. `python -m tests.model` prints what was
explored; for a violation it prints the shortest interleaving that leads to it.

The files, in reading order:

    rules.py      the protocol's rules as switches, and the variants that break one each
    memory.py     words, slots, keys, limits: what is shared
    process.py    one process: where it stands, and what a step gives back
    decide.py     a hit: SCAN, CAS_STEP, CAS_CLAIM, CAS_EVICT, CAS_KILL, COMMIT_READ, CAS_COMMIT
    clear.py      a clear: CLEAR_SCAN, CAS_ABANDON
    row.py        a limit row: ROW_READ of a call, ROW_WRITE of a reset
    machine.py    the step of any process: the dispatch over the four files above
    history.py    what was admitted when, and the window bound
    invariants.py what must hold of a step and of a memory
    model.py      processes + memory + clock + history: the successors of a world, and its checks
    explorer.py   breadth-first search, shortest violation
    trace.py      an interleaving for the human eye
    scenarios.py  the worlds

What one step is. A read of one slot (v, fp, v again until equal) is one step; scenarios with
`split_reads` take it apart as slots.h does: v, then fp, and a denial reads v once more. Every CAS
is one step, whether it succeeds or not; every reading of the clock, and every word of a limit row,
is one step. What happens between two of them touches nothing shared and belongs to the step
before. The clock and death are steps of the environment: the clock moves through the scenario's
values at any moment, and a process may stop for ever at any moment. Between a successful CAS and
the return of its call there is no step, so that a killed process has lost at most the cells of its
one call in flight: those its last CAS consumed.

What is checked, in every state:

    window       per key and epoch, every window of decision times admitted at most
                 burst + elapsed / T. A clear, a reset and an eviction of the key start an epoch.
                 The decision time is the clock reading that admitted.
    (M)          every write strictly raises the slot's v.
    (D)          a claimed slot was dead on the world's clock.
    single       a key has at most one committed slot, dead or alive.
    alone        a process that from now on runs alone ends its call within ALONE_PASSES passes.
    probe        with all others killed right here, a fresh process that hits until it is denied
                 stays inside the window, and gets at least what the admitted cells left (`lossless`
                 scenarios: no cell is lost but the consumed ones, so that on a frozen clock
                 admitted + probe is exactly the burst). It is never locked out while a victim
                 qualifies.
    full         a denial for a full set: no slot qualified at its clock reading.
    eviction     the debt in the slots is never less than what was admitted (`conserves`).
    clear        one clear forgives at most once, and nothing when it answers set_full: the epochs
                 of a key are at most its cleared clears + 1. Nor does it leave its key with less
                 than the key had before it.

What is reduced, and why nothing is lost by it:

    symmetry     processes of one program are interchangeable, since nothing records who did what:
                 their states are kept sorted.
    forgetting   a process keeps of a scan only what its later steps depend on.
    no counter   of the 256 passes is kept. By (M) every pass that fails has raised a v, and no
                 write is made to a word beyond now + tau, so the passes of these small worlds end
                 by themselves. Past 256 the product denies and writes nothing, which to all others
                 is a process killed there.

    first look   that finds no committed slot of the key (slots_decide, before slots_settle) changes
                 nothing and is forgotten: it is a call whose first scan came later.

What is not modelled. Memory is sequentially consistent: cas128 is a full fence on x86-64, and on
aarch64 slot loads are ldar, kept behind an earlier stlxp (pyx/atomics.h). The words of a limit row
are read relaxed between fences in the product, in order here. Fingerprints do not collide.
Integers do not overflow. Peeks write nothing and promise nothing. when_full = "allow" is outside
every bound by design.
"""
