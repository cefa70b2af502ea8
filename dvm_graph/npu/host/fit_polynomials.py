"""Fits the polynomials of `functions.h` and prints their coefficients.

Input: none. Output: for each function a C++ initialiser, lowest power first, and the largest
relative error of the exact approximation; for functions in pieces (`pieces.h`) one per power. Method:
weighted least squares at Chebyshev nodes in 60-digit arithmetic, reweighted by the error itself until it is nearly levelled (Lawson's
iteration). Run by hand when a function, a degree or an interval changes; it is not part of the
build.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp

mp.mp.dps = 60
NODES = 160
ROUNDS = 25


@dataclass(frozen=True, slots=True)
class Fit:
    """target(t) ~ a polynomial on [low, high]; its error counts times weight(t)."""

    name: str
    target: Callable[[mp.mpf], mp.mpf]
    weight: Callable[[mp.mpf], mp.mpf]
    low: mp.mpf
    high: mp.mpf
    degree: int
    suffix: str = "f"
    """Of literals: none for those of f64."""


def nodes(fit: Fit) -> list[mp.mpf]:
    middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    return [middle + half * mp.cos(mp.pi * (i + mp.mpf(1) / 2) / NODES) for i in range(NODES)]


def solve(fit: Fit) -> tuple[list[mp.mpf], mp.mpf]:
    """The coefficients, lowest power first, and the largest weighted error."""
    points = nodes(fit)
    values = [fit.target(t) for t in points]
    weights = [fit.weight(t) for t in points]
    lawson = [mp.mpf(1)] * NODES
    best: tuple[list[mp.mpf], mp.mpf] = ([], mp.inf)
    for _ in range(ROUNDS):
        rows = mp.matrix(NODES, fit.degree + 1)
        right = mp.matrix(NODES, 1)
        for i, t in enumerate(points):
            scale = weights[i] * mp.sqrt(lawson[i])
            for power in range(fit.degree + 1):
                rows[i, power] = t**power * scale
            right[i] = values[i] * scale
        solution = mp.lu_solve(rows, right)
        coefficients = [solution[i] for i in range(fit.degree + 1)]
        errors = [
            abs(mp.polyval(coefficients[::-1], t) - values[i]) * weights[i]
            for i, t in enumerate(points)
        ]
        if max(errors) < best[1]:
            best = (coefficients, max(errors))
        mean = sum(errors) / NODES
        lawson = [w * (e / mean + mp.mpf("0.02")) for w, e in zip(lawson, errors, strict=True)]
        total = sum(lawson) / NODES
        lawson = [w / total for w in lawson]
    return best


def exp_tail(r: mp.mpf) -> mp.mpf:
    return (mp.exp(r) - 1 - r) / r**2 if r else mp.mpf(1) / 2


def log_tail(f: mp.mpf) -> mp.mpf:
    return (mp.log1p(f) - f + f**2 / 2) / f**3 if f else mp.mpf(1) / 3


def odd_tail(
    name: str, function: Callable[[mp.mpf], mp.mpf], high: mp.mpf, degree: int, suffix: str = "f"
) -> Fit:
    """(function(x)/x - 1)/x^2 in x^2, for an odd function of slope 1 up to x = high."""

    def tail(t: mp.mpf) -> mp.mpf:
        return (function(mp.sqrt(t)) / mp.sqrt(t) - 1) / t

    def weight(t: mp.mpf) -> mp.mpf:
        return t * mp.sqrt(t) / function(mp.sqrt(t))

    return Fit(name, tail, weight, mp.mpf(0), high**2, degree, suffix)


def fits() -> list[Fit]:
    half_ln2 = mp.log(2) / 2
    quarter = (mp.pi / 4) ** 2
    root = mp.sqrt
    return [
        Fit("kExp", exp_tail, lambda r: r**2 / mp.exp(r), -half_ln2, half_ln2, 4),
        Fit(
            "kLog",
            log_tail,
            lambda f: f**3 / mp.log1p(f) if f else f,
            root(mp.mpf(1) / 2) - 1,
            root(2) - 1,
            8,
        ),
        Fit(
            "kSin",
            lambda t: (mp.sin(root(t)) / root(t) - 1) / t,
            lambda t: t,
            mp.mpf(0),
            quarter,
            2,
        ),
        Fit(
            "kCos",
            lambda t: (mp.cos(root(t)) - 1 + t / 2) / t**2,
            lambda t: t**2,
            mp.mpf(0),
            quarter,
            2,
        ),
        odd_tail("kAsin", mp.asin, mp.mpf(1) / 2, 4),
        odd_tail("kAtan", mp.atan, mp.mpf(1), 8),
        odd_tail("kSinh", mp.sinh, mp.mpf(2), 4),
        # (m - 1) / (m + 1) of m up to the root of 2
        odd_tail("kArtanh", mp.atanh, (root(2) - 1) / (root(2) + 1), 3, ""),
        Fit(
            "kPower",
            lambda r: (mp.mpf(2) ** r - 1) / r,
            lambda r: abs(r) / mp.mpf(2) ** r,
            -mp.mpf(1) / 2,
            mp.mpf(1) / 2,
            6,
            "",
        ),
        odd_tail("kTanhInner", mp.tanh, mp.mpf("0.625"), 4),
        Fit(
            "kErfInner",
            lambda t: mp.erf(root(t)) / root(t),
            lambda t: root(t) / mp.erf(root(t)),
            mp.mpf(0),
            mp.mpf(1),
            6,
        ),
        Fit("kErfOuter", lambda x: mp.log(mp.erfc(x)), mp.erfc, mp.mpf(1), mp.mpf(4), 5),
    ]


PIECES = 32
"""Of a function in pieces: as many as two registers hold coefficients for."""


def exp_pieces() -> tuple[list[mp.mpf], list[mp.mpf]]:
    """2^(i/PIECES), and what r and r^2 are multiplied by in e^r - 1 for |r| <= ln(2)/(2 PIECES)."""
    most = mp.log(2) / (2 * PIECES)
    fit = Fit("kExp", lambda r: mp.expm1(r) / r if r else mp.mpf(1), abs, -most, most, 1)
    return [mp.mpf(2) ** (mp.mpf(i) / PIECES) for i in range(PIECES)], solve(fit)[0]


def pieces_of(
    function: Callable[[mp.mpf], mp.mpf], slope: mp.mpf, step: mp.mpf, degree: int
) -> list[Fit]:
    """function(x)/x, `slope` at 0, in d = x - centre, in steps from centre to centre."""

    def piece(centre: mp.mpf) -> Fit:
        def ratio(d: mp.mpf) -> mp.mpf:
            return function(centre + d) / (centre + d) if centre + d else slope

        low = -step / 2 if centre else mp.mpf(0)
        return Fit("pieces", ratio, lambda d: 1 / ratio(d), low, step / 2, degree)

    return [piece(i * step) for i in range(PIECES)]


def main() -> None:
    powers, slopes = exp_pieces()
    print(f"kExpPieces {{{', '.join(mp.nstr(p, 11) + 'f' for p in powers)}}}, {slopes}")
    for name, function, slope, step, degree, last in (
        ("kErfPieces", mp.erf, 2 / mp.sqrt(mp.pi), mp.mpf(1) / 8, 4, 31),
        ("kTanhPieces", mp.tanh, mp.mpf(1), mp.mpf(1) / 2, 6, 18),
    ):
        pieces = [solve(fit) for fit in pieces_of(function, slope, step, degree)]
        # The function is 1 from the centre of the last piece on, and exactly that.
        pieces[last][0][0] = 1 / (last * step)
        print(f"// {name}: weighted error {mp.nstr(max(error for _, error in pieces), 3)}")
        for power in zip(*(coefficients for coefficients, _ in pieces), strict=True):
            print(f"{{{', '.join(mp.nstr(c, 11) + 'f' for c in power)}}},")
    for fit in fits():
        coefficients, error = solve(fit)
        print(f"// {fit.name}: weighted error {mp.nstr(error, 3)}")
        print(f"{fit.name} {{{', '.join(mp.nstr(c, 11) + fit.suffix for c in coefficients)}}}")


if __name__ == "__main__":
    main()
