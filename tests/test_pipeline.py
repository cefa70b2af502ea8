"""The compiler as a function: its stages, and how a caller watches or leaves out some."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvm_graph.errors import InputError
from dvm_graph.options import Options
from dvm_graph.pipeline import PASSES, STAGES, Done, compile_model, stage_text
from models import tiny_path
from tests.golden_cases import model

BERT = tiny_path("bert")


def test_every_pass_has_a_file_of_its_own() -> None:
    folder = Path(__file__).parents[1] / "dvm_graph" / "passes"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert files == set(PASSES) < set(STAGES)


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_can_be_left_out(name: str) -> None:
    seen: list[str] = []
    options = Options(disable_passes=frozenset({name}))
    compile_model(BERT, options, lambda done: seen.append(done.name))
    assert seen == [stage for stage in STAGES if stage != name]


def test_a_pass_that_is_left_out_changes_nothing() -> None:
    options = Options(disable_passes=frozenset({"simplify"}))
    assert "transpose(" in stage_text(model("transposes"), options, "absorb_views")
    assert "transpose(" not in stage_text(model("transposes"), Options(), "absorb_views")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="no pass named 'simplfy'; passes are fold_constants"):
        compile_model(BERT, Options(disable_passes=frozenset({"simplfy"})))
    with pytest.raises(InputError, match="no stage named 'codegen'"):
        stage_text(BERT, Options(), "codegen")
    with pytest.raises(InputError, match="no stage named 'simplify' ran"):
        stage_text(BERT, Options(disable_passes=frozenset({"simplify"})), "simplify")


def test_what_an_observer_raises_ends_the_compilation() -> None:
    def stop(done: Done) -> None:
        raise KeyError(done.name)

    with pytest.raises(KeyError, match="import_onnx"):
        compile_model(BERT, Options(), stop)
