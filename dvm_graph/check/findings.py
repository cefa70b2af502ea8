"""What a validation finds: results that are not what the operators mean, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass, field

from dvm_graph.errors import MiscompileError


@dataclass(frozen=True, slots=True)
class Finding:
    """One result that is not what it has to be."""

    where: str
    """The stage of the pipeline ("simplify"), or the kernel ("k3_softmax")."""
    rule: str
    """What fused the kernel, verdicts with their reasons; "" of a stage."""
    origin: tuple[str, ...]
    """ONNX nodes."""
    extents: str
    problem: str
    """What differs, or what was raised."""
    error: float = float("inf")
    """The largest difference from float64; infinite where there is no number."""

    def __str__(self) -> str:
        nodes = ", ".join(self.origin[:6]) + (", ..." if len(self.origin) > 6 else "")
        parts = [f"{self.where}: {self.problem}"]
        if self.extents:
            parts.append(f"at {self.extents}")
        if nodes:
            parts.append(f"ONNX nodes: {nodes}")
        if self.rule:
            parts.append(f"fused by: {self.rule}")
        return "; ".join(parts)


@dataclass(slots=True)
class Subject:
    """What was checked, as a row of the report."""

    name: str
    kind: str
    """"decompose", "pass", "kernel" or "fallback"."""
    runs: int = 0
    elements: int = 0
    """Compared."""
    open: int = 0
    """Of them, those that may be anything."""
    error: float = 0.0
    """The largest difference from float64."""
    bound: float = 0.0
    """The largest part of its bound that a difference takes."""
    copies: int = 1
    """Kernels that differ in the values they touch alone."""
    failed: bool = False
    """There is a finding about it."""
    skipped: str = ""
    """Why it did not run, if it did not."""


@dataclass(slots=True)
class CheckReport:
    """Everything that was checked, and what was found."""

    subjects: list[Subject] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.findings

    def raise_findings(self) -> None:
        """
        Raises:
            MiscompileError: something was found.
        """
        if self.findings:
            rest = len(self.findings) - 3
            lines = [str(finding) for finding in self.findings[:3]]
            if rest > 0:
                lines.append(f"and {rest} more: see `dvm-graph check`")
            raise MiscompileError(
                "the compiled model does not compute what its operators mean: " + "\n".join(lines)
            )
