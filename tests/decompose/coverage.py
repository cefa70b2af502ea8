"""Runs onnx's own node test cases through import, decomposition and the numpy evaluator.

`python -m tests.decompose.coverage [--only SUBSTRING] [--failures]` prints how many pass natively,
how many pass with vendor operators, and which fail. Not part of the test run: onnxruntime executes
the vendor operators one by one, which is slow, and it does not know the newest operators.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any

import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from dvm_graph.errors import DvmError
from tests.decompose.evaluate import evaluate
from tests.decompose.reference import decomposed, vendor_operators


def run_case(case: Any) -> str:
    """'native', 'vendor', or why the case failed."""
    try:
        graph = decomposed(case.model)
    except DvmError as error:
        return f"refused: {type(error).__name__}: {error}"
    vendor = " ".join(sorted(set(vendor_operators(graph))))
    for inputs, expected in case.data_sets:
        names = [info.name for info in case.model.graph.input]
        try:
            actual = evaluate(graph, dict(zip(names, map(_array, inputs), strict=True)))
            wanted = [_array(value) for value in expected]
            Runner.assert_similar_outputs(wanted, actual, case.rtol, case.atol)
        except Exception as error:  # a survey goes on whatever fails
            return f"{'vendor' if vendor else 'wrong'}: {vendor} {type(error).__name__}: {error}"
    return f"vendor {vendor}" if vendor else "native"


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--failures", action="store_true", help="all that is not native")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    for case in load_model_tests(kind="node"):
        if arguments.only not in case.name:
            continue
        verdict = run_case(case)
        counts[
            verdict.partition(":")[0].split()[0] + (" fails" if ":" in verdict else " passes")
        ] += 1
        if arguments.failures and verdict != "native":
            print(f"{case.name}: {' '.join(verdict.split())[:300]}")
    for verdict, count in sorted(counts.items()):
        print(f"{count:5} {verdict}", file=sys.stderr)


if __name__ == "__main__":
    main()
