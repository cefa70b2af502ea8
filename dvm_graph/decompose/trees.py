"""Ensembles of decision trees, as scikit-learn, XGBoost and LightGBM are exported (`ai.onnx.ml`).

In: lists of nodes, in which a node is a pair of numbers, with one of seven comparisons each. Out: the `host` operator
`TreeSums` over one table of nodes, which knows a single comparison, and what becomes of its sums as basic operators,
which fuse with what is behind. What the schemas leave open is as onnxruntime has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.decompose.classical import TRANSFORMS, of_two
from dvm_graph.decompose.families import CLASSICAL
from dvm_graph.decompose.host import add_host
from dvm_graph.decompose.operands import required, text
from dvm_graph.decompose.reductions import arg_of
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.strings import Words, class_labels, labelled
from dvm_graph.errors import DamagedError
from dvm_graph.ir import DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder

_Ints = NDArray[np.int64]
_Floats = NDArray[Any]
_Bools = NDArray[np.bool_]

_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER, _LEAF, _LEAD_ON = range(9)
"""Comparisons as `TreeEnsemble` numbers them; leaves have none, nor have nodes that lead to the same one always."""
_MODES = {
    "BRANCH_LEQ": _LEQ,
    "BRANCH_LT": _LT,
    "BRANCH_GTE": _GTE,
    "BRANCH_GT": _GT,
    "BRANCH_EQ": _EQ,
    "BRANCH_NEQ": _NEQ,
    "LEAF": _LEAF,
}
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_MOST = np.iinfo(np.int32).max
"""Nodes of a tree, features and targets have numbers up to here."""
_FOLDS = {"SUM": 0, "AVERAGE": 0, "MIN": 1, "MAX": 2}
"""As the host numbers them; an average is a part of a sum."""


class _UnlikeError(Exception):
    """The lists are not those of trees, or onnxruntime has something else in mind with them."""


@dataclass(frozen=True, slots=True)
class _Forest:
    """Nodes, which follow each other by number; the first of each tree; and what leaves say, in entries."""

    modes: _Ints
    features: _Ints
    limits: _Floats
    yes: _Ints
    no: _Ints
    nan_is_yes: _Bools
    roots: _Ints
    entry_nodes: _Ints
    entry_targets: _Ints
    entry_weights: _Floats


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Nodes tree by tree and from the top down, of which each asks whether its feature is above its limit. The two that
    follow one, `first` where it is not, lie side by side.
    """

    leaves: _Bools
    features: _Ints
    limits: _Floats
    first: _Ints
    """Of leaves themselves."""
    nan_is_second: _Bools
    trees: _Ints
    """The number of its tree, of a node."""
    depths: _Ints
    entry_nodes: _Ints
    """In the order of leaves."""
    entry_targets: _Ints
    entry_weights: _Floats


@decomposition("TreeEnsembleRegressor", domain=CLASSICAL)
def tree_ensemble_regressor(builder: Builder, node: Node, operands: Operands) -> Results:
    targets = int(node.attrs.get("n_targets", 1))
    aggregate = text(node, "aggregate_function", "SUM")
    try:
        x = _rows(builder, required(node, operands, 0))
        forest = _listed(node, x.dtype, "target", targets)
        base = _numbers(node, "base_values", x.dtype)
        sums = _sums(builder, node, x, forest, targets, aggregate)
    except _UnlikeError:
        return None
    if base.size:
        if base.size != targets or not _always_said(forest, targets):
            return None  # where no leaf speaks of a target, its sum is 0
        sums = builder.add(sums, builder.constant(base))
    return _results(builder, text(node, "post_transform", "NONE"), sums, DType.FLOAT32)


@decomposition("TreeEnsemble", domain=CLASSICAL)
def tree_ensemble(builder: Builder, node: Node, operands: Operands) -> Results:
    targets = int(node.attrs.get("n_targets", 1))
    transform = int(node.attrs.get("post_transform", 0))
    aggregate = int(node.attrs.get("aggregate_function", 1))
    if transform not in range(len(_TRANSFORMS)) or aggregate not in range(len(_AGGREGATES)):
        return None
    try:
        x = _rows(builder, required(node, operands, 0))
        forest = _linked(node, x.dtype, targets)
        sums = _sums(builder, node, x, forest, targets, _AGGREGATES[aggregate])
    except _UnlikeError:
        return None
    return _results(builder, _TRANSFORMS[transform], sums, x.dtype)


