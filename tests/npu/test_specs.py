"""Spec files of parts: every number has a source, derived ones agree, and wrong files say what is wrong."""

from pathlib import Path

import pytest

from dvm_graph import _core
from dvm_graph.errors import InputError
from dvm_graph.npu.spec import SPECS, Spec, fields, find_spec, parts


@pytest.mark.parametrize("name", parts())
def test_every_number_has_a_source_and_lies_within_its_bounds(name: str) -> None:
    spec = find_spec(name)
    assert spec.name == name
    for number, entry in spec.numbers.items():
        assert entry.sources and all(len(source) > 20 for source in entry.sources), number
        assert not fields()[number].problem(entry.value), number
    needed = {number for number in fields() if not number.startswith("cycles.")}
    assert needed <= spec.numbers.keys()
    assert set(_core.model_numbers()) <= needed


@pytest.mark.parametrize("name", parts())
def test_derived_numbers_agree(name: str) -> None:
    spec = find_spec(name)
    multiply_adds = spec["cube.tile"] ** 3
    peak = spec["cores.cube"] * 2 * multiply_adds * spec["cores.frequency"]
    assert peak == pytest.approx(spec["cube.peak_bf16"], rel=0.01)
    assert spec["target.local_bytes"] <= spec["memory.vector_local"]
    assert spec["target.cores"] == spec["cores.vector"] == 2 * spec["cores.cube"]
    assert spec["target.cube_cores"] == spec["cores.cube"]
    for memory in ("l1", "l0a", "l0b", "l0c"):
        assert spec[f"target.{memory}_bytes"] == spec[f"memory.{memory}"]
    assert spec["target.shared_bytes"] == spec["memory.l2"]
    rates = spec["vector.bytes_per_cycle"] / 4 * spec["cores.frequency"]
    assert spec["costs.vector_elements"] == pytest.approx(rates)
    assert spec["costs.stage_start"] == spec["startup.vector_kernel"]
    products = multiply_adds * spec["cores.frequency"] * spec["cores.cube"]
    assert spec["costs.multiply_adds"] * spec["cores.vector"] == pytest.approx(products)
    share = spec["bandwidth.hbm"] / spec["cores.vector"]
    assert spec["costs.memory_read"] == pytest.approx(share, rel=0.01)
    ports = spec["cores.cube"] * spec["bandwidth.hbm_per_core"] * spec["cores.frequency"]
    middle = (0.6 + ports / spec["bandwidth.hbm"]) / 2
    assert spec["bandwidth.hbm_efficiency"] == pytest.approx(middle, abs=0.01)


def test_the_papers_example_of_tiling() -> None:
    """`add` on f16 [32, 1024] with 40 cores: 40 tiles of 832, the last one 320 (paper, figure of bytecode).

    The tile of the core's own choice is of f32, whose block of 32 B holds 8 elements, not 16.
    """
    spec = find_spec("ascend910b3")
    assert spec["target.cores"] == 40
    (tile,) = _core.choose_tile(spec.target, [32 * 1024], 0)
    assert 820 <= tile <= 832 and -(-32 * 1024 // tile) == 40


def test_the_example_of_the_documentation_is_a_part() -> None:
    page = (Path(__file__).parents[2] / "docs" / "npu.md").read_text(encoding="utf-8")
    text = page.split("```toml\n", 1)[1].split("```", 1)[0]
    assert 'base = "ascend910b2"' in text


def part(folder: Path, text: str) -> Spec:
    path = folder / "mine.toml"
    path.write_text('name = "mine"\nbase = "ascend910b2"\n' + text, encoding="utf-8")
    return find_spec(path)


SOURCES = '[sources]\nM = "measured on a board of ours"\n'


def test_a_file_may_stand_on_another(tmp_path: Path) -> None:
    text = 'hbm = { value = 3.2e12, unit = "B/s", source = ["M"], confidence = "high" }\n'
    spec = part(tmp_path, f"{SOURCES}[bandwidth]\n{text}")
    assert spec["bandwidth.hbm"] == 3.2e12
    assert spec.numbers["bandwidth.hbm"].sources == ("measured on a board of ours",)
    assert spec["memory.l2"] == find_spec("ascend910b2")["memory.l2"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[warp]\nx = { value = 1 }", "unknown section 'warp'"),
        ("[cores]\nwings = { value = 1 }", r"cores\.wings is no number of a part"),
        ("[cores]\ncube = 24", r"cores\.cube has to be a table"),
        (
            '[cores]\ncube = { value = "many", source = ["M"], confidence = "high" }',
            r"cores\.cube is 'many', but has to be a number",
        ),
        (
            '[cores]\ncube = { value = 23.5, source = ["M"], confidence = "high" }',
            "has to be a whole number",
        ),
        (
            '[bandwidth]\nhbm = { value = 1.6, source = ["M"], confidence = "high" }',
            r"bandwidth\.hbm is 1\.6, but has to lie between",
        ),
        (
            '[bandwidth]\nhbm = { value = 1e12, unit = "TB/s", source = ["M"], confidence = "high" }',
            "is in 'TB/s', but has to be in 'B/s'",
        ),
        ('[bandwidth]\nhbm = { value = 1e12, confidence = "high" }', "needs a list of names"),
        (
            '[bandwidth]\nhbm = { value = 1e12, source = ["Z"], confidence = "high" }',
            r"has source \['Z'\]",
        ),
        ('[bandwidth]\nhbm = { value = 1e12, source = ["M"] }', "needs a confidence"),
        (
            '[bandwidth]\nhbm = { value = 1e12, source = ["M"], confidence = "high", sauce = 1 }',
            "unknown entry 'sauce'",
        ),
        (
            '[cores]\nvector = { value = 47, source = ["M"], confidence = "high" }',
            "no multiple of cores.cube",
        ),
        (
            '[cores]\nvector = { value = 24, source = ["M"], confidence = "high" }',
            "target.cores is 48, but cores.vector is 24",
        ),
        (
            '[cycles]\nm_matmul = { value = 4, source = ["M"], confidence = "high" }',
            r"cycles\.m_matmul is no number of a part",
        ),
        ("[cores", "cannot be read"),
    ],
)
def test_wrong_files_say_what_is_wrong(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        part(tmp_path, SOURCES + text)


def test_missing_numbers_and_files(tmp_path: Path) -> None:
    (tmp_path / "bare.toml").write_text('name = "bare"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"has no cores\.cube"):
        find_spec(tmp_path / "bare.toml")
    (tmp_path / "other.toml").write_text('name = "bare"\n', encoding="utf-8")
    with pytest.raises(InputError, match="has to be 'other'"):
        find_spec(tmp_path / "other.toml")
    (tmp_path / "lost.toml").write_text('name = "lost"\nbase = "tpu"\n', encoding="utf-8")
    with pytest.raises(InputError, match="base is 'tpu'"):
        find_spec(tmp_path / "lost.toml")
    with pytest.raises(InputError, match="or one of ascend910b2, ascend910b3"):
        find_spec("ascend9000")


def test_changed_numbers_are_held_to_their_bounds() -> None:
    spec = find_spec("ascend910b2")
    assert spec.changed("faster", cores__frequency=2e9)["cores.frequency"] == 2e9
    with pytest.raises(InputError, match="no number"):
        spec.changed("odd", cores__wings=2)
    with pytest.raises(InputError, match="has to lie between"):
        spec.changed("odd", cores__frequency=2)


def test_all_files_are_listed() -> None:
    assert (
        set(parts())
        == {path.stem for path in SPECS.glob("*.toml")}
        >= {"ascend910b2", "ascend910b3"}
    )
