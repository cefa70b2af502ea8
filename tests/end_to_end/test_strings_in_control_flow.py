"""Strings that control flow, sequences and optional values carry: on onnxruntime, between operators of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dvm_graph
from tests.decompose.reference import session

HEAD = '<ir_version: 9, opset_import: ["" : 20, "ai.onnx.ml" : 3]>'
ENCODE = 'ai.onnx.ml.LabelEncoder<keys_strings = ["a", "aa"], values_int64s = [3, 4]>'
MODELS = {
    "branches": """
        (string[n] x, bool c) => (string[m] y) {
          y = If (c) <then_branch = a () => (string[p] u) { u = StringConcat(x, x) },
                      else_branch = b () => (string[q] v) { v = Identity(x) }> }""",
    "branches that look up": """
        (string[n] x, bool c) => (int64[m] y) {
          t = StringConcat(x, x)
          y = If (c) <then_branch = a () => (int64[p] u) { u = ENCODE(t) },
                      else_branch = b () => (int64[q] v) { v = ENCODE(x) }> }""",
    "a state": """
        (string[n] x, int64 t) => (string[m] y) {
          c = Constant<value = bool {1}>()
          y = Loop (t, c, x) <body = b (int64 i, bool k, string[p] s) => (bool l, string[q] r) {
            l = Identity(k) r = StringConcat(s, x) }> }""",
    "rows": """
        (string[n] x, int64 t) => (int64[m] y, string[a, b] z) {
          c = Constant<value = bool {1}>()
          o = Constant<value = int64 {0}>()
          y, z = Loop (t, c, o) <body = b (int64 i, bool k, int64 s) => (bool l, int64 u, string[q] r) {
            l = Identity(k) e = Size(x) u = Add(s, e) w = Cast<to = 8>(u) r = StringConcat(x, w) }> }""",
    "turns that look up": """
        (string[n] x, int64 t) => (int64[m] y) {
          c = Constant<value = bool {1}>()
          e = ENCODE(x)
          y = Loop (t, c, e) <body = b (int64 i, bool k, int64[p] s) => (bool l, int64[q] r) {
            l = Identity(k) f = ENCODE(x) r = Add(s, f) }> }""",
    "a part of a sequence": """
        (string[n] x, int64 t) => (string[m] y) {
          s = SequenceConstruct(x, x, x, x) a = SequenceAt(s, t) y = StringConcat(a, x) }""",
    "a join": """
        (string[n] x) => (string[m] y) {
          w = StringConcat(x, x) s = SequenceConstruct(w, x) y = ConcatFromSequence<axis = 0>(s) }""",
    "a split": """
        (string[n] x) => (string[m] y, int64 z) {
          o = Constant<value = int64 {0}>()
          s = SplitToSequence(x) q = SequenceAt(s, o) y = StringConcat(q, q) z = SequenceLength(s) }""",
    "a sequence": """
        (string[n] x) => (seq(string[k]) y) { w = StringConcat(x, x) y = SequenceConstruct(w, x) }""",
    "an optional value": """
        (string[n] x) => (string[m] y) {
          w = StringConcat(x, x) o = Optional(w) y = OptionalGetElement(o) }""",
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_strings_are_carried(name: str) -> None:
    proto = onnx.parser.parse_model(f"{HEAD} g {MODELS[name].replace('ENCODE', ENCODE)}")
    names = [port.name for port in proto.graph.input]
    compiled, reference = dvm_graph.optimize(proto), session(proto)
    for texts, turns in ((["a", "é", "aa"], 3), (["b"], 1), (["", "a"], 2)):
        given: dict[str, Any] = {
            "x": np.array(texts, object),
            "c": np.array(turns > 1),
            "t": np.array(turns),
        }
        feeds = {key: given[key] for key in names}
        for got, want in zip(compiled.run(feeds), reference.run(None, feeds), strict=True):
            assert type(got) is type(want)
            for one, other in (
                zip(got, want, strict=True) if isinstance(want, list) else [(got, want)]
            ):
                assert one.shape == other.shape
                np.testing.assert_array_equal(one, other)
