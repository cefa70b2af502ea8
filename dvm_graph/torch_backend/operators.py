"""All operators of torch that are translated: those of the families."""

from dvm_graph.torch_backend import (  # noqa: F401 - enter their operators into the table
    elementwise,
    pools,
    products,
    reductions,
    views,
    windows,
)
