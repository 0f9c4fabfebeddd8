"""The protocol's rules as switches, and the variants that break them one at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """All true: the protocol of pyx/slots.h."""

    # (C), in its three parts.
    own_slot_first: bool = True  # the scan before a commit reads the own slot first
    rescan: bool = True  # after a claim all candidates are scanned before the commit
    clock_after_scan: bool = True  # the clock of the commit is read after that scan
    # A claim and an eviction consume nothing: the slot is uncommitted.
    claim_uncommitted: bool = True
    evict_uncommitted: bool = True
    # (M): a kill raises v like every other write.
    kill_raises: bool = True
    # A victim is judged by the debt it hands over, one tick more than it has.
    victim_carries_claim: bool = True
    # A clear is done once it abandoned a committed slot, whatever became of uncommitted ones.
    clear_once: bool = True
    # A clear needs dead slots for its key: a stranger's live slot is none of them ...
    clear_counts_strangers: bool = True
    # ... and they are counted after the match was read.
    clear_counts_after_match: bool = True


PROTOCOL = Rules()

BROKEN: dict[str, Rules] = {
    "no_rescan": Rules(rescan=False),
    "clock_before_scan": Rules(clock_after_scan=False),
    "consuming_claim": Rules(claim_uncommitted=False),
    "evict_committed": Rules(evict_uncommitted=False),
    "own_slot_in_order": Rules(own_slot_first=False),
    "kill_keeps_v": Rules(kill_raises=False),
    "victim_off_by_one": Rules(victim_carries_claim=False),
    "clear_again": Rules(clear_once=False),
    "clear_ignores_strangers": Rules(clear_counts_strangers=False),
    "clear_counts_early": Rules(clear_counts_after_match=False),
}
"""Name -> rules. Each must be caught in some scenario."""

VARIANTS: dict[str, Rules] = {"protocol": PROTOCOL, **BROKEN}
