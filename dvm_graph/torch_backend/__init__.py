"""dvm_graph under torch: a backend for `torch.compile` and fusion of eager operators (docs/torch.md).

torch.compile(module, backend="dvm", dynamic=True)

with dvm_graph.torch_backend.eager():
    ...
"""

from dvm_graph.torch_backend.backend import dvm
from dvm_graph.torch_backend.eager import eager

__all__ = ["dvm", "eager"]
