"""Numbers and names as people read them."""

import math
import re
from collections.abc import Iterable, Sequence

#: per cents from which on tenths show something
_LEAST_TENTH = 0.05
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


def duration_text(nanoseconds: int) -> str:
    """A duration with its unit and three significant digits or so.

    >>> duration_text(405520), duration_text(999), duration_text(61_000_000_000)
    ('405.5 µs', '999 ns', '61 s')
    """
    for factor, unit in _UNITS:
        if abs(nanoseconds) >= factor:
            return f"{_short(nanoseconds / factor)} {unit}"
    return f"{nanoseconds} ns"


def signed_duration_text(nanoseconds: int) -> str:
    """A difference of times with its sign.

    >>> signed_duration_text(5000), signed_duration_text(-999), signed_duration_text(0)
    ('+5 µs', '-999 ns', '0 ns')
    """
    return f"{'+' if nanoseconds > 0 else '-' if nanoseconds < 0 else ''}{duration_text(abs(nanoseconds))}"


def compared_durations(first: int, second: int) -> tuple[str, str, str]:
    """Two durations that stand beside each other, and how much longer the second is.

    Both are written with four digits where they have one unit and only one of them needs them.

    >>> compared_durations(150_000_000, 149_900_000), compared_durations(2_000, 900)
    (('150.0 ms', '149.9 ms', '-100 µs'), ('2 µs', '900 ns', '-1.1 µs'))
    """
    texts = duration_text(first), duration_text(second)
    (a, unit), (b, other) = (text.split() for text in texts)
    if unit == other and ("." in a) != ("." in b):
        factor = next(factor for factor, name in _UNITS if name == unit)
        texts = f"{first / factor:#.4g} {unit}", f"{second / factor:#.4g} {unit}"
    return *texts, signed_duration_text(second - first)


def bytes_text(count: int) -> str:
    """A size with its binary unit.

    >>> bytes_text(1048576), bytes_text(1500), bytes_text(12)
    ('1 MiB', '1.465 KiB', '12 B')
    """
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(value) < 1024 or unit == "PiB":
            return f"{_short(value)} {unit}" if unit != "B" else f"{count} B"
        value /= 1024
    raise AssertionError("unreachable")