@decomposition("TreeEnsembleClassifier", domain=CLASSICAL)
def tree_ensemble_classifier(builder: Builder, node: Node, operands: Operands) -> Results:
    """The class that scores highest, of two the second where it scores over 0 (or enough, if alone), and the scores."""
    labels = class_labels(node, "classlabels_int64s")
    transform = text(node, "post_transform", "NONE")
    if labels is None or len(labels) < 2:
        return None
    try:
        x = _rows(builder, required(node, operands, 0))
        forest = _listed(node, x.dtype, "class", len(labels))
        base = _numbers(node, "base_values", x.dtype)
        if len(labels) == 2 and not forest.entry_targets.any():
            return _one_of_two(builder, node, x, forest, base, labels, transform)
        if base.size and (len(labels) == 2 or base.size != len(labels)):
            return None
        sums = _sums(builder, node, x, forest, len(labels), "SUM")
    except _UnlikeError:
        return None
    if base.size:
        sums = builder.add(sums, builder.constant(base))
    elif not _always_said(forest, len(labels)) and not (
        len(labels) > 2 and _always_above_0(forest)
    ):
        return None  # a class that no leaf speaks of has no score, and loses to any that has
    if len(labels) == 2:
        if isinstance(labels, np.ndarray) and labels.tolist() != [0, 1]:
            return None  # onnxruntime says 0 and 1 all the same
        second = builder.slice(sums, (0, 1), (shape_of(sums)[0], 1))
        best = builder.cast(builder.gt(second, builder.scalar(0, x.dtype)), DType.INT64)
    else:
        best = arg_of(builder, sums, 1, 1, greatest=True, last=False)
    label = builder.reshape(best, shape_of(sums)[:1])
    scores = _results(builder, transform, sums, DType.FLOAT32)
    if scores is None:
        return None
    return [labelled(builder, node, label, labels), *scores]


def _one_of_two(
    builder: Builder,
    node: Node,
    x: Value,
    forest: _Ordered,
    base: _Floats,
    labels: Words | _Ints,
    transform: str,
) -> Results:
    """Where leaves speak of the first class alone: what they say is the score of the second."""
    if base.size > 1 or transform not in TRANSFORMS or not forest.entry_targets.size:
        return None
    if base.size and not _always_said(forest, 1):
        return None  # where no leaf says anything, the first class it is
    score = _sums(builder, node, x, forest, 1, "SUM")
    if base.size:
        score = builder.add(score, builder.constant(base))
    shares = bool((forest.entry_weights >= 0).all())
    wins = builder.gt(score, builder.scalar(0.5 if shares else 0, x.dtype))
    score = builder.cast(score, DType.FLOAT32)
    if transform == "LOGISTIC" or shares:
        both = of_two(builder, score, logistic=transform == "LOGISTIC")
    else:
        both = builder.concat([builder.neg(score), score], 1)
    place = builder.cast(builder.reshape(wins, shape_of(score)[:1]), DType.INT64)
    return [labelled(builder, node, place, labels), both]


def _results(builder: Builder, transform: str, sums: Value, dtype: DType) -> Results:
    function = TRANSFORMS.get(transform)
    if function is None:
        return None
    if shape_of(sums)[1] == 1:
        function = TRANSFORMS["NONE"]  # one target is left as it is
    return [function(builder, builder.cast(sums, dtype))]


def _rows(builder: Builder, x: Value) -> Value:
    """Rows of float32, or of float64. Integers are compared as float32."""
    if x.rank != 2:
        raise _UnlikeError
    if x.dtype in (DType.INT32, DType.INT64):
        x = builder.cast(x, DType.FLOAT32)
    if x.dtype not in (DType.FLOAT32, DType.FLOAT64):
        raise _UnlikeError
    return x


