"""Comparison with onnxruntime: the same feeds through both, errors and times side by side.

The tolerance is |actual - expected| <= atol + rtol * |expected|, per output dtype, or that of
`PRODUCTS` for a model of such a precision. Where an output is outside of it, a referee computes the model in
float64: what is no farther from that than onnxruntime is passes, for then the model is ill-conditioned on
these inputs. Without `feeds`, inputs are random (`dvm_graph.feeds`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dvm_graph.errors import DvmError, InputError, UnsupportedError
from dvm_graph.feeds import random_feeds
from dvm_graph.process import load_onnxruntime, vendor_failures, vendor_session

if TYPE_CHECKING:
    import onnxruntime

    from dvm_graph.model import Model
    from dvm_graph.pipeline import Source

TOLERANCES: Mapping[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-9),
    "float32": (1e-3, 1e-4),
    "float16": (1e-2, 1e-2),
    "bfloat16": (3e-2, 3e-2),
}
"""(rtol, atol) by dtype for whole models; all other dtypes must be equal."""

PRODUCTS = {"bf16": (3e-2, 3e-2), "i8": (5e-2, 5e-2)}
"""(rtol, atol) of floats of a model whose products round their operands so, atol in units of the output's
largest magnitude. bf16 has eight bits of significand: an operand is off by 2^-9 of itself at most, a product by 2^-8, and a
sum of k terms, whose errors are independent, by about 2^-9 of the size of a sum of k random terms, whatever k is. The
largest of many elements is off by five times that, and products behind one another add up: 16 * 2^-9. i8 is of blocks: an
operand is off by 1/254 of the largest of its block at most, which of 32 to 256 normal ones is two to three times their
deviation, and a sum by 2^-8 to 2^-7.5 of that size: ten times that."""


@dataclass(frozen=True, slots=True)
class OutputComparison:
    name: str
    shape: tuple[int, ...]
    dtype: str
    max_absolute_error: float
    max_relative_error: float
    """Relative to the largest magnitude of the expected output, or to what the tolerance takes for 0 where
    that is larger."""
    passed: bool
    float64_errors: tuple[float, float] | None = None
    """How far dvm_graph and onnxruntime are from float64, at most; None: nobody had to ask."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One run of both engines. Times are seconds of one run each, after a warm-up run."""

    outputs: tuple[OutputComparison, ...]
    dims: Mapping[str, int]
    precision: str
    """Of dvm_graph's products (`Options.precision`); onnxruntime has that of the model."""
    seconds: float
    onnxruntime_seconds: float

    @property
    def passed(self) -> bool:
        return all(output.passed for output in self.outputs)

    def __str__(self) -> str:
        lines = [
            f"{'equal' if output.passed else 'DIFFERENT'}  {output.name} "
            f"{list(output.shape)} {output.dtype}: max absolute error "
            f"{output.max_absolute_error:.3g}, relative {output.max_relative_error:.3g}"
            + _referee_text(output)
            for output in self.outputs
        ]
        if self.precision != "f32":
            lines.append(f"within the bounds of products of {self.precision}")
        lines.append(
            f"dvm_graph {self.seconds * 1e3:.3f} ms, "
            f"onnxruntime {self.onnxruntime_seconds * 1e3:.3f} ms (one run each: an indication)"
        )
        return "\n".join(lines)


def compare(
    source: Source,
    feeds: Mapping[str, ArrayLike] | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    **options: Any,
) -> Comparison:
    """Optimises a model and compares one run with onnxruntime.

    Args:
        source: the model, as for `optimize`.
        feeds: inputs; None: random ones at `dims`.
        dims: extents of the dynamic dims by name; dims not named are 2.
        seed: of the random inputs.
        options: see `dvm_graph.Options`.

    Raises:
        InputError: `dims` name one that no input has, or as `Model.run` raises.
        UnsupportedError: onnxruntime does not run the model, or as `optimize` raises.
    """
    from dvm_graph.model import optimize

    return compare_model(optimize(source, **options), source, feeds, dims or {}, seed)


