"""The plan verifier: it passes what the compiler makes, and stops what wrong rules or broken plans would run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dvm_graph.cluster.meeting import GroupMeeting
from dvm_graph.errors import CompileError
from dvm_graph.kernels.plan import KernelCall, KernelPlan, LaunchStep, ModelPlan, PlanNode
from dvm_graph.kernels.verify import samples, verify_plan
from dvm_graph.options import Options
from dvm_graph.pipeline import compile_model
from models import tiny_path
from tests.end_to_end.reference import model_from_text

SOFTMAX = """g (float[n, k] x, float[k, m] w) => (float[n, m] y, float[n, k] z) {
    z = Relu(x) p = MatMul(x, w) y = Softmax(p) }"""
JOINED = """g (float[n, 3] x, float[m, 3] w) => (float[t, 3] y) {
    r = Relu(x) s = Tanh(w) y = Concat<axis = 0>(r, s) }"""


def plan_of(text: str, options: Options | None = None) -> ModelPlan:
    return compile_model(model_from_text(text), options or Options()).plan


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", ["bert", "llama_decode", "mmoe", "nonzero", "unet"])
def test_plans_of_models_verify(name: str, fuse: bool) -> None:
    plan = compile_model(tiny_path(name), Options(fuse=fuse)).plan
    assert list(samples(plan)), "no extents to look at elements with"
    verify_plan(plan)


PRODUCT_OF_TRANSPOSED = """g (float[n, n] a, float[n, n] b, float[n, n] w) => (float[n, n] y) {
    p = MatMul(a, w) t = Transpose<perm = [1, 0]>(p) y = MatMul(t, b) }"""
DEPENDENT_SIBLINGS = """g (float[n, 4] x) => (float[n, 4] y)
<int64[1] start = {-1}, int64[1] end = {-9223372036854775808}, int64[1] axis = {0}, int64[1] step = {-1}> {
    r = Relu(x) p = Slice(r, start, end, axis, step) y = Add(p, x) }"""

DEPENDENT_WINDOWS = """g (float[n, 4, h, w] x) => (float[n, 4, h, w] y) {
    r = Relu(x) p = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(r) y = Add(p, x) }"""


@pytest.mark.parametrize(
    ("text", "rule", "answer", "complaint"),
    [
        (PRODUCT_OF_TRANSPOSED, "computes_rows", True, "varies along"),
        (DEPENDENT_SIBLINGS, "depends", False, "at other points"),
        (DEPENDENT_WINDOWS, "depends", False, "which nothing wrote before"),
    ],
)
def test_a_wrong_answer_of_a_rule_is_found(
    monkeypatch: pytest.MonkeyPatch, text: str, rule: str, answer: bool, complaint: str
) -> None:
    """What the rules refuse for a reason, the verifier stops, and names the ONNX nodes."""
    plan_of(text)
    monkeypatch.setattr(GroupMeeting, rule, lambda meeting: answer)
    with pytest.raises(CompileError, match=complaint):
        plan_of(text)


def edited(plan: ModelPlan, edit: Callable[[KernelPlan], KernelPlan]) -> ModelPlan:
    """The plan with every kernel edited."""

    def call(of: KernelCall) -> KernelCall:
        return replace(of, plan=edit(of.plan), fallback=tuple(call(part) for part in of.fallback))

    steps = [
        LaunchStep(tuple(tuple(call(c) for c in stage) for stage in step.stages))
        if isinstance(step, LaunchStep)
        else step
        for step in plan.steps
    ]
    return replace(plan, steps=steps)


def with_nodes(
    op: str, change: Callable[[PlanNode], PlanNode]
) -> Callable[[KernelPlan], KernelPlan]:
    return lambda plan: replace(
        plan, nodes=tuple(change(node) if node.op == op else node for node in plan.nodes)
    )


def without_stores(plan: KernelPlan) -> KernelPlan:
    return replace(plan, nodes=tuple(node for node in plan.nodes if node.op != "store"))


@pytest.mark.parametrize(
    ("text", "edit", "complaint"),
    [
        (SOFTMAX, without_stores, "nothing wrote before"),
        (SOFTMAX, with_nodes("exp", lambda node: replace(node, inputs=(99,))), "behind it"),
        (SOFTMAX, with_nodes("exp", lambda node: replace(node, axes=0)), "loses axes"),
        (SOFTMAX, with_nodes("exp", lambda node: replace(node, axes=1 << 30)), "no such axis"),
        (SOFTMAX, with_nodes("load", lambda node: replace(node, access=99)), "accesses nothing"),
        (SOFTMAX, with_nodes("load", lambda node: replace(node, axes=0)), "follows axes"),
        (
            SOFTMAX,
            with_nodes("matmul", lambda node: replace(node, inputs=node.inputs[::-1])),
            "varies along|loses|more axes",
        ),
        (JOINED, with_nodes("store", lambda node: replace(node, access=0)), "writes|reads|follows"),
    ],
)
def test_broken_plans_are_refused(
    text: str, edit: Callable[[KernelPlan], KernelPlan], complaint: str
) -> None:
    plan = plan_of(text)
    verify_plan(plan)
    with pytest.raises(CompileError, match=complaint):
        verify_plan(edited(plan, edit))


def test_a_result_that_is_written_in_part_is_found() -> None:
    """Both parts of a concat are stored to the place of the first: by structure alone, all is well."""
    plan = plan_of(JOINED, Options(stack=False))

    def at_start(kernel: KernelPlan) -> KernelPlan:
        return replace(
            kernel, accesses=tuple(replace(access, offset=-1) for access in kernel.accesses)
        )

    with pytest.raises(CompileError, match=r"twice|in part only"):
        verify_plan(edited(plan, at_start))


def test_a_fallback_that_writes_less_is_found() -> None:
    plan = plan_of(SOFTMAX)

    def call(of: KernelCall) -> KernelCall:
        return replace(of, fallback=of.fallback[:1])

    steps = [
        LaunchStep(tuple(tuple(call(c) for c in stage) for stage in step.stages))
        for step in plan.steps
        if isinstance(step, LaunchStep)
    ]
    assert any(call.fallback for step in steps for stage in step.stages for call in stage)
    with pytest.raises(CompileError, match="fallback does not write"):
        verify_plan(replace(plan, steps=steps))


def test_a_shape_that_comes_too_late_is_found() -> None:
    """A buffer is written by a launch in front of the step that tells its extents."""
    plan = plan_of("g (float[n] x) => (int64[1, k] y) { e = Exp(x) i = NonZero(e) y = Neg(i) }")
    verify_plan(plan)
    (early,) = (i for i, value in enumerate(plan.values) if value.name == "e")
    (late,) = plan.outputs
    values = list(plan.values)
    values[early] = replace(values[early], shape=values[late].shape)
    with pytest.raises(CompileError, match="whose shape no step before tells"):
        verify_plan(replace(plan, values=values))