def _sums(
    builder: Builder, node: Node, x: Value, forest: _Ordered, targets: int, aggregate: str
) -> Value:
    """[rows, targets]: what the leaves say, summed or the least or greatest of it."""
    fold = _FOLDS.get(aggregate)
    if fold is None or (fold and not _always_said(forest, targets)):
        raise _UnlikeError
    tables = map(builder.constant, _tables(forest, targets, fold == 0))
    leaves_of = np.bincount(forest.trees[forest.leaves])
    steps = (forest.depths[forest.leaves] / leaves_of[forest.trees[forest.leaves]]).sum()
    arguments = (targets, fold, int(forest.features.max()) + 1, int(steps))
    shape = (shape_of(x)[0], targets)
    [sums] = add_host(builder, node, [x, *tables], arguments, [(x.dtype, shape)], "TreeSums")
    if aggregate == "AVERAGE":
        sums = builder.div(sums, builder.scalar(int(forest.trees[-1]) + 1, x.dtype))
    return sums


def _always_said(forest: _Ordered, targets: int) -> bool:
    """Whether of each target the leaves of some tree all say something."""
    said = np.unique(forest.entry_nodes * targets + forest.entry_targets)
    pairs, saying = np.unique(
        forest.trees[said // targets] * targets + said % targets, return_counts=True
    )
    leaves = np.bincount(forest.trees[forest.leaves])
    return np.unique(pairs[saying == leaves[pairs // targets]] % targets).size == targets


def _always_above_0(forest: _Ordered) -> bool:
    """Whether of any row something is said, and nothing that is not positive."""
    saying = np.bincount(
        forest.trees[np.unique(forest.entry_nodes)], minlength=forest.trees[-1] + 1
    )
    leaves = np.bincount(forest.trees[forest.leaves])
    return bool((forest.entry_weights > 0).all() and (saying == leaves).any())


def _numbers(node: Node, name: str, dtype: DType) -> _Floats:
    """A list of floats; of float64 a tensor, where there is one.

    Raises:
        _UnlikeError: a tensor beside a list, or of float64 for others.
    """
    listed, tensor = node.attrs.get(name, ()), node.attrs.get(f"{name}_as_tensor")
    if tensor is not None and np.size(tensor):
        if dtype is not DType.FLOAT64 or len(listed):
            raise _UnlikeError
        listed = tensor
    return np.asarray(listed, dtype.numpy).reshape(-1)


def _integers(node: Node, name: str) -> _Ints:
    return np.array(node.attrs.get(name, ()), np.int64).reshape(-1)


def _listed(node: Node, dtype: DType, said: str, targets: int) -> _Ordered:
    """Of nodes that are numbered within their trees, and entries that name them so."""
    named = node.attrs.get("nodes_modes", ())
    if not _MODES.keys() >= set(named):
        raise _UnlikeError
    modes = np.fromiter(map(_MODES.__getitem__, named), int, len(named))
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    trees, numbers, features, yes, no = (_integers(node, f"nodes_{name}") for name in names)
    limits = _numbers(node, "nodes_values", dtype)
    tracks = _integers(node, "nodes_missing_value_tracks_true")
    entry_trees, entry_numbers, entry_targets = (
        _integers(node, f"{said}_{name}") for name in ("treeids", "nodeids", "ids")
    )
    weights = _numbers(node, f"{said}_weights", dtype)
    nodes = (modes, trees, numbers, features, yes, no, limits, *((tracks,) if tracks.size else ()))
    starts = np.flatnonzero(np.diff(trees, prepend=trees[:1] - 1) != 0)
    if (
        {part.size for part in nodes} != {modes.size}
        or {part.size for part in (entry_trees, entry_numbers, entry_targets)} != {weights.size}
        or not modes.size
        or np.unique(trees[starts]).size != starts.size
    ):
        raise _UnlikeError
    place = _Places(trees, numbers)
    leaves = modes == _LEAF
    entry_nodes = place.of(entry_trees, entry_numbers)
    if said == "target" and targets == 1 and not entry_targets.any():
        # A leaf says the first of what is listed, or else the value that it has as a node.
        heard = limits.copy()
        heard[entry_nodes[::-1]] = weights[::-1]
        entry_nodes = np.flatnonzero(leaves)
        entry_targets, weights = np.zeros_like(entry_nodes), heard[entry_nodes]
    return _ordered(
        _Forest(
            modes,
            features,
            limits,
            place.of(trees, np.where(leaves, numbers, yes)),
            place.of(trees, np.where(leaves, numbers, no)),
            tracks == 1 if tracks.size else np.zeros(modes.size, bool),
            starts,
            entry_nodes,
            entry_targets,
            weights,
        ),
        targets,
    )


class _Places:
    """Where the nodes of these numbers in these trees are."""

    def __init__(self, trees: _Ints, numbers: _Ints) -> None:
        self._trees, tree = np.unique(trees, return_inverse=True)
        self._stride = int(numbers.max()) + 1
        if self._stride > _MOST:
            raise _UnlikeError
        keys = tree * self._stride + numbers
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        if numbers.min() < 0 or (np.diff(self._keys) == 0).any():
            raise _UnlikeError

    def of(self, trees: _Ints, numbers: _Ints) -> _Ints:
        tree = np.searchsorted(self._trees, trees).clip(max=self._trees.size - 1)
        keys = tree * self._stride + numbers
        found = np.searchsorted(self._keys, keys).clip(max=self._keys.size - 1)
        known = (self._trees[tree] == trees) & (numbers >= 0) & (numbers < self._stride)
        if not (known & (self._keys[found] == keys)).all():
            raise _UnlikeError
        order: _Ints = self._order[found]
        return order


def _linked(node: Node, dtype: DType, targets: int) -> _Ordered:
    """Of nodes that follow each other by their places among those that branch, or that leaves have among leaves, with a
    target and a weight each. What asks for membership in a set asks for its members one by one.
    """
    modes, limits, weights, members = (
        np.asarray(node.attrs.get(name, ())).reshape(-1)
        for name in ("nodes_modes", "nodes_splits", "leaf_weights", "membership_values")
    )
    modes = modes.astype(int)
    features, yes, no, yes_leaf, no_leaf = (_integers(node, f"nodes_{name}") for name in _LINKS)
    tracks = _integers(node, "nodes_missing_value_tracks_true")
    said = _integers(node, "leaf_targetids")
    nodes = (
        modes,
        limits,
        features,
        yes,
        no,
        yes_leaf,
        no_leaf,
        *((tracks,) if tracks.size else ()),
    )
    types = {part.dtype for part in (limits, weights)}
    if (
        {part.size for part in nodes} != {modes.size}
        or said.size != weights.size
        or types != {dtype.numpy}
        or not modes.size
    ):
        raise _UnlikeError
    if not ((modes >= _LEQ) & (modes <= _MEMBER)).all():
        raise _UnlikeError
    count, leaves = modes.size, weights.size
    for follows, to_leaf in ((yes, yes_leaf), (no, no_leaf)):
        if (follows < 0).any() or (follows >= np.where(to_leaf != 0, leaves, count)).any():
            raise _UnlikeError
    roots = _integers(node, "tree_roots")
    if (roots < 0).any() or (roots >= count).any() or not roots.size:
        raise _UnlikeError
    leaf = np.zeros(leaves, int)
    at = count + np.arange(leaves)
    forest = _Forest(
        np.concatenate([modes, leaf + _LEAF]),
        np.concatenate([features, leaf]),
        np.concatenate([limits, leaf.astype(limits.dtype)]),
        np.concatenate([np.where(yes_leaf != 0, count + yes, yes), at]),
        np.concatenate([np.where(no_leaf != 0, count + no, no), at]),
        np.concatenate([tracks == 1 if tracks.size else np.zeros(count, bool), leaf != 0]),
        roots,
        at,
        said,
        weights,
    )
    return _ordered(_one_by_one(forest, members), targets)


_LINKS = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")


def _one_by_one(forest: _Forest, members: _Floats) -> _Forest:
    """Sets stand one behind the other, each ended by NaN."""
    asking = np.flatnonzero(forest.modes == _MEMBER)
    ends = np.flatnonzero(np.isnan(members))
    if ends.size != asking.size or (asking.size and ends[-1] != members.size - 1):
        raise _UnlikeError
    parts = {name: list(getattr(forest, name)) for name in _OF_NODES}
    first = 0
    for asked, end in zip(asking.tolist(), ends.tolist(), strict=True):
        if first == end:
            raise _UnlikeError
        at = asked
        for number, member in enumerate(members[first:end]):
            if number:  # the one before asks for this one next, which leads to the same
                lead = len(parts["no"])
                parts["no"][at] = at = lead + 1
                for name in _OF_NODES:
                    parts[name] += [getattr(forest, name)[asked]] * 2
                parts["modes"][lead], parts["yes"][at] = _LEAD_ON, lead
            parts["modes"][at], parts["limits"][at] = _EQ, member
        first = end + 1
    arrays = {name: np.array(part, getattr(forest, name).dtype) for name, part in parts.items()}
    return replace(forest, **arrays)


_OF_NODES = ("modes", "features", "limits", "yes", "no", "nan_is_yes")


def _ordered(forest: _Forest, targets: int) -> _Ordered:
    """The nodes that roots lead to.

    Raises:
        _UnlikeError: they are those of no trees, or the host cannot hold them.
        DamagedError: a node follows itself.
    """
    forest = _with_one_comparison(forest)
    ends = forest.modes >= _LEAF
    nodes, trees, depths = _from_the_top(forest, ends)
    places = np.full(ends.size, -1)
    places[nodes] = np.arange(nodes.size)
    if (places[nodes] != np.arange(nodes.size)).any():
        raise _UnlikeError  # a node follows two others

    entries = places[forest.entry_nodes]
    said = np.argsort(entries, kind="stable")
    leaves = forest.modes[nodes] == _LEAF
    nothing = np.array(np.inf, forest.limits.dtype)
    ordered = _Ordered(
        leaves,
        np.where(ends, 0, forest.features)[nodes],
        np.where(ends, nothing, forest.limits)[nodes],
        np.where(leaves, places[nodes], places[forest.yes[nodes]]),
        ~(forest.nan_is_yes | ends)[nodes],
        trees,
        depths,
        entries[said],
        forest.entry_targets[said],
        forest.entry_weights[said],
    )
    if not _fits_host(ordered, targets):
        raise _UnlikeError
    return ordered


def _with_one_comparison(forest: _Forest) -> _Forest:
    """The same forest, whose nodes ask whether their feature is at most their limit.

    What is less than a limit is not above the number below. What equals it is not above it, but above that number: a
    second node asks for that, and another one leads on to where those go that are less, which is where the greater ones go.
    """
    modes, limits = forest.modes, forest.limits
    twice = np.flatnonzero((modes == _EQ) | (modes == _NEQ))
    lowered = (modes == _LT) | (modes == _GTE)
    turned = (modes == _GT) | (modes == _GTE) | (modes == _NEQ)
    first = np.where(turned, forest.no, forest.yes)
    second = np.where(turned, forest.yes, forest.no)
    nan_is_first = np.where(turned, ~forest.nan_is_yes & (modes != _NEQ), forest.nan_is_yes)
    below = np.nextafter(limits, np.array(-np.inf, limits.dtype))
    if (limits[lowered] == -np.inf).any() or (limits[twice] == -np.inf).any():
        raise _UnlikeError  # nothing is less
    asks, leads = (modes.size + k * twice.size + np.arange(twice.size) for k in (0, 1))
    equal, none = first[twice], np.zeros(twice.size, bool)
    first[twice] = asks
    return replace(
        forest,
        modes=np.concatenate([modes, none + _LEQ, none + _LEAD_ON]),
        features=np.concatenate([forest.features, forest.features[twice], none]),
        limits=np.concatenate([np.where(lowered, below, limits), below[twice], none]),
        yes=np.concatenate([first, leads, second[twice]]),
        no=np.concatenate([second, equal, second[twice]]),
        nan_is_yes=np.concatenate([nan_is_first, none, ~none]),
    )


def _from_the_top(forest: _Forest, ends: _Bools) -> tuple[_Ints, _Ints, _Ints]:
    """The nodes that roots lead to, tree by tree and level by level; the numbers of their trees, and their depths."""
    levels, trees = [forest.roots], [np.arange(forest.roots.size)]
    reached = forest.roots.size
    while not ends[levels[-1]].all():
        branches = ~ends[levels[-1]]
        above, tree = levels[-1][branches], trees[-1][branches]
        levels.append(np.stack([forest.yes[above], forest.no[above]], 1).reshape(-1))
        trees.append(np.repeat(tree, 2))
        reached += levels[-1].size
        if reached > ends.size:  # a node follows two others, or itself
            _expect_ends(forest.roots, np.stack([forest.yes, forest.no], 1), ends)
            raise _UnlikeError
    depths = np.repeat(np.arange(len(levels)), [level.size for level in levels])
    tree = np.concatenate(trees)
    order = np.argsort(tree, kind="stable")
    return np.concatenate(levels)[order], tree[order], depths[order]


def _fits_host(forest: _Ordered, targets: int) -> bool:
    """Whether leaves say what counts, and the rest is what the host can compare and number."""
    return not (
        forest.leaves.all()
        or (forest.entry_nodes < 0).any()
        or not forest.leaves[forest.entry_nodes].all()
        or (forest.features < 0).any()
        or (forest.features > _MOST).any()
        or np.isnan(forest.limits).any()
        or (forest.nan_is_second & (forest.limits == np.inf)).any()
        or ((forest.entry_targets < 0) | (forest.entry_targets >= targets)).any()
        or not 0 < targets <= _MOST
        or np.isnan(forest.entry_weights).any()
    )


def _expect_ends(roots: _Ints, follows: _Ints, ends: _Bools) -> None:
    """Onnxruntime has rows go round for ever.

    Raises:
        DamagedError: a node follows itself, at once or behind others.
    """
    left, some = np.zeros(ends.size, bool), roots
    while some.size:
        left[some] = True
        on = follows[some[~ends[some]]].reshape(-1)
        some = np.unique(on[~left[on]])
    left &= ~ends
    leading = np.bincount(follows[left].reshape(-1), minlength=ends.size)
    some = np.flatnonzero(left & (leading == 0))
    while some.size:  # nodes that none that is left leads to
        left[some] = False
        on = follows[some].reshape(-1)
        np.subtract.at(leading, on, 1)
        some = np.unique(on[left[on] & (leading[on] == 0)])
    if left.any():
        raise DamagedError("a node of a tree follows itself")


def _tables(forest: _Ordered, targets: int, is_sum: bool) -> list[NDArray[Any]]:
    """Nodes, trees and weights as the host takes them."""
    kind, leaves = forest.limits.dtype, np.flatnonzero(forest.leaves)
    record = np.dtype([("limit", kind), ("column", "i4"), ("first", "i4"), ("weight", kind)])
    units = record.itemsize // 8
    looks = 2 * forest.features + forest.nan_is_second
    looks[leaves] = looks[np.argmin(forest.leaves)]
    columns, column = np.unique(looks, return_inverse=True)
    nan = np.where(columns % 2, np.inf, -np.inf).astype(kind)
    nodes = np.zeros(forest.leaves.size, record)
    nodes["limit"], nodes["column"], nodes["first"] = forest.limits, column, forest.first * units
    weights = _weights(forest, targets, is_sum)
    if targets == len(weights) == 1:
        nodes["weight"][leaves] = weights.pop()
    else:
        numbers = np.zeros((leaves.size, kind.itemsize // 4), np.int32)
        numbers[:, 0] = np.arange(leaves.size)
        nodes["weight"][leaves] = numbers.view(kind)[:, 0]

    roots, far = np.flatnonzero(forest.depths == 0), np.iinfo(np.int32).max
    nearest = np.minimum.reduceat(np.where(forest.leaves, forest.depths, far), roots)
    down = forest.leaves | (forest.depths[forest.first] > forest.depths)
    farthest = np.maximum.reduceat(np.where(down, forest.depths, far), roots)
    trees = np.stack([roots * units, nearest, farthest], 1).astype(np.int32)
    features = (columns // 2).astype(np.int32)
    return [nodes.view(np.int32).reshape(nodes.size, -1), trees, features, nan, *weights]


def _weights(forest: _Ordered, targets: int, is_sum: bool) -> list[NDArray[Any]]:
    """One for each leaf and target, if that is not more than twice as many as there are; otherwise entries."""
    leaves = int(forest.leaves.sum())
    counts = np.bincount(forest.entry_nodes, minlength=forest.leaves.size)[forest.leaves]
    places = np.repeat(np.arange(leaves), counts) * targets + forest.entry_targets
    if leaves * targets <= places.size * (1 + is_sum) and np.bincount(places).max() == 1:
        dense = np.zeros(leaves * targets, forest.entry_weights.dtype)
        dense[places] = forest.entry_weights
        return [dense]
    ends = np.concatenate([[0], np.cumsum(counts)])
    return [forest.entry_weights, ends.astype(np.int32), forest.entry_targets.astype(np.int32)]
