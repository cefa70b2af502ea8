"""What a user holds: a compiled model.

Conventions follow onnxruntime's Python API where it has one (`run`, `get_inputs`, `get_outputs`).
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import methodcaller
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import ArrayLike, NDArray

from dvm_graph.description import Description, TensorInfo, describe
from dvm_graph.errors import (
    CacheWarning,
    CompileError,
    ContradictionError,
    InputError,
    ShapeError,
    UnsupportedError,
    border,
    output_path,
)
from dvm_graph.ir import ModelMetadata
from dvm_graph.options import DEFAULTS, Options
from dvm_graph.process import load_compiler
from dvm_graph.runtime import (
    CompileTime,
    FlagCounts,
    KernelListing,
    Program,
    RunOptions,
    RunStatistics,
)
from dvm_graph.saving import (
    CACHE_VARIABLE,
    RUN_OPTIONS,
    SavedModel,
    entry_of,
    is_saved,
    load_model,
    load_report,
)
from dvm_graph.variants import Variants, fed_shape

if TYPE_CHECKING:
    from dvm_graph.comparison import Comparison
    from dvm_graph.npu.spec import Spec
    from dvm_graph.pipeline import Compiled, Source
    from dvm_graph.profile import Profile
    from dvm_graph.report import Report
    from dvm_graph.simulation import Simulation


_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Compilation:
    """How a model was made that was compiled here."""

    name: str
    compiled: Compiled


class Model:
    """An optimised model. `run` may be called from several threads at once."""

    def __init__(
        self,
        program: Program,
        description: Description,
        options: Options,
        origin: _Compilation | SavedModel,
        source: Source | None = None,
    ) -> None:
        """`source`: the ONNX model, where that is known."""
        self._program = self._ran = program
        self._description = description
        self._options = options
        self.precision = options.precision
        """Of its matrix products (`Options.precision`)."""
        self._origin = origin
        self._source = source
        self._output_names = [info.name for info in description.outputs]
        self._variants = Variants(source, options, description.inputs, description.overridable)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are the source and the options: made into a model by compiling anew, or
        loading the file.
        """
        source = self._source
        if source is None:
            assert isinstance(self._origin, SavedModel)
            changed = {name: getattr(self._options, name) for name in RUN_OPTIONS}
            return functools.partial(load, **changed), (self._origin.file.path,)
        if not isinstance(source, bytes | str | PathLike):
            source = source.SerializeToString()
        return optimize, (source, self._options)

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(map(str, infos)) for infos in (self.get_inputs(), self.get_outputs())
        )
        return f"<dvm_graph.Model: {inputs} -> {outputs}>"

    def get_inputs(self) -> list[TensorInfo]:
        return list(self._description.inputs)

    def get_outputs(self) -> list[TensorInfo]:
        return list(self._description.outputs)

    def get_overridable_initializers(self) -> list[TensorInfo]:
        """Constants that the model declares as inputs as well: a run may be fed others in their place.

        They are constants to the compiler all the same. The first run that overrides some compiles the
        model once more, with those as inputs; `Options.fed_initializers` does so from the start.
        """
        return list(self._description.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model's file says about it."""
        return self._description.about

    def table_rows(self) -> dict[str, int]:
        """How many rows the tables have that inputs pick rows of: the vocabulary of token ids."""
        return dict(self._description.table_rows)

    def default_dims(self, given: Mapping[str, int]) -> dict[str, int]:
        """Extents of all dims of inputs, by name: those given, what operators demand beside them (equal or broadcast dims, numbers),
        and 2 of others. Least extents of windows and multiples of reshapes are not among what is demanded.

        Raises:
            InputError: an extent that is no whole number.
        """
        return self._description.default_dims(given)

    def run(
        self,
        feeds: Mapping[str, ArrayLike],
        output_names: Sequence[str] | None = None,
        *,
        outputs: Mapping[str, NDArray[Any]] | None = None,
        run_options: RunOptions | None = None,
    ) -> list[NDArray[Any]]:
        """Runs the model at the shapes of its inputs, whatever they are.

        Args:
            feeds: one array per input, by name; dtype and rank as `get_inputs` says. Contiguous
                arrays are read in place.
            output_names: which outputs to return, in this order; None: all.
            outputs: arrays to write results into, by output name (C-contiguous, exact dtype and
                shape); outputs not named get fresh arrays.
            run_options: what may end the run: setting `terminate` from another thread does.

        Returns:
            The outputs, owned by the caller.

        Raises:
            InputError: an input is missing, unknown, or has a wrong dtype or rank.
            ShapeError: two inputs contradict each other about a dim, and not by its name alone.
            OutOfMemoryError: the shapes need more memory than there is.
            ExecutionError: an operator failed, an index out of range for example.
            CancelledError: `run_options` ended the run.
            ExternalDataError: a file of weights was written to since the model was loaded.
        """
        program = self._ran = self._variants.find(feeds) or self._program
        try:
            results = program.run(feeds, outputs, options=run_options)
        except ContradictionError as contradiction:
            run = methodcaller(
                "run", feeds, outputs, options=run_options
            )  # a lambda costs every run
            results = self._apart(feeds, contradiction, run)
        if output_names is None:
            return results
        unknown = [name for name in output_names if name not in self._output_names]
        if unknown:
            raise InputError(
                f"no output named {unknown[0]!r}; outputs are {', '.join(self._output_names)}"
            )
        return [results[self._output_names.index(name)] for name in output_names]

    def _on_program(
        self, feeds: Mapping[str, ArrayLike], action: Callable[[Program], _Result]
    ) -> _Result:
        """What comes out with the program that takes these feeds."""
        program = self._ran = self._variants.find(feeds) or self._program
        try:
            return action(program)
        except ContradictionError as contradiction:
            return self._apart(feeds, contradiction, action)

    def _apart(
        self,
        feeds: Mapping[str, ArrayLike],
        contradiction: ContradictionError,
        action: Callable[[Program], _Result],
    ) -> _Result:
        """What comes out where a run contradicts the names of dims, or declared ranks of scalars and results: with a program
        to which those are nothing, if operators do not need what they say.
        """
        try:
            apart = self._variants.find(feeds, dims_by_name=False)
            if apart is not None and self._within_hints(feeds):
                result = action(apart)
                self._ran = apart
                return result
        except (CompileError, ShapeError, UnsupportedError):
            pass
        self._refuse_strings(feeds)
        raise contradiction

    def _refuse_strings(self, feeds: Mapping[str, ArrayLike]) -> None:
        """Names strings that are not of the declared extents: in the run only what reads them has any.

        Raises:
            ContradictionError: they have another one.
        """
        for info in self._description.inputs:
            if info.type != "tensor(string)" or not info.shape:
                continue
            shape = fed_shape(feeds[info.name])
            for axis, (dim, extent) in enumerate(zip(info.shape, shape, strict=True)):
                if isinstance(dim, int) and dim != extent:
                    raise ContradictionError(
                        f"{info.name} (axis {axis}) has extent {extent}, expected {dim}"
                    )

    def _within_hints(self, feeds: Mapping[str, ArrayLike]) -> bool:
        """Whether each dim with a hint is in its range, where inputs say otherwise about dims of one name."""
        hints = self._options.dim_hints
        for info in self._description.inputs if hints else ():
            for dim, extent in zip(info.shape, fed_shape(feeds[info.name]), strict=False):
                low, high = hints.get(str(dim), (extent, extent))
                if not low <= extent <= high:
                    return False
        return True

    def forget(self) -> None:
        """Makes the next run compile every kernel, as the first at a new shape does."""
        self._program.forget()
        self._variants.forget()

    @property
    def cores(self) -> int:
        """AI cores of the device the model runs on."""
        return self._program.cores

    @property
    def statistics(self) -> RunStatistics:
        """Compile time, run time and memory of the last run."""
        return self._ran.statistics

    @property
    def flags(self) -> FlagCounts:
        """What the flags are for of the programs that ran so far, on a simulated part with `queues="audited"`."""
        return self._program.flags

    def profile(self, feeds: Mapping[str, ArrayLike], *, repeats: int = 10) -> Profile:
        """Where the time goes at the shapes of these feeds; `str()` prints it.

        Runs the model once afresh and `repeats` times more, timing every kernel and instruction.

        Raises:
            InputError: fewer than one repeat, or as `run` raises.
        """
        from dvm_graph.profile import profile_program

        names = self._description.onnx_operators
        return self._on_program(
            feeds, lambda program: profile_program(program, feeds, repeats, names)
        )

    def simulate(
        self,
        dims: Mapping[str, int],
        *,
        npu: str | PathLike[str] | Spec = "ascend910b2",
        **plan: Any,
    ) -> Simulation:
        """What a run at named dims would take on a part that is not at hand; `str()` prints it.

        Nothing runs and no data is needed: kernels are compiled for the part, and their units simulated
        (docs/npu.md).

        Args:
            dims: an extent for each dim of the inputs.
            npu: a part that comes with the package, a spec file of one, or a `Spec`.
            **plan: see `dvm_graph.simulation.Plan`: cold_cache, trace, overlap and others.

        Raises:
            InputError: a dim is missing or unknown, or the spec is wrong.
        """
        from dvm_graph.npu.spec import find_spec
        from dvm_graph.simulation import Plan, simulate_program

        unknown = plan.keys() - {field.name for field in fields(Plan)}
        if unknown:
            raise InputError(f"simulate has no option {min(unknown)!r}")
        return simulate_program(self._program, dims, find_spec(npu), Plan(**plan))

    def report(self) -> Report:
        """Fused subgraphs, kernels, verdicts with reasons and vendor operators; `str()` prints it."""
        if isinstance(self._origin, SavedModel):
            return load_report(self._origin)
        from dvm_graph.report import make_report

        return replace(
            make_report(self._origin.compiled),
            vendor_casts=self._program.vendor_casts,
            lacking=self._program.lacking,
        )

    def visualize(self, path: str | PathLike[str], *, profile: Profile | None = None) -> None:
        """Draws the fused subgraphs; the suffix picks the format: .html .svg .png .pdf .dot.

        A `profile` of this model colours them by the time that they take.

        Raises:
            InputError: the file cannot be written, or what is given is no profile of this model.
        """
        from dvm_graph.report import Times, draw_report

        report, times = self.report(), None
        if profile is not None:
            from dvm_graph.profile import Profile

            if not isinstance(profile, Profile):
                raise InputError(f"a profile is what Model.profile gives, not {profile!r:.50}")
            times = Times(report, profile.typical.seconds, profile.shares())
        draw_report(report, path, self._origin.name, times)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the compiled model to a file, for `dvm_graph.load` to start from without compiling.

        The file holds everything: weights as they lie in memory, packed matrices, vendor operators. It is
        for this version of dvm_graph, and any CPU that runs it.

        Raises:
            InputError: the file cannot be written, is the ONNX model, or this model comes from such a file.
            UnsupportedError: something in the model is of a kind that files have no place for.
        """
        if self._source is None:
            assert isinstance(self._origin, SavedModel)
            raise InputError(f"the model was saved already: copy {str(self._origin.file.path)!r}")
        with border("save the model"):
            target, source = output_path(path), self._source
            if isinstance(source, str | PathLike) and target.resolve() == Path(source).resolve():
                raise InputError(f"{str(target)!r} is the ONNX model: save to another file")
            if isinstance(self._origin, SavedModel):  # out of a cache
                self._origin.file.copy_to(target)
                return
            from dvm_graph.saving.save import save_model

            save_model(
                target,
                self._origin.compiled.plan,
                self._program,
                replace(self._options, cache=""),
                self._description,
                self.report(),
                self._origin.name,
            )

    def compare(
        self,
        feeds: Mapping[str, ArrayLike] | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        seed: int = 0,
    ) -> Comparison:
        """Compares one run with onnxruntime; see `dvm_graph.compare`.

        Raises:
            InputError: the model was loaded from a file that it was saved to: onnxruntime needs the ONNX model.
        """
        from dvm_graph.comparison import compare_model

        if self._source is None:
            raise InputError("a saved model holds no ONNX model to compare with: compare that one")
        return compare_model(self, self._source, feeds, dims or {}, seed)

    def disassemble(self, feeds: Mapping[str, ArrayLike]) -> str:
        """The bytecode of every kernel for the shapes of these inputs, in the assembler's text form."""
        return self._on_program(feeds, lambda program: program.disassemble(feeds))

    def listings(
        self,
        dims: Mapping[str, int],
        *,
        steps: bool = False,
        npu: str | PathLike[str] | Spec | None = None,
    ) -> list[KernelListing]:
        """As `disassemble`, kernel by kernel and for named dims instead of inputs.

        Args:
            dims: the extent of every dim by its name.
            steps: with the tile code behind each step of the run-time compiler.
            npu: as for `simulate`: what the kernels are for that part; None: what they are here.

        Raises:
            InputError: a dim is unknown, or the spec is wrong.
        """
        from dvm_graph.npu.spec import find_spec

        target = None if npu is None else find_spec(npu).target
        return self._program.listings(dims, steps=steps, target=target)

    def compile_times(self, dims: Mapping[str, int], repeats: int = 100) -> list[CompileTime]:
        """What compiling each distinct kernel for named dims costs, each `repeats` times in a row."""
        return self._program.compile_times(dims, repeats)


def optimize(source: Source, options: Options | None = None, **overrides: Any) -> Model:
    """Compiles an ONNX model for any shape of its dynamic dims.

    Operators that cannot be compiled run on onnxruntime; so does, with a `RescueWarning`, whatever the
    compiler fails at. The report names both.

    Args:
        source: path, bytes, or onnx.ModelProto. External data is read from the model's folder.
        options: see `Options`.
        **overrides: single fields of it (`strict=True`).

    Raises:
        ModelError: not a valid ONNX model.
        UnsupportedError: an operator nobody can run, or (`StrictError`) vendor operators refused.
        InputError: an option that there is not, or whose value makes no sense.
        LimitError: compiling takes longer, or more memory, than the options allow.
        MiscompileError: `check=True`, and a kernel does not compute what its operators mean.
    """
    if options is not None and not isinstance(options, Options):
        raise InputError(f"options are dvm_graph.Options, not a {type(options).__name__}")
    chosen = (options or DEFAULTS).changed(overrides)
    if not chosen.cache and (folder := os.environ.get(CACHE_VARIABLE)):
        chosen = replace(chosen, cache=folder)
    if is_saved(source):
        raise InputError(
            f"{str(source)!r} is a saved model, which needs no compiling: dvm_graph.load"
        )
    with border("look for the model in the cache"):
        entry = entry_of(source, chosen)
        saved = None if entry is None else entry.load()
    if saved is not None:
        return Model(saved.program, saved.description, chosen, saved, source)
    load_compiler()
    from dvm_graph.rescue import build

    compiled, program = build(source, chosen)
    with border("describe the model"):
        description = describe(compiled.graph, compiled.facts)
    name = Path(source).name if isinstance(source, str | PathLike) else compiled.graph.name
    model = Model(program, description, chosen, _Compilation(name, compiled), source)
    if entry is not None and not compiled.rescued:
        with border("keep the model in the cache"):
            failure = entry.keep(description.data_files, model.save)
        if failure is not None:
            warnings.warn(failure, CacheWarning, stacklevel=2)
    return model


def load(path: str | PathLike[str], **overrides: Any) -> Model:
    """A model that `Model.save` wrote to a file.

    Weights stay in the file until a run reads them, which the first run checks before (`docs/saving.md`).
    Everything else works as on the model that was saved, but for what needs the ONNX model: `compare`, and runs
    that override initializers.

    Args:
        path: the file, not to be written to while the model lives; replacing it by another is fine.
        **overrides: options to change of those that the model was compiled with: cores, spin, simd,
            local_bytes, private_weights.

    Raises:
        ModelError: there is no such file; `DamagedError`: it is not as it was saved.
        UnsupportedError: another version of dvm_graph saved it.
        InputError: an option that there is not, or that was settled when the model was compiled.
    """
    with border("load the model"):
        saved = load_model(path, overrides)
        return Model(saved.program, saved.description, saved.options, saved)


def open_model(source: Source, options: Options) -> Model:
    """Loads what is a saved model, with the options that are not as they are by default; compiles others."""
    if not isinstance(source, str | PathLike) or not is_saved(source):
        return optimize(source, options)
    given = {field.name: getattr(options, field.name) for field in fields(Options)}
    del given["cache"]  # it is compiled already
    return load(source, **{n: v for n, v in given.items() if v != getattr(Options(), n)})
