"""The domain of a kernel: which atoms are its axes, in which order, and which of them a product gives roles.

In: a fused subgraph with its axis atoms. Out: masks of axes, and strides by atom, for what lies along them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dvm_graph.cluster import FusedSubgraph
from dvm_graph.cluster.axes import Atom, Atoms, Layout
from dvm_graph.ir import OPERATORS, Dim, Kind, Node
from dvm_graph.symbolic.dims import mul


class Domain:
    """The axes of a kernel.

    `atoms` are in the order of its loops, outermost first. `roles` are the m, n and k axes of its outer
    product, `inner_k` is the k axis of a product that computes the A operand of that one; None: it has none.
    """

    def __init__(self, subgraph: FusedSubgraph) -> None:
        self._space, self._nodes = subgraph.axes.space, subgraph.axes.nodes
        self.roles: tuple[Atom, Atom, Atom] | None = None
        self.inner_k: Atom | None = None
        self.atoms = self._order_axes(subgraph)
        self._index = {atom: i for i, atom in enumerate(self.atoms)}
        self._bits = {atom: 1 << i for i, atom in enumerate(self.atoms)}

    def __len__(self) -> int:
        return len(self.atoms)

    def __contains__(self, atom: Atom) -> bool:
        return atom in self._index

    def _order_axes(self, subgraph: FusedSubgraph) -> Atoms:
        products = [node for node in subgraph.nodes if node.op == "matmul"]
        if products:
            return self._matrix_domain(*products)
        best: Atoms = ()
        spaces = []
        for node in subgraph.nodes:
            axes = self._nodes[node]
            if OPERATORS[node.op].kind is Kind.VIEW and node.output not in subgraph.outputs:
                continue  # its readers iterate, and a gather not over all of it
            space = (
                self._space.resolve(axes.domain) if axes.domain else self._space.flat(axes.result)
            )
            spaces.append(space)
            if len(space) >= len(best):
                best = space
        seen = dict.fromkeys(best)
        extra = dict.fromkeys(atom for space in spaces for atom in space if atom not in seen)
        return (*extra, *best)

    def _matrix_domain(self, *products: Node) -> Atoms:
        """`products` are in order: those before the last one have its axes, or one computes its A operand."""
        node = products[-1]
        axes = self._nodes[node]
        *batch, rows, columns = axes.result
        k = self.contracted(node)
        inner = [product for product in products if self.contracted(product) != k]
        n = self._space.resolve(columns)[0]
        row_atoms = self._space.resolve(rows) or (self._space.atom(1),)
        m = row_atoms[-1]
        self.roles = (m, n, k)
        outer = self._space.flat(batch)
        domain = (*outer, *row_atoms[:-1], m, n, k)
        if not inner:
            return domain
        self.inner_k = self.contracted(*inner)
        return (*domain, self.inner_k)

    def contracted(self, product: Node) -> Atom:
        """The k axis of a matrix product."""
        layout = self._nodes[product].operands[0]
        assert layout is not None
        return self._space.resolve(layout[-1])[0]

    def mask(self, atoms: Iterable[Atom]) -> int:
        return sum([self._bits[atom] for atom in set(self._space.resolve(tuple(atoms)))])

    def layout_mask(self, layout: Layout) -> int:
        return self.mask(self._space.flat(layout))

    def layout_overlap(self, layout: Layout) -> int:
        """As `layout_mask`, of a layout that may have other atoms besides."""
        return sum([self._bits.get(atom, 0) for atom in set(self._space.flat(layout))])

    def axis(self, atom: Atom) -> int:
        """The number of the axis that an atom is."""
        return self._index[atom]

    @property
    def k_mask(self) -> int:
        """The k axis of the outer product."""
        return 0 if self.roles is None else 1 << self._index[self.roles[2]]

    def column(self, product: Node) -> Atom:
        """The n axis of a matrix product."""
        (n,) = self._space.resolve(self._nodes[product].result[-1])
        return n

    def per_atom(self, layout: Layout, strides: Iterable[Dim]) -> dict[Atom, Dim]:
        """The strides of atoms, of those of the axes of a layout."""
        result: dict[Atom, Dim] = {}
        for axis, stride in zip(layout, strides, strict=True):
            atoms = self._space.resolve(axis)
            for at in range(len(atoms) - 1, -1, -1):
                result[atoms[at]] = stride
                if at:
                    stride = mul(stride, self._space.extent(atoms[at]))
        return result

    def per_group(self, axis: Atoms, results: Dim, channels: Dim) -> dict[Atom, Dim]:
        """How the first channel of a group follows the results along an axis, which are so many for each group."""
        strides: dict[Atom, Dim] = {}
        of_group: Dim = 1
        for atom in reversed(self._space.resolve(axis)):
            extent = self._space.extent(atom)
            if of_group == results:
                strides[atom] = channels
                channels = mul(channels, extent)
            else:
                of_group = mul(of_group, extent)
        return strides
