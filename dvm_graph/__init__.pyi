"""The public names, and where they come from."""

from dvm_graph import xp as xp
from dvm_graph.comparison import Comparison as Comparison
from dvm_graph.comparison import compare as compare
from dvm_graph.description import TensorInfo as TensorInfo
from dvm_graph.errors import CacheWarning as CacheWarning
from dvm_graph.errors import CancelledError as CancelledError
from dvm_graph.errors import CompileError as CompileError
from dvm_graph.errors import ContradictionError as ContradictionError
from dvm_graph.errors import DamagedError as DamagedError
from dvm_graph.errors import DvmError as DvmError
from dvm_graph.errors import ExecutionError as ExecutionError
from dvm_graph.errors import ExternalDataError as ExternalDataError
from dvm_graph.errors import InputError as InputError
from dvm_graph.errors import LimitError as LimitError
from dvm_graph.errors import MiscompileError as MiscompileError
from dvm_graph.errors import ModelError as ModelError
from dvm_graph.errors import OutOfMemoryError as OutOfMemoryError
from dvm_graph.errors import RescueWarning as RescueWarning
from dvm_graph.errors import ShapeError as ShapeError
from dvm_graph.errors import StrictError as StrictError
from dvm_graph.errors import UnsupportedError as UnsupportedError
from dvm_graph.ir import ModelMetadata as ModelMetadata
from dvm_graph.kernel_builder import Kernel as Kernel
from dvm_graph.kernel_builder import KernelBuilder as KernelBuilder
from dvm_graph.kernel_builder import kernel as kernel
from dvm_graph.model import Model as Model
from dvm_graph.model import load as load
from dvm_graph.model import optimize as optimize
from dvm_graph.options import FusionLimits as FusionLimits
from dvm_graph.options import Options as Options
from dvm_graph.runtime import RunOptions as RunOptions
from dvm_graph.session import InferenceSession as InferenceSession
from dvm_graph.session import IOBinding as IOBinding

__version__: str
