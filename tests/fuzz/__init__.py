"""Random ONNX models from the schemas of `onnx.defs`, run here and on onnxruntime: `make fuzz`.

A case is a pure function of (seed, index): a model, and feeds for it in a few environments (extents of the symbols).

    growth           grows the graph of a case, in all of its environments at once
    operators        says which operators may be drawn; most of them are drawn from their schemas alone
    recipes_*        draw operands of the others, which have to fit together, with parts of `operands`, and of `bodies`
                     where there are regions; `registry` has them all
    contents         fills tensors
    case             puts a model together

    check            runs a case, and holds it against its references
    judge            decides whether two answers differ by more than what `disturb` moves
    stepwise         runs a model node by node, with what `docs/edge_values.md` documents in place of what onnxruntime
                     gives: `differences_*`, in terms of `documented`; `straight` takes regions apart before

    coverage         finds out which parts of operators are drawn; `left_out` names the others, with the reason
    workers          runs cases in child processes with limits
    shrink           makes a failing case small
    mutate           damages models, options and feeds (`damage`): a program of its own

What a recipe lacks, `test_coverage` says: an attribute, operand, result or type that no draw of an operator had.
"""
