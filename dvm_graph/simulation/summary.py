"""A simulation as a CSV file whose columns are those of the op_summary of CANN's profiler.

A row for each stage of a kernel. Times of units are those of all cores together over the number of cores, as the
profiler gives them; ratios are parts of the time of these cores. aic columns are of cube and mix kernels,
aiv columns of vector kernels, and of the vector cores that go on with a cube core's blocks.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from dvm_graph.errors import writing
from dvm_graph.simulation.record import Simulation, Stage, Unit

_UNITS = {
    "vector": "vec",
    "cube": "mac",
    "mte1": "mte1",
    "mte2": "mte2",
    "mte3": "mte3",
    "fixp": "fixpipe",
}
"""What the profiler calls the units of our queues."""
_PARTS = {
    "aic": ("mac", "scalar", "mte1", "mte2", "mte3", "fixpipe"),
    "aiv": ("vec", "scalar", "mte2", "mte3"),
}
_TASKS = {"vector": "AI_VECTOR_CORE", "cube": "AI_CORE", "mix": "MIX_AIC"}


def columns() -> list[str]:
    names = ["Op Name", "OP Type", "Task Type", "Task Start Time(us)", "Task Duration(us)"]
    names += ["Task Wait Time(us)", "Block Dim"]
    for part, units in _PARTS.items():
        names += [f"{part}_time(us)", f"{part}_total_cycles"]
        for unit in units:
            names += [f"{part}_{unit}_time(us)", f"{part}_{unit}_ratio"]
    return [*names, "aiv_gm_to_ub_bw(GB/s)", "aiv_ub_to_gm_bw(GB/s)", "hbm_bw(GB/s)", "TFLOP/s"]


def rows(simulation: Simulation) -> list[dict[str, str]]:
    made, free = [], 0.0
    for stage in simulation.stages:
        made.append(_row(simulation, stage, max(0.0, stage.start - free)))
        free = stage.start + stage.seconds
    return made


def write_csv(simulation: Simulation, path: str | PathLike[str]) -> None:
    """Writes the rows.

    Raises:
        InputError: the file cannot be written.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns())
    writer.writeheader()
    writer.writerows(rows(simulation))
    with writing(path):
        Path(path).write_text(text.getvalue(), encoding="utf-8", newline="")


def _row(simulation: Simulation, stage: Stage, waited: float) -> dict[str, str]:
    part = "aiv" if stage.kind == "vector" else "aic"
    cycles = stage.seconds * simulation.spec["cores.frequency"] * stage.cores
    row = dict.fromkeys(columns(), "")
    row |= {
        "Op Name": stage.name,
        "OP Type": " | ".join(dict.fromkeys(stage.origin)),
        "Task Type": _TASKS.get(stage.kind, "MIX_AIC"),
        "Task Start Time(us)": f"{stage.start * 1e6:.3f}",
        "Task Duration(us)": f"{stage.seconds * 1e6:.3f}",
        "Task Wait Time(us)": f"{waited * 1e6:.3f}",
        "Block Dim": str(stage.cores),
        f"{part}_time(us)": f"{stage.seconds * 1e6:.3f}",
        f"{part}_total_cycles": f"{cycles:.0f}",
        "hbm_bw(GB/s)": _rate(stage.memory_bytes, stage.seconds),
        "TFLOP/s": f"{stage.flops_per_second / 1e12:.3f}",
    }
    row |= _units(stage, part, stage.units) | {
        f"{part}_scalar_time(us)": f"{stage.scalar * stage.seconds * 1e6:.3f}",
        f"{part}_scalar_ratio": f"{stage.scalar:.4f}",
    }
    if stage.lane_units:
        row |= _units(stage, "aiv", stage.lane_units)
    if part == "aiv":
        row["aiv_gm_to_ub_bw(GB/s)"] = _rate(stage.read, stage.seconds)
        row["aiv_ub_to_gm_bw(GB/s)"] = _rate(stage.written, stage.seconds)
    return row


def _units(stage: Stage, part: str, units: Mapping[str, Unit]) -> dict[str, str]:
    busy = {_UNITS[name]: unit.busy for name, unit in units.items()}
    cells = {}
    for unit in _PARTS[part]:
        share = busy.get(unit, 0.0)
        cells[f"{part}_{unit}_time(us)"] = f"{share * stage.seconds * 1e6:.3f}"
        cells[f"{part}_{unit}_ratio"] = f"{share:.4f}"
    return cells


def _rate(moved: float, seconds: float) -> str:
    return f"{moved / seconds / 1e9:.3f}" if seconds else ""
