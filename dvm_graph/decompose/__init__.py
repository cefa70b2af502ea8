"""ONNX operators to basic operators, a file per family."""

from dvm_graph.decompose import (  # noqa: F401 - enters their decompositions into the table
    activations,
    attention,
    block_quantized,
    casts,
    classical,
    contrib_attention,
    contrib_fused,
    contrib_group_query,
    contrib_quantized,
    deformable_convolution,
    dequantized_products,
    einsum,
    elementwise,
    grid_sampling,
    host,
    indexing,
    normalization,
    pooling,
    quantized_products,
    quantized_recurrent,
    recurrent,
    reductions,
    region_pooling,
    resizing,
    sequences,
    shapes,
    slicing,
    softmax,
    sources,
    spectral,
    transposed_convolution,
)
from dvm_graph.decompose.walk import decompose

__all__ = ["decompose"]
