"""What `import dvm_graph` loads, and that the names it loads late are what they were."""

from __future__ import annotations

import ast
import importlib
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dvm_graph
from dvm_graph.decompose import registry
from dvm_graph.decompose.families import FAMILIES
from dvm_graph.ir import Node
from models import tiny_path

SLOW = {"click", "ml_dtypes", "networkx", "numpy", "onnx", "onnxruntime", "rich", "sympy", "google"}
"""Modules that take long to load."""
STUB = Path(dvm_graph.__file__).with_suffix(".pyi")


def modules_behind(code: str) -> set[str]:
    """What a fresh interpreter has loaded behind some code."""
    code += "\nimport json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def loaded_by(code: str) -> set[str]:
    """The slow modules among them."""
    return SLOW & {name.split(".")[0] for name in modules_behind(code)}


def test_the_package_loads_nothing_slow() -> None:
    assert loaded_by("import dvm_graph; dir(dvm_graph)") == set()


def test_options_and_errors_load_nothing_slow() -> None:
    assert loaded_by("from dvm_graph import Options, DvmError; Options(cores=2)") == set()


def test_a_model_is_known_without_the_compiler() -> None:
    assert loaded_by("from dvm_graph import Model, optimize, RunOptions") == {"ml_dtypes", "numpy"}


def test_compiling_loads_what_it_needs() -> None:
    """Graph algorithms and onnxruntime are for models that ask for more."""
    path = tiny_path("mobilenet")
    needed = {"google", "ml_dtypes", "numpy", "onnx"}
    assert loaded_by(f"import dvm_graph; dvm_graph.optimize({str(path)!r})") == needed


def test_decompositions_are_loaded_with_their_operators() -> None:
    path, prefix = tiny_path("mobilenet"), "dvm_graph.decompose."
    code = f"import dvm_graph; dvm_graph.optimize({str(path)!r})"
    loaded = {name.removeprefix(prefix) for name in modules_behind(code) if prefix in name}
    assert "dequantized_products" in loaded
    others = {"attention", "quantized_products", "recurrent", "resizing", "spectral"}
    assert others <= FAMILIES.keys()
    assert not others & loaded


@pytest.mark.parametrize("family", FAMILIES)
def test_families_decompose_the_operators_that_they_are_said_to(family: str) -> None:
    """An operator that is said to be of another family breaks the import."""
    importlib.import_module(f"dvm_graph.decompose.{family}")
    for domain, operators in FAMILIES[family].items():
        for operator in operators.split():
            node = Node("node", operator, (), (), domain=domain)
            assert registry.find(node) is not None


def test_modules_are_no_garbage_to_look_for() -> None:
    """They count as old as soon as they are loaded."""
    code = (
        "import gc, dvm_graph.process as process\n"
        "process.load_compiler()\n"
        "print(gc.isenabled(), gc.get_freeze_count(), len(gc.get_objects(generation=0)) < 1000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True", "0", "True"]


def test_commands_load_what_they_need(tmp_path: Path) -> None:
    """A run of a saved model needs no compiler, and dims that are names no algebra."""
    saved = tmp_path / "model.dvm"
    dvm_graph.optimize(tiny_path("mobilenet")).save(saved)
    run = f"from dvm_graph.cli import main; main(['run', {str(saved)!r}], standalone_mode=False)"
    assert loaded_by(run) == {"click", "ml_dtypes", "numpy", "rich"}


def _names() -> dict[str, str]:
    """The public names of the stub and their modules, as a type checker sees them."""
    statements = ast.parse(STUB.read_text(encoding="utf-8")).body
    return {
        alias.asname or "": str(statement.module)
        for statement in statements
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


@pytest.mark.parametrize("name", _names())
def test_public_names(name: str) -> None:
    module = importlib.import_module(_names()[name])
    value = getattr(dvm_graph, name)
    assert value is getattr(module, name)
    assert name in dvm_graph.__all__
    assert name in dir(dvm_graph)


def test_no_public_name_is_a_module_of_the_package() -> None:
    """Importing the module would put it in the name's place, but where the name is the module."""
    modules = {path.stem for path in STUB.parent.iterdir()}
    public = {name for name, home in _names().items() if home == "dvm_graph"}
    assert modules & set(dvm_graph.__all__) == public == {"xp"}


def test_arrays_need_no_compiler_of_models() -> None:
    assert loaded_by("import dvm_graph; dvm_graph.xp.ones(3)") == {"ml_dtypes", "numpy"}


def test_star_import() -> None:
    names: dict[str, Any] = {}
    exec("from dvm_graph import *", names)
    assert set(_names()) <= set(names)


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="'dvm_graph' has no attribute 'optimise'"):
        _ = dvm_graph.optimise
    with pytest.raises(ImportError, match="optimise"):
        exec("from dvm_graph import optimise")


@pytest.mark.parametrize("value", [dvm_graph.Options(cores=1), dvm_graph.InputError("no")])
def test_pickles(value: Any) -> None:
    assert type(pickle.loads(pickle.dumps(value))) is type(value)
    assert pickle.loads(pickle.dumps(type(value))) is type(value)
