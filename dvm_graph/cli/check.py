"""`dvm-graph check`: every pass and kernel held to what its operators mean."""

from __future__ import annotations

import math
from typing import Any

import click
from rich.console import Console

from dvm_graph.check import CheckReport, Finding, Subject, validate
from dvm_graph.cli.request import Request, answers, model_command, print_json, working
from dvm_graph.cli.tables import print_table


@click.command()
@model_command
@click.option("--seed", default=0, show_default=True, help="Of the numbers and extents drawn.")
def check(request: Request, seed: int) -> None:
    """Check MODEL's passes and kernels at small extents; exit code 1 where one is wrong.

    Basic operators in float64 are the reference, onnxruntime that of their decomposition.
    """
    with working(f"checking {request.path.name}"):
        report = validate(request.onnx_path(), request.options, seed)
    if request.as_json:
        print_json(_plain(report))
    else:
        _print(answers(), report)
    if not report.passed:
        click.get_current_context().exit(1)


def _print(console: Console, report: CheckReport) -> None:
    columns = ("what", "kind", "right")
    numbers = ("kernels", "runs", "elements", "open", "max error", "of bound")
    print_table(console, columns + numbers, [_row(s) for s in report.subjects], texts=3)
    for finding in report.findings:
        console.print(str(finding), style="red", markup=False, highlight=False)
    kernels = sum(subject.copies for subject in report.subjects if subject.kind == "kernel")
    found = f"{len(report.findings)} wrong" if report.findings else "all right"
    console.print(f"{kernels} kernels in {report.seconds:.1f} s, {found}")


def _row(subject: Subject) -> tuple[str, ...]:
    verdict = "[bold red]NO[/]" if subject.failed else ("yes" if subject.runs else subject.skipped)
    return (
        subject.name,
        subject.kind,
        verdict,
        str(subject.copies) if subject.kind in ("kernel", "fallback") else "",
        str(subject.runs),
        str(subject.elements),
        str(subject.open),
        f"{subject.error:.1e}",
        f"{subject.bound:.0%}",
    )


def _plain(report: CheckReport) -> dict[str, Any]:
    return {
        "passed": report.passed,
        "seconds": report.seconds,
        "subjects": [
            {name: getattr(subject, name) for name in Subject.__dataclass_fields__}
            for subject in report.subjects
        ],
        "findings": [_plain_finding(finding) for finding in report.findings],
    }


def _plain_finding(finding: Finding) -> dict[str, Any]:
    return {
        "where": finding.where,
        "rule": finding.rule,
        "origin": list(finding.origin),
        "extents": finding.extents,
        "problem": finding.problem,
        "error": finding.error if math.isfinite(finding.error) else None,
    }
