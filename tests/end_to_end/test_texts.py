"""Operators that make strings of strings, count, match, compare or read them, beside onnxruntime."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from tests.decompose.reference import session
from tests.end_to_end.categories import assert_agrees, assert_same

TEXT = TensorProto.STRING
WORDS = [
    "",
    "a",
    "A",
    "é",
    "É",
    "the",
    "The",
    "ab",
    "日本",
    "ß",
    "\u017f",
    "İ",
    "a\0b",
    "x y",
    " a  b ",
    ",",
    "a,b,,c",
    "😀x",
]


def strings(*texts: Any) -> np.ndarray[Any, Any]:
    return np.array(texts, object)


def drawn(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).choice(np.array(WORDS, object), shape)


def text_model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[Any] | None]],
    outputs: list[str],
    constants: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *about) for name, about in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()],
    )
    domains = {"": 20, "ai.onnx.ml": 3, "com.microsoft": 1}
    imports = [helper.make_opsetid(*about) for about in domains.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def of_one(
    op: str, rank: int, results: int = 1, element: int = TEXT, **attributes: Any
) -> onnx.ModelProto:
    domain = "com.microsoft" if op == "Tokenizer" else ""
    names = [f"y{at}" for at in range(results)]
    node = helper.make_node(op, ["x"], names, domain=domain, **attributes)
    return text_model([node], {"x": (element, ["n", "k"][:rank])}, names)


# LOWER and UPPER need a locale that onnxruntime finds: the C library's own is everywhere.
NORMALIZERS: list[dict[str, Any]] = [
    {},
    {"is_case_sensitive": 1},
    {"is_case_sensitive": 1, "stopwords": ["a", "the", ""]},
    {"is_case_sensitive": 1, "stopwords": WORDS},
    {"case_change_action": "LOWER", "locale": "C.UTF-8"},
    {"case_change_action": "UPPER", "locale": "C.UTF-8"},
    {"case_change_action": "LOWER", "locale": "C"},
    {"case_change_action": "UPPER", "locale": "C.UTF-8", "stopwords": ["é", "THE"]},
    {"stopwords": ["É", "s", "i", "SS"], "locale": "C.UTF-8"},
    {
        "case_change_action": "LOWER",
        "is_case_sensitive": 1,
        "stopwords": ["The"],
        "locale": "C.UTF-8",
    },
]


@pytest.mark.parametrize("attributes", NORMALIZERS)
def test_case_and_words_that_are_left_out(attributes: dict[str, Any]) -> None:
    attributes = {"locale": "C.UTF-8"} | attributes
    feeds = [{"x": strings(*WORDS)}, {"x": strings("The")}, {"x": drawn(40)}, {"x": drawn(0)}]
    assert_agrees(of_one("StringNormalizer", 1, **attributes), *feeds)
    rows = of_one("StringNormalizer", 2, **attributes)
    rows.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    assert_agrees(rows, {"x": drawn(1, 5)}, {"x": drawn(1, 0)})


def test_every_character_changes_as_in_the_locale() -> None:
    characters = [chr(at) for at in range(1, 0x1F000) if not 0xD800 <= at < 0xE000]
    for action in ("LOWER", "UPPER"):
        model = of_one("StringNormalizer", 1, case_change_action=action, locale="C.UTF-8")
        assert_agrees(model, {"x": strings(*characters)})


def test_the_default_locale_is_that_of_english() -> None:
    """Whether the system has it or not: its characters are those of the C library's own."""
    model = dvm_graph.optimize(of_one("StringNormalizer", 1, case_change_action="LOWER"))
    (y,) = model.run({"x": strings("ÀÉ", "İI", "ẞ", "Σ")})
    assert y.tolist() == ["àé", "ii", "ß", "\u03c3"]