def decimal_bytes_text(count: int) -> str:
    """A size with its decimal unit, in which capacities of memories are told.

    >>> decimal_bytes_text(80_000_000_000), decimal_bytes_text(553_312_000), decimal_bytes_text(12)
    ('80 GB', '553.3 MB', '12 B')
    """
    for factor, unit in ((10**15, "PB"), (10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if abs(count) >= factor:
            return f"{_short(count / factor)} {unit}"
    return f"{count} B"


def percent_text(share: float) -> str:
    """A share in per cent, with thousands separated.

    >>> percent_text(0.38312), percent_text(23.0), percent_text(0.000123), percent_text(0.99996)
    ('38.3 %', '2,300.0 %', '0.0123 %', '99.996 %')
    """
    return f"{percent_figure(share)} %"


def whole_percent_text(share: float) -> str:
    """A share in whole per cents, but for one that would read as nothing or as all.

    >>> whole_percent_text(0.38312), whole_percent_text(0.002), whole_percent_text(0.998), whole_percent_text(1.0)
    ('38 %', '0.2 %', '99.8 %', '100 %')
    """
    whole = round(100 * share)
    if (whole == 0 and share) or (abs(whole) == 100 and _from_all(share)):
        return percent_text(share)
    return f"{whole:,} %"


def signed_percent_text(change: float) -> str:
    """A change in per cent of what it was before, with its sign.

    >>> signed_percent_text(0.38312), signed_percent_text(-0.0004), signed_percent_text(0.0)
    ('+38.3 %', '-0.04 %', '+0.0 %')
    """
    return f"{'' if change < 0 else '+'}{percent_text(change)}"


def percent_figure(share: float) -> str:
    """Per cents of a share without their sign: tenths, three significant digits of what these would not show.

    What these would not show is a little of something, and the little that something lacks to be all.

    >>> percent_figure(0.38312), percent_figure(0.0), percent_figure(0.0004), percent_figure(0.00006)
    ('38.3', '0.0', '0.04', '0.006')
    >>> percent_figure(0.9999), percent_figure(1.0), percent_figure(1e-12)
    ('99.99', '100.0', '1e-10')
    """
    decimals = percent_decimals(share)
    text = f"{100 * share:,.{decimals}f}"
    if decimals == 1:
        return text
    return text.rstrip("0").rstrip(".") if text.strip("-0.") else f"{100 * share:.3g}"


def percent_decimals(share: float) -> int:
    """Decimals with which the per cents of a share say something: one, up to six next to nothing and next to all.

    >>> percent_decimals(0.38312), percent_decimals(0.0), percent_decimals(0.0004), percent_decimals(1e-12)
    (1, 1, 4, 6)
    >>> percent_decimals(0.9999), percent_decimals(1.0), percent_decimals(0.1 + 0.2 + 0.7 - 1e-15)
    (4, 1, 1)
    """
    value = abs(100 * share)
    near_all = value > 50
    value = _from_all(share) if near_all else value
    shown = value == 0 or value > _LEAST_TENTH or (value == _LEAST_TENTH and not near_all)
    return 1 if shown else min(2 - math.floor(math.log10(value)), 6)


def _from_all(share: float) -> float:
    """Per cents between a share and all; what only rounding leaves is nothing."""
    return round(abs(100 * abs(share) - 100), 6)


def range_words(numbers: Sequence[int]) -> list[str]:
    """Ranges of ascending numbers.

    >>> range_words([0, 1, 2, 3, 8])
    ['0-3', '8']
    """
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return [f"{first}-{last}" if last > first else f"{first}" for first, last in ranges]


def ranges_text(numbers: Sequence[int], shown: int = 3) -> str:
    """Ascending numbers as ranges; the first few of these, then how many numbers there are.

    >>> ranges_text([0, 1, 2, 3, 8]), ranges_text([0, 2, 4, 6])
    ('0-3, 8', '0, 2, 4, … (4)')
    """
    ranges = range_words(numbers)
    return ", ".join(ranges[:shown]) + (f", … ({len(numbers)})" if len(ranges) > shown else "")


def count_text(count: int) -> str:
    """A count with thousands separated.

    >>> count_text(1234567)
    '1,234,567'
    """
    return f"{count:,}"


def told_once(found: Iterable[tuple[str, str, Sequence[int]]]) -> list[str]:
    """Texts behind the names of their files, those that several files have once, with the ranks of all.

    >>> told_once([("a.0", "is old", [0]), ("a.1", "is odd", [1]), ("a.2", "is old", [2])])
    ['a.0 (and alike of ranks 0, 2): is old', 'a.1: is odd']
    """
    by_text: dict[str, list[tuple[str, Sequence[int]]]] = {}
    for source, text, ranks in found:
        by_text.setdefault(text, []).append((source, ranks))
    lines = []
    for text, files in by_text.items():
        ranks = sorted({rank for _, some in files for rank in some})
        alike = f" (and alike of ranks {ranges_text(ranks)})" if len(files) > 1 else ""
        lines.append(f"{files[0][0]}{alike}: {text}")
    return lines


def figure_text(value: float) -> str:
    """A figure with four significant digits, or all before the point, and thousands separated.

    >>> figure_text(1067.03), figure_text(0.0123456), figure_text(123456.7)
    ('1,067', '0.01235', '123,457')
    """
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def number_text(value: float) -> str:
    """A number with six significant digits, or all before the point; never as a power of ten where it is large.

    >>> number_text(2e7), number_text(989.5), number_text(0.00012)
    ('20000000', '989.5', '0.00012')
    """
    return f"{value:g}" if abs(value) < 1_000_000 else f"{value:.0f}"


def grouped_text(value: float) -> str:
    """The same with thousands separated.

    >>> grouped_text(2e6), grouped_text(5491.19374), grouped_text(0.5)
    ('2,000,000', '5,491.19', '0.5')
    """
    return f"{value:,g}" if abs(value) < 1_000_000 else f"{value:,.0f}"


def price_text(value: float) -> str:
    """An amount of money: hundredths of whole units, three significant digits of less than one.

    >>> price_text(10240), price_text(38.7365), price_text(0.0012345)
    ('10,240', '38.74', '0.00123')
    """
    return f"{value:,.2f}".removesuffix(".00") if abs(value) >= 1 else f"{value:.3g}"


def beside_prediction(low: float, high: float, predicted: float) -> str:
    """Why an interval does not hold the prediction that it belongs to; empty where it does.

    >>> beside_prediction(10.4, 15.55, 16.69), beside_prediction(1.1, 1.4, 1), beside_prediction(0.9, 1.1, 1)
    ('such rows were measured faster than predicted', 'such rows were measured slower than predicted', '')
    """
    if low <= predicted <= high:
        return ""
    return f"such rows were measured {'faster' if high < predicted else 'slower'} than predicted"


def nouns(count: int, noun: str) -> str:
    """The noun alone, as it stands behind a count.

    >>> nouns(1, "rank"), nouns(0, "dependency"), nouns(2, "leaf switch")
    ('rank', 'dependencies', 'leaf switches')
    """
    if count == 1:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def with_article(words: str) -> str:
    """Words that begin with a name, behind the article for its sound.

    >>> with_article("all_reduce"), with_article("int32_list"), with_article("uint64"), with_article("reduce")
    ('an all_reduce', 'an int32_list', 'a uint64', 'a reduce')
    """
    sound = words.lower()
    vowel = sound.startswith(tuple("aeiou")) and not sound.startswith(("uni", "uint", "use", "one", "eu"))
    return f"{'an' if vowel else 'a'} {words}"


def verb(count: int, one: str, many: str) -> str:
    """The verb behind a count of things.

    >>> verb(1, "has", "have"), verb(0, "has", "have")
    ('has', 'have')
    """
    return one if count == 1 else many


def counted(count: int, noun: str) -> str:
    """A count with its noun, in the singular for one.

    >>> counted(1, "factor"), counted(2000, "NPU")
    ('1 factor', '2000 NPUs')
    """
    return f"{count} {nouns(count, noun)}"


def counted_text(count: int, noun: str) -> str:
    """As `counted`, with thousands separated.

    >>> counted_text(1, "node"), counted_text(2000, "node")
    ('1 node', '2,000 nodes')
    """
    return f"{count_text(count)} {nouns(count, noun)}"


def _short(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


#: line separators and the controls of writing direction, which make a name look like another text
_LAYOUT = frozenset("\u2028\u2029\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    r"""The text with what no drawing or XML file can hold written as escapes: control characters, lone
    surrogates.

    >>> printable('a\x00b\n')
    'a\\x00b\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if _is_plain(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def _is_plain(char: str) -> bool:
    code = ord(char)
    return not (
        code < 0x20
        or 0x7F <= code < 0xA0
        or 0xD800 <= code < 0xE000
        or 0xFDD0 <= code < 0xFDF0
        or code & 0xFFFE == 0xFFFE
        or char in _LAYOUT
    )


def shortened(text: str, limit: int) -> str:
    """At most ``limit`` characters, the middle cut out, so that both a scope's start and an operator's end
    show. No word is cut that is shorter than half of its side.

    >>> shortened("layers.11.attention.softmax", 15), shortened("rails of 64 ports sprayed oversubscribed 4", 40)
    ('layers.…softmax', 'rails of 64 ports … oversubscribed 4')
    """
    if len(text) <= limit:
        return text
    left = limit // 2
    right = limit - left - 1
    before, after = text[:left], text[-right:] if right > 0 else ""
    if not text[left].isspace() and (space := before.rfind(" ")) >= left // 2:
        before = before[: space + 1]
    if not text[-right - 1].isspace() and 0 <= (space := after.find(" ")) <= right // 2:
        after = after[space:]
    return f"{before}…{after}"


#: numbers in names that count: by themselves, behind one capital (F3: forward of micro-batch 3), and behind these words
_COUNTS = re.compile(
    r"(?<![A-Za-z0-9])[0-9]+(?![0-9]*x[0-9])|(?<=\b[A-Z])[0-9]+|(?<=layer)[0-9]+|(?<=layers)[0-9]+|(?<=encoder)[0-9]+|(?<=block)[0-9]+|(?<=bucket)[0-9]+|(?<=chunk)[0-9]+"
    r"|(?<=stage)[0-9]+"
)


#: how names of generated nodes begin that say to which of several steps they belong, and to which pass: its micro-batch
#: and its chunk of a stage, or its step of decoding and its micro-batch
_STEP = re.compile(r"step[0-9]+[. ](?=\S)")
_PASS = re.compile(r"([A-Z])[0-9]+(?:\.[0-9]+)*(?= )")


def without_step(name: str) -> str:
    """A node's name without which of several steps it belongs to.

    >>> without_step("step1.F3 layer12.fc1")
    'F3 layer12.fc1'
    """
    step = _STEP.match(name)
    return name[step.end() :] if step else name


def counted_name(name: str) -> str:
    """A node's name with ``#`` for the numbers that count layers and micro-batches; those of fc1 and fc2 stay.

    Which step, and which chunk of a stage, is left out.

    >>> counted_name("F3 layer12.fc1"), counted_name("step1.F3.0 layer12.fc1"), counted_name("gemm_128x64_tn")
    ('F# layer#.fc1', 'F# layer#.fc1', 'gemm_128x64_tn')
    """
    return _COUNTS.sub("#", _PASS.sub(r"\1#", without_step(name), count=1))
