"""Comparisons with other engines: `python -m benchmarks`, or `make bench`.

Every figure comes from one interleaved run: each engine in its own process, taking turns, so that
machine noise falls on all alike; results are ratios of medians. See `benchmarks/README.md`.
"""
