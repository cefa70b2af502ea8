"""`python -m dvm_graph.backend`: onnx's node tests against dvm_graph, as a table or JSON.

Exits with 1 if a test crashed its process, or is not among the `--known` ones that do not pass (or is,
and passes), 2 if the filter finds no test, else 0: tests may fail,
as not every operator is in reach.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from dvm_graph.backend.conformance import Outcome, Status, node_tests, run_tests


@click.command()
@click.option("--filter", "pattern", default="", metavar="REGEX", help="Only tests it finds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--jobs",
    default=os.cpu_count() or 1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Worker processes.",
)
@click.option(
    "--known",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A text that names the tests that do not pass: exit with 1 where others fail, or these pass.",
)
@click.option("--verbose", is_flag=True, help="Name each test that did not pass, with its reason.")
def main(pattern: str, as_json: bool, jobs: int, known: Path | None, verbose: bool) -> None:
    """Run onnx's backend node tests; each is isolated, so a crash costs one test."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is no regular expression: {error}") from error
    tests = node_tests(pattern)
    if not tests:
        raise click.UsageError(f"no node test matches {pattern!r}")
    outcomes = sorted(
        track(
            run_tests(tests, jobs),
            "onnx node tests",
            total=len(tests),
            console=Console(stderr=True),
            disable=as_json or not sys.stderr.isatty(),
        ),
        key=lambda outcome: outcome.name,
    )
    click.echo(_as_json(outcomes) if as_json else _as_text(outcomes, verbose))
    surprises = [] if known is None else _surprises(outcomes, named_tests(known))
    for line in surprises:
        click.echo(line, err=True)
    sys.exit(bool(surprises) or any(outcome.status is Status.CRASHED for outcome in outcomes))


def named_tests(page: Path) -> frozenset[str]:
    """The tests that a text names in backticks."""
    return frozenset(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")))


def _surprises(outcomes: Sequence[Outcome], known: frozenset[str]) -> list[str]:
    lines = []
    for outcome in outcomes:
        passed = outcome.status is Status.PASSED
        if passed and outcome.name in known:
            lines.append(f"{outcome.name} passes, but is listed as one that does not")
        elif not passed and outcome.name not in known:
            lines.append(f"{outcome.name} does not pass: {outcome.reason}")
    return lines


def _as_json(outcomes: Sequence[Outcome]) -> str:
    tests = [
        {
            "name": outcome.name,
            "status": outcome.status.value,
            "reason": outcome.reason,
            "vendor_operators": outcome.vendor_operators,
        }
        for outcome in outcomes
    ]
    return json.dumps({**_counts(outcomes), "outcomes": tests}, indent=2)


def _as_text(outcomes: Sequence[Outcome], verbose: bool) -> str:
    lines = []
    for outcome in outcomes:
        worth_naming = verbose and outcome.status is not Status.PASSED
        if worth_naming or outcome.status is Status.CRASHED:
            lines.append(f"{outcome.status.value:8} {outcome.name}: {outcome.reason}")
    lines += [f"{name.replace('_', ' '):32} {count:5}" for name, count in _counts(outcomes).items()]
    return "\n".join(lines)


def _counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    found = Counter(outcome.status for outcome in outcomes)
    return {
        "tests": len(outcomes),
        **{status.value: found[status] for status in Status},
        "passed_without_vendor_operators": sum(outcome.without_vendor for outcome in outcomes),
    }


if __name__ == "__main__":
    main(prog_name="python -m dvm_graph.backend")
