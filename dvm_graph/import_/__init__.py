"""ONNX in, and vendor partitions out; the only importer of `onnx`."""

from dvm_graph.import_.importer import import_onnx
from dvm_graph.import_.loading import ImportedModel, load_model

__all__ = [
    "ImportedModel",
    "import_onnx",
    "load_model",
]