def test_a_locale_that_the_system_lacks() -> None:
    of_lower = of_one("StringNormalizer", 1, case_change_action="LOWER", locale="xx_XX.nowhere")
    with pytest.raises(dvm_graph.UnsupportedError, match="no locale xx_XX"):
        dvm_graph.optimize(of_lower)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Tokenizer", {"pad_value": b"\xff", "tokenexp": "a"}),
        ("Tokenizer", {"pad_value": "", "tokenexp": b"a|\xff"}),
        ("StringNormalizer", {"locale": b"\xff", "case_change_action": "LOWER"}),
        ("StringSplit", {"delimiter": b"\xff"}),
        ("RegexFullMatch", {"pattern": b"\xff"}),
    ],
)
def test_attributes_that_are_no_text(op: str, attributes: dict[str, Any]) -> None:
    """They are onnxruntime's affair, which refuses some."""
    if op == "Tokenizer":
        attributes = {"mark": 0, "mincharnum": 1} | attributes
    model = of_one(op, 1, 1 + (op == "StringSplit"), **attributes)
    with pytest.raises(dvm_graph.UnsupportedError, match=r"vendor library|onnxruntime refuses"):
        dvm_graph.optimize(model, strict=True)


CUTS: list[dict[str, Any]] = [
    {"tokenexp": "."},
    {"separators": [""]},
    {"separators": [" "]},
    {"separators": [" ", ",", "a"]},
    {"separators": ["[ ,]+", "\\.|b"]},
    {"tokenexp": "[a-zA-Z0-9_]+"},
    {"tokenexp": "\\w{2,}"},
    {"tokenexp": "[^ ]+", "mincharnum": 2},
    {"tokenexp": "[é-ÿ日]|a.?", "mincharnum": 1},
    {"tokenexp": "[a-z]*"},
    {"tokenexp": "(?:a|ab)(?:c|b)?"},
    {"separators": [" "], "mincharnum": 3},
]


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize("cut", CUTS)
def test_text_is_cut(cut: dict[str, Any], mark: int) -> None:
    attributes = {"mark": mark, "pad_value": "<é>", "mincharnum": 1} | cut
    vectors = [strings(*WORDS), strings(""), strings("abc ab a"), strings(",", " "), drawn(30)]
    assert_agrees(of_one("Tokenizer", 1, **attributes), *({"x": x} for x in vectors))
    matrices = [drawn(3, 2), drawn(1, 4), strings(["", "b"])]
    assert_agrees(of_one("Tokenizer", 2, **attributes), *({"x": x} for x in matrices))


def test_nothing_is_cut_to_nothing() -> None:
    """Of the rank that the operator has else, and onnxruntime lacks an axis."""
    attributes = {"mark": 1, "pad_value": "", "mincharnum": 1, "tokenexp": "a"}
    model = dvm_graph.optimize(of_one("Tokenizer", 2, **attributes))
    for shape in ((0, 2), (2, 0)):
        (y,) = model.run({"x": np.empty(shape, object)})
        assert y.shape == (*shape, 0)


@pytest.mark.parametrize(
    "expression", ["\\ba", "(?i)a", "a*?b", "[[:alpha:]]+", "\\pL", "[a-z]*9", "^a"]
)
def test_expressions_that_onnxruntime_searches(expression: str) -> None:
    attributes = {"mark": 0, "pad_value": "#", "mincharnum": 1, "tokenexp": expression}
    feeds = [{"x": strings("ab abc9", "A a9", "")}, {"x": drawn(9)}]
    assert_agrees(of_one("Tokenizer", 1, **attributes), *feeds, native=False)


@pytest.mark.parametrize("attributes", [
    {}, {"delimiter": " "}, {"delimiter": ","}, {"delimiter": "ab"}, {"maxsplit": 1}, {"maxsplit": 0},
    {"delimiter": ",", "maxsplit": 2}, {"delimiter": "é", "maxsplit": -1},
])  # fmt: skip
def test_strings_are_split(attributes: dict[str, Any]) -> None:
    more = strings(" a  b  c ", "  ", "a,b,,c,", ",a", "abab", "\ta\nb c", "日é本é")
    for rank, feeds in ((1, (strings(*WORDS), more, drawn(0))), (2, (drawn(4, 3), drawn(0, 2)))):
        model = of_one("StringSplit", rank, 2, **attributes)
        assert_agrees(model, *({"x": x} for x in feeds))


