"""ONNX in, and vendor partitions out; the only importer of `onnx`."""

from dvm_graph.import_.constants import compute_vendor
from dvm_graph.import_.functions import expand_function, takes
from dvm_graph.import_.importer import import_onnx
from dvm_graph.import_.inference import infer_vendor
from dvm_graph.import_.loading import load_model
from dvm_graph.import_.partition import (
    cast_outputs,
    has_dilated_pools,
    lacks_zero_point,
    opset_probes,
    partition_model,
    partition_models,
    partition_opset,
)
from dvm_graph.import_.tensors import dtype_of
from dvm_graph.import_.types import (
    are_strings,
    casts_to_strings,
    declared_shape,
    rank_of_strings,
    string_type,
    type_text,
)
from dvm_graph.import_.vendor_library import cuts_sums_of_bytes, import_whole, whole_model

__all__ = [
    "are_strings",
    "cast_outputs",
    "casts_to_strings",
    "compute_vendor",
    "cuts_sums_of_bytes",
    "declared_shape",
    "dtype_of",
    "expand_function",
    "has_dilated_pools",
    "import_onnx",
    "import_whole",
    "infer_vendor",
    "load_model",
    "opset_probes",
    "lacks_zero_point",
    "partition_model",
    "partition_models",
    "partition_opset",
    "rank_of_strings",
    "string_type",
    "takes",
    "type_text",
    "whole_model",
]
