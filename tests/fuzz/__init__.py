"""Random ONNX models from the schemas of `onnx.defs`, run here and on onnxruntime: `make fuzz`.

A case is a pure function of (seed, index). `growth` grows a graph in a few environments (extents of the
symbols) at once, `operators` says what may be drawn, `coverage` which parts of operators that leaves out (by
`left_out` alone), the `recipes_*` draw operands of the operators whose
operands have to fit together, regions (of `bodies`) and sequences among them, `case` puts a model together, `check` holds
it against its references, `judge` decides whether two answers differ by more than what `disturb` moves, with `stepwise` and `differences_*` for
what `docs/edge_values.md` documents, element by element, `workers` runs cases in child processes with
limits, and `shrink` makes a failing one small.
"""