@pytest.mark.parametrize("pattern", [
    "a.*", "^a.*$", "[a-z ]*", "(?:ab)+|é", "\\w+", "[^\\x2c]*", "a{2,3}?", ".", "",
])  # fmt: skip
def test_strings_are_matched(pattern: str) -> None:
    native = pattern not in ("[^\\x2c]*", "a{2,3}?")
    feeds = [{"x": drawn(4, 5)}, {"x": drawn(0, 2)}, {"x": drawn(1, 1, seed=2)}]
    assert_agrees(of_one("RegexFullMatch", 2, pattern=pattern), *feeds, native=native)


@pytest.mark.parametrize(
    "shapes", [((4,), (4,)), ((3, 2), (2,)), ((1, 2), (3, 1)), ((0,), (1,)), ((2,), (3,))]
)
@pytest.mark.parametrize("op", ["StringConcat", "Equal"])
def test_two_strings(op: str, shapes: Any) -> None:
    inputs = {
        n: (TEXT, [f"{n}{at}" for at in range(len(s))]) for n, s in zip("xz", shapes, strict=True)
    }
    model = text_model([helper.make_node(op, ["x", "z"], ["y"])], inputs, ["y"])
    assert_agrees(model, {n: drawn(*s, seed=1) for n, s in zip("xz", shapes, strict=True)})


GRAMS: dict[str, Any] = {
    "ngram_counts": [0, 4, 10],
    "ngram_indexes": [2, 0, 5, 7, 6, 1, 3, 9],
    "pool_strings": ["a", "é", "", "the", "a", "the", "the", "a", "é", "é", "a", "a", "the"],
    "weights": [0.5, 2.0, -1.0, 3.0, 0.25, 1.5, 4.0, 0.1],
}


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("lengths", [(1, 1, 0), (1, 2, 0), (2, 3, 1), (1, 3, 2), (3, 3, 0)])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("element", [TEXT, TensorProto.INT32, TensorProto.INT64])
def test_n_grams_are_counted(mode: str, lengths: Any, weighted: bool, element: int) -> None:
    names = ("min_gram_length", "max_gram_length", "max_skip_count")
    attributes = GRAMS | dict(zip(names, lengths, strict=True)) | {"mode": mode}
    words = attributes["pool_strings"]
    if not weighted:
        del attributes["weights"]
    numbers = {word: at - 1 for at, word in enumerate(dict.fromkeys(words))}
    if element != TEXT:
        del attributes["pool_strings"]
        attributes["pool_int64s"] = [numbers[word] for word in words]
    rng, feeds = np.random.default_rng(0), []
    for shape in ((7,), (30,), (0,), (3, 9), (1, 1), (2, 0), (0, 2)):
        x: Any = rng.choice(strings(*numbers, "zz"), shape)
        if element != TEXT:
            dtype = helper.tensor_dtype_to_np_dtype(element)
            x = np.array([numbers.get(word, 9) for word in x.reshape(-1)], dtype).reshape(shape)
        feeds.append(x)
    for rank in (1, 2):
        model = of_one("TfIdfVectorizer", rank, element=element, **attributes)
        assert_agrees(model, *({"x": x} for x in feeds if x.ndim == rank), rtol=1e-6)


