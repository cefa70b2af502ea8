"""ONNX operators to basic operators, a file per family."""

from dvm_graph.decompose.walk import decompose

__all__ = ["decompose"]
