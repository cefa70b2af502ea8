"""Where the time of a run goes, kernel by kernel, and the colours that show it.

In: the parts of a profile that a picture shows, as numbers (`Profile.shares`). A kernel's time is that of its
fallbacks, too; a call of the vendor library for several operators counts evenly for each. So the boxes of a
picture add up to the profile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from dvm_graph.errors import InputError
from dvm_graph.report.report import Report

HEAT = ("#ffffff", "#fff1d6", "#fed7a0", "#fdb36b", "#f58a50")
"""From next to nothing to the most that any kernel takes."""


@dataclass(frozen=True)
class Times:
    """Of a run at one shape."""

    report: Report
    seconds: float
    """Of the whole run."""
    shares: Mapping[str, float]
    """Of the time of all cores, by the name of a kernel or vendor call."""

    def share(self, index: int) -> float:
        """Of a subgraph, by its number."""
        return self._by_subgraph[index]

    def colour(self, index: int) -> str:
        """Of a subgraph's box."""
        return (
            HEAT[min(int(self.share(index) / self._step), len(HEAT) - 1)] if self._step else HEAT[0]
        )

    def text(self, indices: Iterable[int]) -> str:
        """What some subgraphs take together."""
        share = sum(map(self.share, indices))
        return f"{share * 100:.1f} %, {share * self.seconds * 1e3:.3f} ms"

    def legend(self) -> list[tuple[str, str]]:
        """Colours, and up to which share of the run a kernel has each."""
        return [(colour, f"to {(i + 1) * self._step * 100:.1f} %") for i, colour in enumerate(HEAT)]

    @cached_property
    def _step(self) -> float:
        return max(self._by_subgraph, default=0.0) / len(HEAT)

    @cached_property
    def _by_subgraph(self) -> list[float]:
        sharing = Counter(name for subgraph in self.report.subgraphs for name in subgraph.timed_as)
        strange = [name for name in self.shares if name not in sharing]
        if strange:
            raise InputError(f"the profile is of another model: this one has no {strange[0]}")
        return [
            sum(self.shares.get(name, 0.0) / sharing[name] for name in subgraph.timed_as)
            for subgraph in self.report.subgraphs
        ]