def test_n_grams_of_equal_columns_add_up() -> None:
    attributes = GRAMS | {"ngram_indexes": [0, 1, 0, 1, 0, 1, 0, 1], "mode": "TFIDF"}
    lengths = {"min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 0}
    x = strings("a", "the", "the", "a", "é", "é", "")
    assert_agrees(of_one("TfIdfVectorizer", 1, **attributes, **lengths), {"x": x}, rtol=1e-6)


def test_any_number_of_items_is_skipped() -> None:
    """Of a row of few: there is nothing to look at behind what is skipped."""
    lengths = {"min_gram_length": 2, "max_gram_length": 3, "mode": "TF"}
    x = {"x": strings("a", "zz", "the", "the", "a", "é", "é")}
    far = of_one("TfIdfVectorizer", 1, **GRAMS, **lengths, max_skip_count=2**63 - 1)
    near = of_one("TfIdfVectorizer", 1, **GRAMS, **lengths, max_skip_count=10)
    (want,) = session(near).run(None, x)
    assert_same(dvm_graph.optimize(far, strict=True).run(x)[0], want)


def test_n_grams_without_columns_are_refused() -> None:
    """Onnxruntime ends the process when it meets one."""
    lengths = {"min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 0, "mode": "TF"}
    attributes = GRAMS | lengths | {"ngram_indexes": [0, 1]}
    with pytest.raises(dvm_graph.ModelError, match="n-grams without columns"):
        dvm_graph.optimize(of_one("TfIdfVectorizer", 1, **attributes))


NUMBERS = [
    "1",
    "-2",
    "1.5",
    "1e3",
    " 3",
    "3 ",
    "+5",
    "0x10",
    "inf",
    "NaN",
    "-INF",
    "300",
    "1_0",
    "1e-50",
]
REFUSED = ["", "abc", "true", "1e400", "\uff19", "é" * 60]
READ = ["FLOAT", "DOUBLE", "FLOAT16", "INT8", "INT32", "INT64", "UINT8", "UINT64", "BOOL"]


@pytest.mark.parametrize("to", READ)
def test_strings_are_read_as_numbers(to: str) -> None:
    model = of_one("Cast", 1, to=TensorProto.DataType.Value(to))
    assert_agrees(model, *({"x": strings(text)} for text in (*NUMBERS, *REFUSED)), {"x": drawn(0)})


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "i4", "i8", "u1", "u8", "?"])
def test_numbers_are_written_as_strings(dtype: str) -> None:
    given = [0, 1, -1, 0.1, 1 / 3, 1e10, 1e-7, 123456789, -0.0, np.nan, np.inf, -np.inf, 65504]
    with np.errstate(all="ignore"):
        x = np.array(given).astype(dtype)
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    assert_agrees(of_one("Cast", 1, element=element, to=TEXT), {"x": x}, {"x": x[:0]})


CONSTANTS = {
    "i": np.array([1, 0]), "pair": np.array([[1, 0], [0, 1]]), "deep": np.array(3), "off": strings("no", "é"),
    "keep": np.array([True, False, True]), "word": strings("a"), "more": strings(["q", ""], ["é", "a"]),
    "lengths": np.array([1, 2]), "rows": np.array([[0], [1]]), "one": np.array([1.0], np.float32),
}  # fmt: skip
MOVES: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "Shape": ("Shape", ["x"], {}),
    "Size": ("Size", ["x"], {}),
    "GatherElements": ("GatherElements", ["x", "pair"], {"axis": 1}),
    "GatherND": ("GatherND", ["x", "pair"], {}),
    "Compress": ("Compress", ["x", "keep"], {}),
    "Compress rows": ("Compress", ["x", "keep"], {"axis": 0}),
    "ReverseSequence": ("ReverseSequence", ["x", "lengths"], {}),
    "ScatterElements": ("ScatterElements", ["x", "pair", "more"], {}),
    "ScatterND": ("ScatterND", ["x", "rows", "more"], {}),
    "Where": ("Where", ["c", "x", "word"], {}),
    "Where of constants": ("Where", ["c", "more", "word"], {}),
    "Equal": ("Equal", ["x", "word"], {}),
    "Equal, turned": ("Equal", ["more", "x"], {}),
    "CastLike": ("CastLike", ["s", "one"], {}),
    "CastLike strings": ("CastLike", ["one", "x"], {}),
    "itself": ("Cast", ["x"], {"to": TEXT}),
    "OneHot": ("OneHot", ["j", "deep", "off"], {}),
    "Unique": ("Unique", ["x"], {}),
    "Unique, as they come": ("Unique", ["x"], {"sorted": 0}),
    "Unique rows": ("Unique", ["x"], {"axis": 0}),
}