def compare_model(
    model: Model,
    source: Source,
    feeds: Mapping[str, ArrayLike] | None,
    dims: Mapping[str, int],
    seed: int,
    session: onnxruntime.InferenceSession | None = None,
) -> Comparison:
    """As `compare`, for a model (and a session, if there is one) made before."""
    session = session or reference_session(source)
    arrays = (
        random_feeds(model, dims, seed)
        if feeds is None
        else {name: np.asarray(value) for name, value in feeds.items()}
    )
    actual, seconds = _timed(lambda: model.run(arrays))
    expected, reference_seconds = _timed(lambda: session.run(None, arrays))
    outputs = tuple(
        compare_result(info.name, a, e, model.precision)
        for info, a, e in zip(model.get_outputs(), actual, expected, strict=True)
    )
    if not all(output.passed for output in outputs) and model.precision == "f32":
        outputs = _ask_referee(source, arrays, actual, expected, outputs)
    return Comparison(outputs, dict(dims), model.precision, seconds, reference_seconds)


def _ask_referee(
    source: Source,
    feeds: Mapping[str, NDArray[Any]],
    actual: list[NDArray[Any]],
    expected: list[NDArray[Any]],
    outputs: tuple[OutputComparison, ...],
) -> tuple[OutputComparison, ...]:
    """Lets outputs pass that are no farther from float64 than onnxruntime's."""
    from dvm_graph.check import float64_outputs

    try:
        exact = float64_outputs(source, feeds)
    except DvmError:  # there is no referee for this model
        return outputs
    return tuple(
        _judged(output, *arrays)
        for output, *arrays in zip(outputs, actual, expected, exact, strict=True)
    )


def _judged(
    output: OutputComparison, actual: NDArray[Any], expected: NDArray[Any], exact: NDArray[Any]
) -> OutputComparison:
    if output.passed or output.dtype not in TOLERANCES:
        return output
    if not actual.shape == expected.shape == exact.shape:
        return output
    ours, theirs = _distance(actual, exact), _distance(expected, exact)
    return replace(output, passed=ours <= theirs, float64_errors=(ours, theirs))


def _distance(array: NDArray[Any], exact: NDArray[Any]) -> float:
    """The largest difference; infinite where one of the two is and the other is not."""
    a, e = array.astype(np.float64), exact.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.where((a == e) | (np.isnan(a) & np.isnan(e)), 0.0, np.abs(a - e))
    return float(np.max(np.nan_to_num(gap, nan=np.inf), initial=0.0))


def _referee_text(output: OutputComparison) -> str:
    if output.float64_errors is None:
        return ""
    ours, theirs = output.float64_errors
    return f"; from float64 dvm_graph is {ours:.3g} off, onnxruntime {theirs:.3g}"


def compare_result(
    name: str, actual: Any, expected: Any, precision: str = "f32"
) -> OutputComparison:
    """As `compare_output`; of a sequence, a map or an optional value all that it holds, of which there is as much, under the
    same keys: its shape is how many, its errors are the largest.
    """
    if isinstance(actual, np.ndarray) and isinstance(expected, np.ndarray):
        return compare_output(name, actual, expected, precision)
    fits = type(actual) is type(expected) and _keys(actual) == _keys(expected)
    pairs = zip(_held(actual), _held(expected), strict=True) if fits else ()
    parts = [compare_result(name, *pair, precision) for pair in pairs]
    none = 0.0 if fits else np.inf
    absolute = max((part.max_absolute_error for part in parts), default=none)
    relative = max((part.max_relative_error for part in parts), default=none)
    passed = fits and all(part.passed for part in parts)
    shape, kind = (len(_keys(actual)),), type(actual).__name__
    return OutputComparison(name, shape, kind, absolute, relative, passed)


def _keys(value: Any) -> Sequence[Any]:
    """Under which a container holds something; none of what is no container."""
    if isinstance(value, dict):
        return list(value)
    return range(len(value)) if isinstance(value, list) else ()


