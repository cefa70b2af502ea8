"""A simulation as tables: for people, on a terminal or in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dvm_graph.profile import Table, print_table
from dvm_graph.simulation.record import Simulation, Stage

_NAMED = 5
"""Kernels of a kind that a line names."""
_LONGEST = 20
"""Stages that are shown; those alike count as one."""
_STALLS = 8
"""Of them, those whose stalls are."""


def tables(simulation: Simulation) -> list[Table]:
    """What `print_simulation` prints: stages, units, stalls."""
    return [_stages(simulation), _units(simulation), _stalls(simulation)]


def summary(simulation: Simulation) -> str:
    spec, stages = simulation.spec, list(simulation.stages)
    flops = sum(stage.flops for stage in stages)
    moved = sum(stage.memory_bytes for stage in stages)
    seconds = simulation.seconds or 1.0
    lines = [
        f"{simulation.seconds * 1e3:.3f} ms on {spec.name}: {simulation.device_seconds * 1e3:.3f} ms in "
        f"{len(stages)} stages of {len(simulation.launches)} launches; the device waits "
        f"{simulation.exposed_seconds * 1e3:.3f} ms for the host, which compiles for "
        f"{simulation.compile_seconds * 1e6:.1f} us; programs of launches take up to "
        f"{max((launch.program_bytes for launch in simulation.launches), default=0) / 1024:.1f} KiB",
        f"{flops / seconds / 1e12:.1f} of {simulation.peak() / 1e12:.0f} TFLOP/s, "
        f"{moved / seconds / 1e9:.0f} of {simulation.memory_rate / 1e9:.0f} GB/s of memory",
    ]
    lines += _lacking(simulation)
    if simulation.vendor_calls:
        lines.append(
            f"not simulated: {len(simulation.vendor_calls)} calls of the vendor's library, "
            f"{', '.join(simulation.vendor_calls[:3])}{', ...' if len(simulation.vendor_calls) > 3 else ''}"
        )
    return "\n".join(lines)


def _lacking(simulation: Simulation) -> Iterator[str]:
    """Of products that run as on a core with one local memory."""
    reasons = dict.fromkeys(r for stage in simulation.stages for r in stage.lacking.values())
    for reason in reasons:
        stages = [stage for stage in simulation.stages if reason in stage.lacking.values()]
        names = [
            *dict.fromkeys(name for s in stages for name, r in s.lacking.items() if r == reason)
        ]
        share = sum(stage.seconds for stage in stages) / simulation.device_seconds
        yield (
            f"products as on a core with one local memory, for the cube unit lacks {reason}: {len(stages)} stages, "
            f"{share:.1%} of the device's time: {', '.join(names[:_NAMED])}{', ...' if len(names) > _NAMED else ''}"
        )


def print_simulation(simulation: Simulation) -> str:
    """The summary and all tables as aligned text."""
    return "\n\n".join([summary(simulation), *map(print_table, tables(simulation))])


@dataclass(frozen=True, slots=True)
class _Alike:
    """Stages that do the same: layers of a model."""

    stage: Stage
    """The first."""
    times: int

    @property
    def name(self) -> str:
        return self.stage.name if self.times == 1 else f"{self.stage.name} x{self.times}"

    @property
    def seconds(self) -> float:
        return self.stage.seconds * self.times


def _longest(simulation: Simulation) -> list[_Alike]:
    found: dict[tuple[object, ...], list[Stage]] = {}
    for stage in simulation.stages:
        key = (
            stage.kind,
            stage.tiles,
            stage.instructions,
            stage.memory_bytes,
            f"{stage.seconds:.9f}",
        )
        found.setdefault(key, []).append(stage)
    alike = [_Alike(stages[0], len(stages)) for stages in found.values()]
    return sorted(alike, key=lambda stages: -stages.seconds)[:_LONGEST]


def _stages(simulation: Simulation) -> Table:
    rows = []
    for alike in _longest(simulation):
        stage = alike.stage
        rows.append(
            (
                alike.name,
                stage.kind,
                str(sum(stage.tiles)),
                str(stage.cores),
                f"{stage.seconds * 1e6:.1f}",
                f"{alike.seconds / (simulation.device_seconds or 1.0):.1%}",
                f"{stage.flops_per_second / 1e12:.1f}",
                f"{stage.memory_bytes / (stage.seconds or 1.0) / 1e9:.0f}",
                f"{stage.decode_exposed:.1%}",
            )
        )
    columns = ("kernel", "kind", "tiles", "cores", "us", "share", "TFLOP/s", "GB/s", "decode shows")
    return Table(f"The longest of {len(list(simulation.stages))} stages", columns, tuple(rows))


def _names(simulation: Simulation) -> list[str]:
    return list(
        dict.fromkeys(
            unit for stage in simulation.stages for unit in (*stage.units, *stage.lane_units)
        )
    )


def _units(simulation: Simulation) -> Table:
    names = _names(simulation)
    rows = []
    for alike in _longest(simulation):
        units = alike.stage.units
        cells = [f"{units[n].busy:.0%}" if n in units else "" for n in names]
        rows.append((alike.name, *cells, f"{alike.stage.scalar:.0%}"))
        if lanes := alike.stage.lane_units:
            cells = [f"{lanes[n].busy:.0%}" if n in lanes else "" for n in names]
            rows.append((f"{alike.name}: vector cores", *cells, ""))
    return Table("How busy units are", ("kernel", *names, "scalar"), tuple(rows))


def _stalls(simulation: Simulation) -> Table:
    rows = []
    for alike in _longest(simulation)[:_STALLS]:
        units = [*alike.stage.units.items()]
        units += [(f"vector cores' {name}", unit) for name, unit in alike.stage.lane_units.items()]
        for name, unit in units:
            waits = sorted(unit.for_flag.items(), key=lambda item: -item[1])
            flags = ", ".join(f"{other} {time:.0%}" for other, time in waits if time >= 0.005)
            count = f"{unit.instructions:,}"
            shared = f"{unit.shared:.0%}"
            rows.append((f"{alike.name}: {name}", f"{unit.for_decode:.1%}", flags, shared, count))
    columns = ("unit", "decode", "flags of", "shared bandwidth", "instructions")
    return Table("What units wait for", columns, tuple(rows))