@pytest.mark.parametrize("name", MOVES)
def test_operators_of_any_type(name: str) -> None:
    """Onnxruntime ends the process over no rows of strings that are to be unique."""
    op, operands, attributes = MOVES[name]
    results = ["y", "first", "place", "count"] if op == "Unique" else ["y"]
    inputs: dict[str, tuple[int, list[Any] | None]] = {
        "x": (TEXT, ["n", "k"]), "c": (TensorProto.BOOL, ["n", "k"]),
        "s": (TEXT, ["n"]), "j": (TensorProto.INT64, ["n"]),
    }  # fmt: skip
    inputs = {n: about for n, about in inputs.items() if n in operands}
    constants = {n: v for n, v in CONSTANTS.items() if n in operands}
    model = text_model(
        [helper.make_node(op, operands, results, **attributes)], inputs, results, constants
    )
    feeds = []
    for n, k in ((2, 2), (3, 2), *((0, 2), (2, 0)) * (op != "Unique")):
        rng = np.random.default_rng(n)
        given = {"x": drawn(n, k), "c": rng.random((n, k)) < 0.5, "j": rng.integers(-3, 3, n)}
        given["s"] = rng.choice(strings(*NUMBERS[:6]), n)
        feeds.append({name: array for name, array in given.items() if name in inputs})
    assert_agrees(model, *feeds)


def pipeline(rank: int) -> onnx.ModelProto:
    """As scikit-learn's are exported."""
    words = ["a", "ab", "the", "x", "é"]
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["r"]),
        helper.make_node("StringNormalizer", ["r"], ["n"], case_change_action="LOWER", is_case_sensitive=0, locale="C.UTF-8"),
        helper.make_node("Tokenizer", ["n"], ["t"], domain="com.microsoft", mark=0, mincharnum=1, pad_value="#", tokenexp="[a-zé]+"),
        helper.make_node("Flatten", ["t"], ["f"]),
        helper.make_node("TfIdfVectorizer", ["f"], ["v"], mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=0, ngram_counts=[0, 5], ngram_indexes=[*range(7)], pool_strings=[*words, "a", "ab", "the", "x"]),
        helper.make_node("Mul", ["v", "idf"], ["w"]),
        helper.make_node("Normalizer", ["w"], ["u"], domain="ai.onnx.ml", norm="L2"),
        helper.make_node("LinearClassifier", ["u"], ["label", "scores"], domain="ai.onnx.ml", coefficients=np.random.default_rng(0).standard_normal(21).tolist(), intercepts=[0.1, 0.2, 0.3], classlabels_strings=["p", "q", "é"], post_transform="SOFTMAX"),
    ]  # fmt: skip
    constants = {"flat": np.array([-1]), "idf": np.linspace(1, 2, 7, dtype=np.float32)}
    return text_model(nodes, {"x": (TEXT, ["n", 1][:rank])}, ["label", "scores"], constants)


@pytest.mark.parametrize("rank", [1, 2])
def test_text_is_classified(rank: int) -> None:
    model = pipeline(rank)
    feeds = [drawn(n, 1)[:, 0] if rank == 1 else drawn(n, 1) for n in (1, 40, 0)]
    assert_agrees(model, *({"x": x} for x in feeds), rtol=1e-5)
    assert ("TextsAt" in str(dvm_graph.optimize(model).report())) == (rank == 2)


