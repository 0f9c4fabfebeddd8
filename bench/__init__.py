"""Benchmarks: what a decision costs, measured beside what no decision could do without.

Run them as modules from the repository's root: `python -m bench.decision`. See README.md.
"""
