"""All operators of torch that are translated: the table, when the families have filled it."""

from dvm_graph.torch_backend import (  # noqa: F401 - enter their operators into the table
    adaptive_pools,
    bags,
    elementwise,
    pools,
    products,
    reductions,
    resizing,
    resizing_gradients,
    scattering,
    special,
    strided,
    views,
    windows,
)
from dvm_graph.torch_backend.translation import TABLE, is_operator, is_supported

__all__ = ["TABLE", "is_operator", "is_supported"]
