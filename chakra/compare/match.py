"""Which kernel of one run is which of the other: by name, shape and order, through renaming and other fusion."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from chakra.compare.spans import Kernel
from chakra.et.families import plain_name
from chakra.io.readable import without_step

#: above so many pairs of kernels of one name kernels are matched by name alone
_MOST_PAIRS = 16_000_000


@dataclass(frozen=True, slots=True)
class KernelRow:
    """Kernels that do the same in both runs.

    Attributes
    ----------
    how
        ``same``, ``renamed`` (one kernel for one), ``fused`` (several for several), ``only a``, ``only b``.
    family
        Of the first run's kernels, else of the second's.
    a, b
        Names, joined by `` + `` where there are several; empty where a run has none.
    calls_a, calls_b
        How often.
    a_ns, b_ns
        Time of all of them.
    """

    how: str
    family: str
    a: str
    b: str
    calls_a: int
    calls_b: int
    a_ns: int
    b_ns: int

    @property
    def difference_ns(self) -> int:
        """What the second run takes longer."""
        return self.b_ns - self.a_ns


#: most kernels of a run that one row of other fusion holds; longer stretches have nothing in common
_MOST_FUSED = 8

#: one match: places in the first and in the second list
_Match = tuple[str, Sequence[int], Sequence[int]]
_Key = Callable[[Kernel], tuple[str, ...]]


def match_kernels(a: Sequence[Kernel], b: Sequence[Kernel]) -> list[KernelRow]:
    """Kernels of two runs side by side, those that differ most first; times of the rows add up to those of the runs.

    Parameters
    ----------
    a, b
        Kernels of one rank in the order in which they ran.
    """
    rows: dict[tuple[str, str, str], list[int]] = {}
    families: dict[tuple[str, str, str], str] = {}
    matches = _in_order(a, b) if _looked_at(a, b) <= _MOST_PAIRS else _by_name(a, b)
    both = {plain_name(kernel.name) for kernel in a} & {plain_name(kernel.name) for kernel in b}
    for how, left, right in _own_names_first(a, b, list(matches)):
        key = (how, _joined(a, left), _joined(b, right))
        if how in ("only a", "only b") and (name := key[1] or key[2]) in both:
            # a run has more of them: the row of the others of that name tells, by its calls
            key = ("same", name, name)
        kin = {kernel.kin for kernel in (*(a[i] for i in left), *(b[j] for j in right))}
        if len(kin) == 1 and "" not in kin:
            # layers, micro-batches and steps that only one run has, or that are told by other numbers, belong to the row
            # of the others
            (name,) = kin
            key = ("same", name, name)
        row = rows.setdefault(key, [0, 0, 0, 0])
        families.setdefault(key, a[left[0]].family if left else b[right[0]].family)
        row[0] += len(left)
        row[1] += len(right)
        row[2] += sum(a[i].duration_ns for i in left)
        row[3] += sum(b[j].duration_ns for j in right)
    found = [_row(*key, families[key], *row) for key, row in rows.items()]
    return sorted(found, key=lambda row: (-abs(row.difference_ns), -max(row.a_ns, row.b_ns), row.a, row.b))


def _own_names_first(a: Sequence[Kernel], b: Sequence[Kernel], matches: Sequence[_Match]) -> Iterator[_Match]:
    """The same matches, after kernels that the order of the runs left over are matched with those of their name."""
    over: dict[str, tuple[list[int], list[int]]] = {}
    for how, *places in matches:
        if how != "same":
            for side, (kernels, mine) in enumerate(zip((a, b), places, strict=True)):
                for i in mine:
                    over.setdefault(_name(kernels[i]), ([], []))[side].append(i)
    pairs = [pair for left, right in over.values() for pair in zip(left, right, strict=False)]
    taken = {i for i, _ in pairs}, {j for _, j in pairs}
    for how, left, right in matches:
        if how == "same":
            yield how, left, right
            continue
        rest = [i for i in left if i not in taken[0]], [j for j in right if j not in taken[1]]
        if all(rest):
            yield "fused" if sum(map(len, rest)) > 2 else "renamed", *rest
        else:
            yield from (("only a", (i,), ()) for i in rest[0])
            yield from (("only b", (), (j,)) for j in rest[1])
    yield from (("same", (i,), (j,)) for i, j in pairs)


def _row(
    how: str, a: str, b: str, family: str, calls_a: int, calls_b: int, a_ns: int, b_ns: int
) -> KernelRow:
    if how == "same" and not (calls_a and calls_b):
        how = "only a" if calls_a else "only b"
    return KernelRow(how, family, a if calls_a else "", b if calls_b else "", calls_a, calls_b, a_ns, b_ns)


def _joined(kernels: Sequence[Kernel], places: Sequence[int]) -> str:
    runs: list[tuple[str, int]] = []
    for name in (kernels[i].kin or plain_name(kernels[i].name) for i in places):
        again = bool(runs) and runs[-1][0] == name
        count = runs.pop()[1] + 1 if again else 1
        runs.append((name, count))
    return " + ".join(f"{count} x {name}" if count != 1 else name for name, count in runs)


def _name(kernel: Kernel) -> str:
    """By what a kernel is matched: another run may have another number of steps."""
    return without_step(plain_name(kernel.name))


def _in_order(a: Sequence[Kernel], b: Sequence[Kernel]) -> Iterator[_Match]:
    """First kernels of one name and shape, then, between those, of one name, then of one family and shape."""
    keys: tuple[_Key, ...] = (
        lambda k: (_name(k), k.shapes),
        lambda k: (_name(k),),
        lambda k: (k.family, k.shapes) if k.shapes else (k.family,),
    )
    yield from _block(a, b, range(len(a)), range(len(b)), keys, 0)


def _block(
    a: Sequence[Kernel],
    b: Sequence[Kernel],
    left: Sequence[int],
    right: Sequence[int],
    keys: Sequence[_Key],
    level: int,
) -> Iterator[_Match]:
    apart = level == len(keys) and max(len(left), len(right)) > _MOST_FUSED
    if not left or not right or apart:
        yield from (("only a", (i,), ()) for i in left)
        yield from (("only b", (), (j,)) for j in right)
        return
    if level == len(keys):
        yield "fused" if len(left) + len(right) > 2 else "renamed", tuple(left), tuple(right)
        return
    key = keys[level]
    for equal, i1, i2, j1, j2 in _stretches([key(a[i]) for i in left], [key(b[j]) for j in right]):
        if equal:
            how = "same" if level < len(keys) - 1 else "renamed"
            for i, j in zip(left[i1:i2], right[j1:j2], strict=True):
                yield how, (i,), (j,)
        else:
            yield from _block(a, b, left[i1:i2], right[j1:j2], keys, level + 1)


def _stretches(
    a: list[tuple[str, ...]], b: list[tuple[str, ...]]
) -> Iterator[tuple[bool, int, int, int, int]]:
    """Stretches that are equal and that are not, in order: places in both lists at which each begins and ends."""
    if a == b:
        yield True, 0, len(a), 0, len(b)
        return
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        yield tag == "equal", i1, i2, j1, j2


def _looked_at(a: Sequence[Kernel], b: Sequence[Kernel]) -> int:
    """Pairs of kernels of one name, which the search for the longest equal stretch looks at: nothing in equal runs."""
    left, right = [_name(kernel) for kernel in a], [_name(kernel) for kernel in b]
    if left == right:
        return 0
    often = Counter(right)
    return sum(often[name] for name in left)


def _by_name(a: Sequence[Kernel], b: Sequence[Kernel]) -> Iterator[_Match]:
    """Without regard to order, for runs too long to align."""
    places: dict[str, tuple[list[int], list[int]]] = {}
    for side, kernels in enumerate((a, b)):
        for i, kernel in enumerate(kernels):
            places.setdefault(_name(kernel), ([], []))[side].append(i)
    for left, right in places.values():
        both = min(len(left), len(right))
        yield from (("same", (i,), (j,)) for i, j in zip(left[:both], right[:both], strict=True))
        yield from (("only a", (i,), ()) for i in left[both:])
        yield from (("only b", (), (j,)) for j in right[both:])
