"""Comparisons with other engines: `python -m benchmarks`, or `make bench`.

Every figure comes from one interleaved run: each engine in its own process, taking turns, so that
machine noise falls on all alike; results are medians over rounds of ratios within a round. See `docs/performance/method.md`.

The way of the data: a `Workload` (a model and the dims to run it at) -> `measure` drives a `Worker` per engine
through it -> a `Row` for each engine and point -> CSV -> tables, plots and pages, which are functions of the rows alone.
"""
