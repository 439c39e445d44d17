"""Time, steps and bytes of every collective algorithm, as formulas; the tables of docs/reference/collective-costs.md.

python tools/collective_formulas.py            rewrite the tables
python tools/collective_formulas.py --check    fail if they are not in step

A formula is one expression. It is printed in the guide, and tests/collectives/test_formulas.py computes it and compares
it with the engine. Names in it: n members, d bytes that enter the phase, e endpoint delay, L = log2 n rounded down,
U = log2 n rounded up, w window, s segments; l(m, k) delay of m bytes to the member k places on (1 if not said), far(m)
the longest of them, o(m) time for which m bytes keep a link busy, r(m) reduction; Sum(k, a, b, x) = x for k = a ... b.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from made_files import renewed, require_each_once, write_or_check

from chakra.replay.collectives.steps import Do

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "collective-costs.md"

AR, RS, AG, A2A = Do.ALL_REDUCE, Do.REDUCE_SCATTER, Do.ALL_GATHER, Do.ALL_TO_ALL
BC, RD = Do.BROADCAST, Do.REDUCE
WORDS = {
    AR: "all-reduce",
    RS: "reduce-scatter",
    AG: "all-gather",
    A2A: "all-to-all",
    BC: "broadcast",
    RD: "reduce",
}


@dataclass(frozen=True, slots=True)
class Formula:
    """A phase of one algorithm: time of a chunk in ns, steps, and bytes that the busiest NPU sends.

    `exact` says for which n the time holds to the ns: "any", "power of two" or "" (it is a bound from above).
    `equal` says that all distances must be equal for it (Switch, FullyConnected), `switch` that it runs on a Switch only.
    """

    do: Do
    time: str
    steps: str
    sent: str
    exact: str = "any"
    equal: bool = False
    switch: bool = False


#: blocks that Bruck's all-gather and its mirror image move in step k, and that its all-to-all moves
_SHARE = "min(2**k, n - 2**k)"
_BITS = "bits(k)"
_HALVES = "Sum(k, 1, L, l(d/2**k, n/2**k) + e + r(d/2**k))"
_BACK = "Sum(k, 1, L, l(d/2**k, n/2**k) + e)"
_GATHER = "e + Sum(k, 0, L - 1, l(d*2**k, 2**k) + e)"

FORMULAS: dict[str, tuple[Formula, ...]] = {
    "ring": (
        Formula(AR, "e + 2*(n - 1)*(l(d/n) + e) + (n - 1)*r(d/n)", "2*(n - 1)", "2*(n - 1)*(d/n)"),
        Formula(RS, "e + (n - 1)*(l(d/n) + e + r(d/n))", "n - 1", "(n - 1)*(d/n)"),
        Formula(AG, "e + (n - 1)*(l(d) + e)", "n - 1", "(n - 1)*d"),
        Formula(A2A, "e + n*(n - 1)/2*(l(d/n) + e)", "n*(n - 1)/2", "n*(n - 1)/2*(d/n)"),
    ),
    "direct": (
        Formula(AR, "3*e + 2*l(d/n) + r(d/n)", "2", "2*(n - 1)*(d/n)", equal=True),
        Formula(RS, "2*e + far(d/n) + r(d/n)", "1", "(n - 1)*(d/n)"),
        Formula(AG, "2*e + far(d)", "1", "(n - 1)*d"),
        Formula(A2A, "2*e + far(d/n)", "1", "(n - 1)*(d/n)"),
    ),
    "direct1": (
        Formula(
            AR,
            "e + 2*Sum(k, 1, n - 1, l(d/n, k) + e) + ceil((n - 1)/2)*r(d/n)",
            "2*(n - 1)",
            "2*(n - 1)*(d/n)",
        ),
        Formula(RS, "e + Sum(k, 1, n - 1, l(d/n, k) + e) + ceil((n - 1)/2)*r(d/n)", "n - 1", "(n - 1)*(d/n)"),
        Formula(AG, "e + Sum(k, 1, n - 1, l(d, k) + e)", "n - 1", "(n - 1)*d"),
        Formula(A2A, "e + Sum(k, 1, n - 1, l(d/n, k) + e)", "n - 1", "(n - 1)*(d/n)"),
    ),
    "direct<w>": (
        Formula(AG, "e + ceil((n - 1)/w)*(l(d) + e)", "ceil((n - 1)/w)", "(n - 1)*d", equal=True),
        Formula(A2A, "e + ceil((n - 1)/w)*(l(d/n) + e)", "ceil((n - 1)/w)", "(n - 1)*(d/n)", equal=True),
    ),
    "halvingDoubling": (
        Formula(
            AR,
            "e + 2*Sum(k, 1, L, l(d/2**k, 2**(k - 1)) + e) + Sum(k, 2, L, r(d/2**k))",
            "2*L",
            "2*Sum(k, 1, L, floor(d/2**k))",
            "power of two",
        ),
        Formula(
            RS,
            "e + Sum(k, 1, L, l(d/2**k, 2**(k - 1)) + e) + Sum(k, 2, L, r(d/2**k))",
            "L",
            "Sum(k, 1, L, floor(d/2**k))",
            "power of two",
        ),
        Formula(AG, "e + Sum(k, 1, L, l(d*2**(k - 1), n/2**k) + e)", "L", "(n - 1)*d", "power of two"),
    ),
    "doubleBinaryTree": (
        Formula(
            AR,
            "e + 2*Sum(k, 0, L - 1, l(d, 2**k) + e) + (2*L - 1)*r(d)",
            "2*L",
            "d if n == 2 else 3*d",
            "power of two",
        ),
    ),
    "rabenseifner": (
        Formula(
            AR,
            f"e + {_HALVES} + {_BACK}",
            "2*L",
            "2*Sum(k, 1, L, ceil(d/2**k))",
            "power of two",
        ),
        Formula(RS, f"e + {_HALVES}", "L", "Sum(k, 1, L, ceil(d/2**k))", "power of two"),
        Formula(AG, _GATHER, "L", "(n - 1)*d", "power of two"),
    ),
    "recursiveDoubling": (
        Formula(AR, "e + Sum(k, 0, L - 1, l(d, 2**k) + e + r(d))", "L", "L*d", "power of two"),
        Formula(RS, f"e + {_HALVES}", "L", "Sum(k, 1, L, ceil(d/2**k))", "power of two"),
        Formula(AG, _GATHER, "L", "(n - 1)*d", "power of two"),
    ),
    "bruck": (
        Formula(
            AR,
            f"e + Sum(k, 0, U - 1, l({_SHARE}*d/n, 2**k) + e + r({_SHARE}*d/n))"
            f" + Sum(k, 0, U - 1, l({_SHARE}*d/n, 2**k) + e)",
            "2*U",
            f"2*Sum(k, 0, U - 1, ceil({_SHARE}*d/n))",
        ),
        Formula(
            RS,
            f"e + Sum(k, 0, U - 1, l({_SHARE}*d/n, 2**k) + e + r({_SHARE}*d/n))",
            "U",
            f"Sum(k, 0, U - 1, ceil({_SHARE}*d/n))",
        ),
        Formula(AG, f"e + Sum(k, 0, U - 1, l({_SHARE}*d, 2**k) + e)", "U", "(n - 1)*d"),
        Formula(
            A2A,
            f"e + Sum(k, 0, U - 1, l({_BITS}*d/n, 2**k) + e)",
            "U",
            f"Sum(k, 0, U - 1, ceil({_BITS}*d/n))",
        ),
    ),
    "binomialTree": (
        Formula(
            AR,
            "e + Sum(k, 0, U - 1, l(d, 2**k) + e + r(d)) + Sum(k, 0, U - 1, l(d, 2**k) + e)",
            "2*U",
            "U*d",
            "power of two",
        ),
        Formula(BC, "e + Sum(k, 0, U - 1, l(d, 2**k) + e)", "U", "U*d", "power of two"),
        Formula(RD, "e + Sum(k, 0, U - 1, l(d, 2**k) + e + r(d))", "U", "d", "power of two"),
    ),
    "chain": (
        Formula(
            AR,
            "e + (n - 1)*(2*l(d/s) + 2*e + r(d/s)) + (s - 1)*(2*o(d/s) + 2*e + r(d/s))",
            "2*(n - 2 + s)",
            "s*ceil(d/s) if n == 2 else 2*s*ceil(d/s)",
        ),
        Formula(BC, "e + (n - 1)*(l(d/s) + e) + (s - 1)*(o(d/s) + e)", "n - 2 + s", "s*ceil(d/s)"),
        Formula(
            RD,
            "e + (n - 1)*(l(d/s) + e + r(d/s)) + (s - 1)*(o(d/s) + e + r(d/s))",
            "n - 2 + s",
            "s*ceil(d/s)",
        ),
    ),
    "scatterAllGather": (
        Formula(
            BC,
            "e + Sum(k, 1, L, l(d/2**k, n/2**k) + e) + Sum(k, 0, L - 1, l(2**k*d/n, 2**k) + e)",
            "2*U",
            "2*Sum(k, 1, L, ceil(d/2**k))",
            "power of two",
        ),
        Formula(
            RD,
            "e + Sum(k, 1, L, l(d/2**k, n/2**k) + e + r(d/2**k)) + Sum(k, 0, L - 1, l(2**k*d/n, 2**k) + e)",
            "2*U",
            "Sum(k, 1, L, ceil(d/2**k)) + ceil(d/2)",
            "power of two",
        ),
    ),
    "inNetwork": (
        Formula(AR, "2*e + l(d)", "2", "d", switch=True),
        Formula(RS, "2*e + l(d)", "2", "d", switch=True),
        Formula(AG, "2*e + l(n*d)", "2", "d", switch=True),
    ),
    "pipelinedTree": (Formula(AR, "e + 4*(U + s)*(far(d/(2*s)) + e + r(d/(2*s)))", "4*(U + s)", "3*d", ""),),
}


def value(expression: str, names: dict[str, Any]) -> Any:
    """The value of an expression; `names` has n, d, e, l, far, o, r and what else it needs."""

    class Sums(ast.NodeTransformer):
        """Sum(k, a, b, x) -> sum(x for k in whole(a, b))."""

        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            if not (isinstance(node.func, ast.Name) and node.func.id == "Sum"):
                return node
            index, first, last, term = node.args
            assert isinstance(index, ast.Name)
            arguments = ast.arguments([], [ast.arg(index.id)], None, [], [], None, [])
            return ast.Call(ast.Name("Sum", ast.Load()), [first, last, ast.Lambda(arguments, term)], [])

    def total(first: int, last: int, term: Callable[[int], Any]) -> Any:
        return sum((term(k) for k in range(int(first), int(last) + 1)), Fraction(0))

    tree = ast.fix_missing_locations(Sums().visit(ast.parse(expression, mode="eval")))
    n = names["n"]
    known = {
        "L": n.bit_length() - 1,
        "U": (n - 1).bit_length(),
        "Sum": total,
        "min": min,
        "ceil": lambda x: -(-x // 1),
        "floor": lambda x: x // 1,
        "bits": lambda k: sum(i >> k & 1 for i in range(n)),
    }
    exact = {key: Fraction(given) if isinstance(given, int) else given for key, given in names.items()}
    # fractions divide exactly; the formulas above and no other text come here
    code = compile(tree, "<formula>", "eval")
    return eval(code, {"__builtins__": {}} | known | exact)


# --------------------------------------------------------------------------------------------------------------
# Printing


def shown(expression: str) -> str:
    """An expression in the signs of the guide."""
    return _text(ast.parse(expression, mode="eval").body)


def _text(node: ast.expr, *, tight: bool = False) -> str:
    """Text of a node; `tight` puts what is not one word into brackets."""
    if isinstance(node, ast.IfExp):  # written as: if n == 2
        return f"{_text(node.orelse)} (n > 2), {_text(node.body)} (n = 2)"
    if isinstance(node, ast.Call):
        return _call(node)
    if not isinstance(node, ast.BinOp):
        return ast.unparse(node)
    a, b = node.left, node.right
    if isinstance(node.op, ast.Pow):
        power = _text(b)
        return f"{_text(a, tight=True)}^{power if len(power) == 1 else f'({power})'}"
    if isinstance(node.op, ast.Div):
        return f"{_factor(a)}/{_text(b, tight=True)}"
    if isinstance(node.op, ast.Mult):
        first, second = _factor(a), _factor(b)
        near = re.fullmatch(r"\d+", first) if not second[0].isdigit() else None
        if second.startswith("("):
            near = near or re.fullmatch(r"\w+|.*\)", first)
        out = first + ("" if near else "·") + second
        return f"({out})" if tight else out
    out = f"{_text(a)} {'+' if isinstance(node.op, ast.Add) else '-'} {_text(b)}"
    return f"({out})" if tight else out


def _factor(node: ast.expr) -> str:
    """Text of a factor: sums in brackets."""
    return _text(node, tight=isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub))


def _call(node: ast.Call) -> str:
    assert isinstance(node.func, ast.Name)
    name, given = node.func.id, node.args
    if name == "Sum":
        head = f"Σ[{_text(given[0])}={_text(given[1])}..{_text(given[2])}]"
        body = _text(given[3])
        return f"{head} ({body})" if " " in body else f"{head} {body}"
    if name == "l":
        return f"ℓ({', '.join(map(_text, given))})"
    if name == "far":
        return f"ℓmax({_text(given[0])})"
    if name in ("ceil", "floor"):
        left, right = "⌈⌉" if name == "ceil" else "⌊⌋"
        return f"{left}{_text(given[0])}{right}"
    if name == "bits":
        return "b[k]"
    if name == "min":
        return "c[k]"
    return f"{name}({', '.join(map(_text, given))})"


def table(name: str) -> str:
    """The Markdown table of one algorithm."""
    rows = ["| kind | time of a chunk, ns | steps | bytes sent per NPU |", "| --- | --- | --- | --- |"]
    for formula in FORMULAS[name]:
        limit = {"any": "", "power of two": "n = 2^L: ", "": "at most about "}[formula.exact]
        where = " (equal distances: Switch, FullyConnected)" if formula.equal else ""
        where = " (Switch)" if formula.switch else where
        rows.append(
            f"| {WORDS[formula.do]} | {limit}`{shown(formula.time)}`{where} | `{shown(formula.steps)}` | "
            f"`{shown(formula.sent)}` |"
        )
    return "\n".join(rows) + "\n"


def main() -> None:
    """Rewrite or check the page."""
    page = PAGE.read_text(encoding="utf-8")
    require_each_once(page, "formulas", FORMULAS)
    write_or_check({PAGE: renewed(page, "formulas", FORMULAS, table)}, "collective_formulas.py")


if __name__ == "__main__":
    main()