def _held(value: Any) -> Sequence[Any]:
    """What a container holds: the values of a map, which are numbers or strings, as one array."""
    if not isinstance(value, dict):
        return value if isinstance(value, list) else ()
    values = np.array(list(value.values()))
    return [values.astype(np.float32) if values.dtype.kind == "f" else values]


def compare_output(
    name: str, actual: NDArray[Any], expected: NDArray[Any], precision: str = "f32"
) -> OutputComparison:
    """Compares one output by the tolerance of its dtype, or of the precision of products; NaN equals
    NaN, and infinities agree.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return OutputComparison(name, actual.shape, actual.dtype.name, np.inf, np.inf, False)
    if actual.dtype.name not in TOLERANCES:
        equal = bool(np.array_equal(actual, expected))
        return OutputComparison(
            name, actual.shape, actual.dtype.name, *_errors(actual, expected), equal
        )
    rtol, atol = TOLERANCES[actual.dtype.name]
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    if precision in PRODUCTS:
        rtol, atol = PRODUCTS[precision]
        atol *= float(np.abs(e[np.isfinite(e)]).max(initial=0.0))
    passed = bool(np.allclose(a, e, rtol=rtol, atol=atol, equal_nan=True))
    return OutputComparison(
        name, actual.shape, actual.dtype.name, *_errors(actual, expected), passed
    )


def _errors(actual: NDArray[Any], expected: NDArray[Any]) -> tuple[float, float]:
    if not actual.size or (actual.dtype.kind not in "fiub" and actual.dtype.name not in TOLERANCES):
        return 0.0, 0.0
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(e)
    if not finite.any():
        return 0.0, 0.0
    absolute = float(np.abs(a[finite] - e[finite]).max())
    _, least = TOLERANCES.get(actual.dtype.name, (0.0, 1.0))
    return absolute, absolute / max(float(np.abs(e[finite]).max()), least)


def reference_session(
    source: Source, threads: int | None = None, *, spin_between_runs: bool = True
) -> onnxruntime.InferenceSession:
    """An onnxruntime session over the same model.

    Without `spin_between_runs` its threads leave the cores to others as soon as a run ends.

    Raises:
        UnsupportedError: onnxruntime does not run the model.
    """
    load_onnxruntime()
    import onnxruntime as ort

    from dvm_graph.import_.vendor_library import whole_source

    options = ort.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    if not spin_between_runs:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        return vendor_session()(whole_source(source), options, providers=["CPUExecutionProvider"])
    except vendor_failures() as error:
        raise UnsupportedError(f"onnxruntime does not run this model: {error}") from error


@dataclass(frozen=True, slots=True)
class Timing:
    """Runs of a model at one shape, in seconds."""

    first_seconds: float
    """Of the first run, which compiled every kernel."""
    seconds: float
    """Median of the runs that repeated the shape, as are the next two."""
    fastest_seconds: float
    slowest_seconds: float
    onnxruntime_seconds: float | None
    """Median of onnxruntime's runs, each behind one of ours; None: not timed."""


def time_model(
    model: Model,
    feeds: Mapping[str, ArrayLike],
    repeats: int,
    session: onnxruntime.InferenceSession | None = None,
) -> Timing:
    """Times a first run and `repeats` more, turn by turn with a session's where there is one.

    Raises:
        InputError: fewer than one repeat, or as `Model.run` raises.
    """
    if repeats < 1:
        raise InputError(f"repeats is {repeats}, but has to be 1 or more")
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    model.forget()
    first = _seconds(lambda: model.run(arrays))
    if session is not None:
        session.run(None, arrays)
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(_seconds(lambda: model.run(arrays)))
        if session is not None:
            theirs.append(_seconds(lambda: session.run(None, arrays)))
    return Timing(
        first,
        statistics.median(ours),
        min(ours),
        max(ours),
        statistics.median(theirs) if theirs else None,
    )


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _timed(run: Any) -> tuple[list[NDArray[Any]], float]:
    run()
    begin = time.perf_counter()
    result = run()
    return result, time.perf_counter() - begin