def test_what_is_fed_for_text() -> None:
    """Lists, arrays of text, of bytes and of things, those that lie across memory, and bytes that are no text."""
    model = pipeline(1)
    for x in (
        ["The ab", "é"],
        np.array(["The ab", "É"]),
        np.array([b"a", "é".encode()], "S4"),
        strings(None, 1.5, b"a"),
        drawn(9)[::2],
    ):
        assert_agrees(model, {"x": x}, rtol=1e-5)
    broken = np.array([b"\xff", b"a"])
    for each in (model, of_one("Tokenizer", 1, mark=0, mincharnum=1, pad_value="", tokenexp=".")):
        with pytest.raises(dvm_graph.InputError, match="UTF-8"):
            dvm_graph.optimize(each).run({"x": broken})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            np.ones((2, 2), np.float32),
            "input x is float32, but the model wants an array of strings",
        ),
        (np.ones((2, 2), np.int64), "input x is int64"),
        (
            strings("a"),
            r"input x has rank 1 \(shape \[1\]\), but the model wants strings of rank 2",
        ),
        (np.array(["a"]), "input x has rank 1"),
        (["a", "b"], "input x has rank 1"),
        ([["a", "b"], ["c"]], "input x has rank 1"),
        (strings([["a"]]), "input x has rank 3"),
        ("ab", "input x is a str"),
        (3, "input x is a int"),
        (None, "input x is a NoneType"),
        ({"a": 1}, "input x is a dict"),
    ],
)
@pytest.mark.parametrize("op", ["Transpose", "StringConcat", "LabelEncoder", "vendor"])
def test_what_is_no_strings_of_the_rank_is_told_by_name(op: str, given: Any, told: str) -> None:
    """Whoever reads it: an operator that moves, makes or looks up strings, or onnxruntime."""
    about = {"keys_strings": ["a"], "values_int64s": [1], "domain": "ai.onnx.ml"}
    node = {
        "Transpose": helper.make_node("Transpose", ["x"], ["y"]),
        "StringConcat": helper.make_node("StringConcat", ["x", "x"], ["y"]),
        "LabelEncoder": helper.make_node("LabelEncoder", ["x"], ["y"], **about),
        "vendor": helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="\\ba"),
    }[op]
    model = dvm_graph.optimize(text_model([node], {"x": (TEXT, ["n", "k"])}, ["y"]))
    with pytest.raises(dvm_graph.InputError, match=told):
        model.run({"x": given})
    model.run({"x": strings(["a", "b"])})


class _Untold:
    def __str__(self) -> str:
        raise ValueError("none")


def test_what_has_no_text_is_told_in_a_line() -> None:
    model = dvm_graph.optimize(of_one("RegexFullMatch", 1, pattern="a"))
    with pytest.raises(dvm_graph.InputError, match=r"which these are not: ValueError: none$"):
        model.run({"x": strings("a", _Untold())})


def _mixed(depth: int) -> onnx.ModelProto:
    """Strings that are told apart from themselves, and put back together, again and again."""
    nodes: list[onnx.NodeProto] = []
    x = "x"
    for at in range(depth):
        about: dict[str, Any] = {"is_case_sensitive": 1, "stopwords": ["zz"]}
        nodes += [
            helper.make_node("StringNormalizer", [x], [f"a{at}"], **about),
            helper.make_node("Concat", [x, f"a{at}"], [f"b{at}"], axis=0),
            helper.make_node("Slice", [f"b{at}", "start", "end"], [f"c{at}"]),
            helper.make_node("StringNormalizer", [f"c{at}"], [f"x{at}"], **about),
        ]
        x = f"x{at}"
    constants = {"start": np.array([0]), "end": np.array([2])}
    return text_model(nodes, {"x": (TEXT, ["n"])}, [x], constants)


def test_strings_keep_memory_that_they_share_once() -> None:
    """Else each of the levels doubles what is kept."""
    took, x = [], {"x": strings("a", "b")}
    for depth in (11, 22):
        proto = _mixed(depth)
        model = dvm_graph.optimize(proto)
        assert_same(model.run(x)[0], session(proto).run(None, x)[0])
        start = time.perf_counter()
        model.run(x)
        took.append(time.perf_counter() - start)
    assert took[1] < 50 * took[0]


def test_saved_models_of_text(tmp_path: Any) -> None:
    model = dvm_graph.optimize(pipeline(1))
    model.save(tmp_path / "m.dvm")
    x = {"x": strings("The ab x", "é a ab", "")}
    for got, want in zip(dvm_graph.load(tmp_path / "m.dvm").run(x), model.run(x), strict=True):
        assert_same(got, want)


def test_threads_share_a_model_of_text() -> None:
    proto = pipeline(1)
    model, reference, wrong = dvm_graph.optimize(proto), session(proto), []

    def work(seed: int) -> None:
        for turn in range(30):
            x = {"x": drawn(1 + (seed + turn) % 7, seed=seed)}
            for got, want in zip(model.run(x), reference.run(None, x), strict=True):
                if got.shape != want.shape or not (
                    np.allclose(got, want, atol=1e-5)
                    if got.dtype != object
                    else (got == want).all()
                ):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
