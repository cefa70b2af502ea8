"""What exporters write beside a node, read when somebody asks.

In: a serialised NodeProto. Out: its `metadata_props` as a mapping. Reports name modules by them; exporters write ten
entries for each node, a tenth of the time of compiling a small model if each was read.

Invariant: bytes that are no text are read as what stands for them, and refuse no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx


class NodeMetadata(Mapping[str, str]):
    def __init__(self, source: bytes) -> None:
        self._source = source
        self._entries: dict[str, str] | None = None

    def __getitem__(self, key: str) -> str:
        return self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> dict[str, str]:
        if self._entries is None:
            node = onnx.NodeProto.FromString(self._source)
            self._entries = {_text(entry.key): _text(entry.value) for entry in node.metadata_props}
        return self._entries


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")
