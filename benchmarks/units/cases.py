"""Models of one operator, and both engines' times of them: what `benchmarks.units.every` and `.drawn` have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks.paired import geometric_mean
from benchmarks.units.recurrent import Party, medians
from dvm_graph import Options

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One operator: what varies and is fed, what is a constant of the model, and the axes whose extents are known."""

    op: str
    name: str
    feeds: Mapping[str, Array]
    constants: Mapping[str, Array] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fixed: Sequence[int | tuple[str, int]] = ()
    """Of all feeds, or of one."""
    outputs: int = 1
    operands: Sequence[str] = ()
    """In order; "" is one left out. None given: feeds, then constants."""
    opset: int = 21

    def model(self) -> bytes:
        operands = list(self.operands) or [*self.feeds, *self.constants]
        outputs = [f"y{index}" for index in range(self.outputs)]
        node = helper.make_node(self.op, operands, outputs, **self.attributes)
        graph = helper.make_graph(
            [node],
            "g",
            [self._declared(name, array) for name, array in self.feeds.items()],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        inferred: bytes = onnx.shape_inference.infer_shapes(model).SerializeToString()
        return inferred

    def _declared(self, name: str, array: Array) -> onnx.ValueInfoProto:
        """Extents that are equal have one name."""
        dims = [
            extent
            if extent == 1 or axis in self.fixed or (name, axis) in self.fixed
            else f"d{extent}"
            for axis, extent in enumerate(array.shape)
        ]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, dims)


@dataclass(slots=True)
class Comparison:
    """onnxruntime's time over ours, and our seconds, by name; and why there are none of some."""

    threads: int
    rounds: int
    found: list[tuple[float, str, float]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def take(self, cases: Iterable[tuple[str, Case]], write: Path | None = None) -> None:
        """Case by case, in two processes; those of a case that ends one of them are started again."""
        parties = self._start()
        for name, case in cases:
            try:
                model = case.model()
                for party in parties:
                    party.ask(model)
                mine, reference = medians(*parties, case.feeds, self.rounds, _tolerance(case))
            except (AssertionError, EOFError, BrokenPipeError) as error:
                self.failed.append(f"{name}: {error!r:.200}")
                if not isinstance(error, AssertionError):
                    self._end(parties)
                    parties = self._start()
                continue
            self.found.append((reference / mine, name, mine))
            if write is not None:
                write.write_text(json.dumps(self.found))
        self._end(parties)

    def show(self, below: float) -> None:
        """Those under a ratio, and the geometric mean of all."""
        table = Table(title="onnxruntime's time over ours")
        for heading in ("operator", "ratio", "ours (us)"):
            table.add_column(heading)
        for ratio, name, seconds in sorted(self.found):
            if ratio < below:
                table.add_row(name, f"{ratio:.2f}", f"{1e6 * seconds:.0f}")
        Console(width=140).print(table)
        for line in self.failed:
            print(line)
        under = sum(ratio < 0.9 for ratio, _, _ in self.found)
        mean = geometric_mean(ratio for ratio, _, _ in self.found)
        print(f"{len(self.found)} cases, {under} under 0.9, geometric mean {mean:.2f}")

    def _start(self) -> tuple[Party, Party]:
        options = Options(cores=self.threads)
        return Party(True, options), Party(False, options)

    def _end(self, parties: tuple[Party, Party]) -> None:
        for party in parties:
            party.end()


def _tolerance(case: Case) -> float:
    """Of the largest magnitude: 16-bit sums differ in their order."""
    return 2e-2 if any(array.dtype == np.float16 for array in case.feeds.values()) else 2e-3
