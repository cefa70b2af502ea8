"""Golden text of what each stage of the compiler does: the model, the stage's input, its result."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

import dvm_graph
from dvm_graph.options import Options
from dvm_graph.pipeline import STAGES, Done, compile_model
from tests.golden_cases import GOLDEN, PASS_CASES, TEXTS, model

GRAPH_STAGES = STAGES[: STAGES.index("cluster")]


@cache
def texts_of(name: str) -> dict[str, str]:
    """The text of each stage."""
    texts: dict[str, str] = {}

    def observe(done: Done) -> None:
        texts[done.name] = done.text()

    compile_model(model(name), Options(), observe)
    return texts


@pytest.mark.golden
@pytest.mark.parametrize(
    ("stage", "name"), [(stage, name) for stage, names in PASS_CASES.items() for name in names]
)
def test_stage(stage: str, name: str, check_golden: Callable[[str, str], None]) -> None:
    texts = texts_of(name)
    parts = [f"# model\n{TEXTS[name].strip()}\n"]
    if stage in GRAPH_STAGES[1:]:
        before = STAGES[STAGES.index(stage) - 1]
        assert texts[before] != texts[stage], f"{stage} does nothing to {name}"
        parts.append(f"# before {stage}\n{texts[before]}")
    parts.append(f"# after {stage}\n{texts[stage]}")
    check_golden(f"{stage}/{name}.txt", "\n".join(parts))


@pytest.mark.golden
@pytest.mark.parametrize("name", GOLDEN["report"])
def test_report(name: str, check_golden: Callable[[str, str], None]) -> None:
    check_golden(f"report/{name}.txt", f"{dvm_graph.optimize(model(name)).report()}\n")


def test_every_stage_shows_itself() -> None:
    assert tuple(texts_of("mlp")) == STAGES
    assert set(PASS_CASES) <= set(STAGES)
