"""Dims as sympy's expressions, for what sympy knows to do with them: to solve, to simplify, to differentiate, to print.

In: a dim. Out: a sympy expression over non-negative integer symbols of the same names, equal for all values at which nothing
is divided by 0. sympy is loaded here, at the first call: no model needs it to be compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dvm_graph.symbolic import expressions as forms

if TYPE_CHECKING:
    import sympy


def to_sympy(dim: Any) -> sympy.Expr:
    """The dim as an expression of sympy's; a dim that is looked into no more (`forms.Opaque`) is what it stands for."""
    import sympy

    if isinstance(dim, int):
        return sympy.Integer(dim)
    if isinstance(dim, forms.Symbol):
        return sympy.Symbol(dim.name, integer=True, nonnegative=True)
    if isinstance(dim, forms.Opaque):
        return to_sympy(dim.definition)
    args = [to_sympy(arg) for arg in dim.args]
    match dim:
        case forms.Add():
            return sympy.Add(*args)
        case forms.Mul():
            return sympy.Mul(*args)
        case forms.Pow():
            return sympy.Pow(*args)
        case forms.FloorDiv():
            return sympy.floor(args[0] / args[1])
        case forms.Mod():
            return sympy.Mod(*args)
        case forms.Min():
            return sympy.Min(*args)
        case forms.Max():
            return sympy.Max(*args)
        case forms.Equal():
            return sympy.Piecewise((1, sympy.Eq(*args)), (0, True))
        case forms.Less():
            return sympy.Piecewise((1, sympy.Lt(*args)), (0, True))
        case forms.Select():
            return sympy.Piecewise((args[1], sympy.Eq(args[0], 1)), (args[2], True))
        case forms.BroadcastDim():
            *others, last = args
            return sympy.Piecewise(*((arg, sympy.Ne(arg, 1)) for arg in others), (last, True))
    raise TypeError(f"{type(dim).__name__} is no form of dims")
