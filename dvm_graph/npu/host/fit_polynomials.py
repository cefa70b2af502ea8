"""Fits the polynomials of `math.cpp` and prints their coefficients.

Input: none. Output: for each function a C++ initialiser, lowest power first, and the largest
relative error of the exact approximation. Method: weighted least squares at Chebyshev nodes in
60-digit arithmetic, reweighted by the error itself until it is nearly levelled (Lawson's
iteration); rational fits are linearised with the previous denominator as weight. Run by hand when
a function, a degree or an interval changes; it is not part of the build.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp

mp.mp.dps = 60
NODES = 160
ROUNDS = 25


@dataclass(frozen=True, slots=True)
class Fit:
    """target(t) ~ numerator(t) / denominator(t) on [low, high]; the error counts by weight(t)."""

    name: str
    target: Callable[[mp.mpf], mp.mpf]
    weight: Callable[[mp.mpf], mp.mpf]
    low: mp.mpf
    high: mp.mpf
    numerator: int
    denominator: int = 0


def nodes(fit: Fit) -> list[mp.mpf]:
    middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    return [middle + half * mp.cos(mp.pi * (i + mp.mpf(1) / 2) / NODES) for i in range(NODES)]


def solve(fit: Fit) -> tuple[list[mp.mpf], list[mp.mpf], mp.mpf]:
    points = nodes(fit)
    values = [fit.target(t) for t in points]
    weights = [fit.weight(t) for t in points]
    lawson = [mp.mpf(1)] * NODES
    below = [mp.mpf(1)] * NODES
    best: tuple[list[mp.mpf], list[mp.mpf], mp.mpf] = ([], [], mp.inf)
    for _ in range(ROUNDS):
        rows = mp.matrix(NODES, fit.numerator + 1 + fit.denominator)
        right = mp.matrix(NODES, 1)
        for i, t in enumerate(points):
            scale = weights[i] * mp.sqrt(lawson[i]) / below[i]
            for power in range(fit.numerator + 1):
                rows[i, power] = t**power * scale
            for power in range(1, fit.denominator + 1):
                rows[i, fit.numerator + power] = -values[i] * t**power * scale
            right[i] = values[i] * scale
        solution = mp.lu_solve(rows, right)
        upper = [solution[i] for i in range(fit.numerator + 1)]
        lower = [mp.mpf(1)] + [solution[fit.numerator + i] for i in range(1, fit.denominator + 1)]
        below = [mp.polyval(lower[::-1], t) for t in points]
        errors = [
            abs(mp.polyval(upper[::-1], t) / below[i] - values[i]) * weights[i]
            for i, t in enumerate(points)
        ]
        largest = max(errors)
        if largest < best[2]:
            best = (upper, lower, largest)
        mean = sum(errors) / NODES
        lawson = [w * (e / mean + mp.mpf("0.02")) for w, e in zip(lawson, errors, strict=True)]
        total = sum(lawson) / NODES
        lawson = [w / total for w in lawson]
    return best


def exp_tail(r: mp.mpf) -> mp.mpf:
    return (mp.exp(r) - 1 - r) / r**2 if r else mp.mpf(1) / 2


def log_tail(f: mp.mpf) -> mp.mpf:
    return (mp.log1p(f) - f + f**2 / 2) / f**3 if f else mp.mpf(1) / 3


def fits() -> list[Fit]:
    half_ln2 = mp.log(2) / 2
    quarter = (mp.pi / 4) ** 2
    root = mp.sqrt
    return [
        Fit("kExp", exp_tail, lambda r: r**2 / mp.exp(r), -half_ln2, half_ln2, 4),
        Fit("kLog", log_tail, lambda f: f**3 / mp.log1p(f) if f else f,
            root(mp.mpf(1) / 2) - 1, root(2) - 1, 8),
        Fit("kSin", lambda t: (mp.sin(root(t)) / root(t) - 1) / t, lambda t: t, mp.mpf(0), quarter,
            2),
        Fit("kCos", lambda t: (mp.cos(root(t)) - 1 + t / 2) / t**2, lambda t: t**2, mp.mpf(0),
            quarter, 2),
        Fit("kTanh", lambda t: mp.tanh(root(t)) / root(t), lambda t: root(t) / mp.tanh(root(t)),
            mp.mpf(0), mp.mpf(9.1) ** 2, 4, 4),
        Fit("kErf", lambda t: mp.erf(root(t)) / root(t), lambda t: root(t) / mp.erf(root(t)),
            mp.mpf(0), mp.mpf(3.925) ** 2, 5, 5),
    ]


def main() -> None:
    for fit in fits():
        upper, lower, error = solve(fit)
        print(f"// {fit.name}: relative error {mp.nstr(error, 3)}")
        print(f"{fit.name} {{{', '.join(mp.nstr(c, 11) + 'f' for c in upper)}}}")
        if fit.denominator:
            print(f"{fit.name} below {{{', '.join(mp.nstr(c, 11) + 'f' for c in lower)}}}")


if __name__ == "__main__":
    main()
