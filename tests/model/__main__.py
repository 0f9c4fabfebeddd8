"""python -m tests.model [--long] [--scenario NAME] [--variant NAME]

Without arguments: every scenario but the long ones under the protocol, then every broken variant
in the scenario that catches it, with the interleaving that shows what its rule is for. Exit status
1 if the protocol breaks an invariant, or a broken variant none.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from .explorer import Result, explore
from .rules import BROKEN, VARIANTS
from .scenario import Scenario
from .scenarios import CAUGHT_IN, SCENARIOS
from .trace import render


def planned(chosen: argparse.Namespace) -> Iterator[tuple[Scenario, str]]:
    """(scenario, variant) in the order in which they run."""
    if chosen.scenario:
        yield SCENARIOS[chosen.scenario], chosen.variant or "protocol"
        return
    if chosen.variant:
        yield from ((s, chosen.variant) for s in SCENARIOS.values() if chosen.long or not s.long)
        return
    yield from ((s, "protocol") for s in SCENARIOS.values() if chosen.long or not s.long)
    yield from ((SCENARIOS[CAUGHT_IN[variant][0]], variant) for variant in BROKEN)


def row(result: Result, variant: str) -> str:
    verdict = result.finding.message if result.finding else "holds"
    return (
        f"{result.scenario.name:<19} {variant:<23} {result.states:>9,} {result.steps:>11,} "
        f"{result.seconds:>7.1f}  {verdict}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--long", action="store_true", help="also what takes minutes and gigabytes")
    parser.add_argument("--scenario", choices=SCENARIOS)
    parser.add_argument("--variant", choices=VARIANTS)
    chosen = parser.parse_args()
    print(f"{'scenario':<19} {'variant':<23} {'states':>9} {'steps':>11} {'seconds':>7}  verdict")
    traces, wrong, states = [], 0, 0
    for scenario, variant in planned(chosen):
        result = explore(scenario, VARIANTS[variant])
        states += result.states
        wrong += (result.finding is None) == (variant in BROKEN)
        print(row(result, variant), flush=True)
        if result.finding:
            traces.append(f"{scenario.name}, {variant}: {scenario.about}\n{render(result.finding)}")
    print(f"{states:,} states")
    for trace in traces:
        print(f"\n{trace}")
    if not (chosen.long or chosen.scenario):
        skipped = [name for name, scenario in SCENARIOS.items() if scenario.long]
        print(f"\nnot run without --long: {', '.join(skipped)}")
    return 1 if wrong and not chosen.variant else 0


if __name__ == "__main__":
    sys.exit(main())
