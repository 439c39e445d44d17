"""Reading a text workload: a stream of words, every complaint with its line.

Line breaks, blank lines, tabs and runs of blanks mean nothing, as in ASTRA-sim 1.0. Where 1.0 reads on (an
unknown collective word, a wrong number, words after the last layer) this reader stops with an error.
"""

import difflib
import itertools
import os
from collections.abc import Iterable

from chakra.arguments import checked
from chakra.converters.text.grammar import CommWord, Layer, Layout, Step, TextWorkload
from chakra.converters.text.policies import POLICIES, UPSTREAM_POLICIES, Backward, Header
from chakra.errors import ConversionError
from chakra.io.digits import is_whole, whole_number
from chakra.io.files import EXECUTION_TRACE, kind_of, read_bytes
from chakra.io.readable import counted

#: Largest time and size: what an int64 count of ns (times are at most us) and an int64 of bytes can hold.
MAX_TIME = (1 << 63) // 1000 - 1
MAX_BYTES = (1 << 63) - 1

#: Labels by which a header is SimAI's (AICB), whose order is free, and the fields that they give
_SIMAI_LABELS = {
    "model_parallel_NPU_group:": "tp", "ep:": "ep", "expert_parallel_npu_group:": "ep", "pp:": "pp", "vpp:": "",
    "vp:": "", "ga:": "micro_batches", "all_gpus:": "all_gpus", "pp_comm:": "pp_comm_bytes", "pp_comm": "pp_comm_bytes",
}  # fmt: skip
#: labels that ASTRA-sim 1.0 has as well
_OWN_LABELS = ("model_parallel_NPU_group:", "checkpoints:", "checkpoint_initiates:")
#: Words of headers that other tools derived from this format; none of them can be read as 1.0 means them.
_FOREIGN_LABELS = {label for label in _SIMAI_LABELS if label not in _OWN_LABELS} | {"dp:"}
#: words behind which a group may be named
_GROUPED = [str(word) for word in CommWord if word is not CommWord.NONE]
#: groups that a word of a SimAI file may name behind its collective
_GROUPS = ("_DP_EP", "_EP")


@checked
def read_workload(path: str | os.PathLike[str], *, as_upstream: bool = False) -> TextWorkload:
    """Read a text workload (may be gzipped).

    Parameters
    ----------
    path
        The file.
    as_upstream
        Read it line by line as upstream's converter does: unknown collective words pass, words after a
        layer's twelfth are ignored, the header's count need not be the number of layers, and only the
        policies it knows are taken.

    Raises
    ------
    ConversionError
        Naming file, line, word and what would be right.
    """
    source = os.fspath(path)
    data = read_bytes(path, error=ConversionError)
    if kind_of(data[: 1 << 16]) == EXECUTION_TRACE:
        raise ConversionError(f"{source}: is an execution trace already, not a text workload")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConversionError(f"{source}: byte {error.start}: not text (UTF-8 expected)") from None
    if "\0" in text:
        raise ConversionError(f"{source}: holds NUL bytes: not a text workload")
    return parse_workload(text, source, as_upstream=as_upstream)


@checked
def parse_workload(text: str, source: str = "<text>", *, as_upstream: bool = False) -> TextWorkload:
    """Parse the text of a workload; ``source`` names it in messages. See `read_workload`.

    Parameters
    ----------
    text
        Text of the workload.
    source
        What it is called in messages.
    as_upstream
        Read leniently where upstream's converter does.

    Raises
    ------
    ConversionError
        Naming the line, the word and what would be right.
    """
    words = _Words(text, source)
    policy = words.choice("a parallelism policy", UPSTREAM_POLICIES if as_upstream else POLICIES)
    bottom: int | None = None
    group: int | None = None
    checkpoints: frozenset[int] = frozenset()
    initiators: frozenset[int] = frozenset()
    header = POLICIES[policy].header
    layout: Layout | None = None
    if header in (Header.GROUP, Header.GROUP_AND_CHECKPOINTS) and words.labels_of_simai():
        layout, checkpoints, initiators = _simai_header(words)
        group = layout.tp
    elif header is Header.LAST_BOTTOM_LAYER:
        bottom = words.number("the index of the last bottom layer")
    elif header in (Header.GROUP, Header.GROUP_AND_CHECKPOINTS):
        words.label("model_parallel_NPU_group:")
        group = words.number("the number of NPUs of a model-parallel group", least=1)
        if header is Header.GROUP_AND_CHECKPOINTS:
            words.label("checkpoints:")
            checkpoints = words.numbers("checkpoint layers")
            words.label("checkpoint_initiates:")
            initiators = words.numbers("layers that initiate a recomputation")
    count = words.number("the number of layers", least=0 if as_upstream else 1)
    if as_upstream:
        layers = tuple(_layer(line, None, strict=False) for line in words.rest_by_line())
        if not layers:
            raise ConversionError(f"{source}: no layer follows the header")
    else:
        layers = _layers(words, count, per_layer=POLICIES[policy].per_layer, groups=layout is not None)
    workload = TextWorkload(
        source,
        policy,
        layers,
        count,
        bottom,
        group,
        checkpoints,
        initiators,
        layout,
        text.replace("\r\n", "\n").replace("\r", "\n"),
    )
    if not as_upstream:
        _check(workload)
    return workload


def _simai_header(words: "_Words") -> tuple[Layout, frozenset[int], frozenset[int]]:
    """The labels of a SimAI header, in any order, up to the number of layers."""
    found: dict[str, int] = {}
    chosen: dict[str, frozenset[int]] = {}
    while not words.at_end() and not is_whole(words.peek()):
        label = words.word("a label")
        if label in _OWN_LABELS[1:]:
            if label in chosen:
                raise words.error(f"{label!r} is there twice", back=1)
            chosen[label] = words.numbers(
                "checkpoint layers" if label == _OWN_LABELS[1] else "initiating layers"
            )
            continue
        if label not in _SIMAI_LABELS:
            known = ", ".join((*_SIMAI_LABELS, *_OWN_LABELS[1:]))
            raise words.error(f"{label[:60]!r} is not a label of a SimAI header (labels: {known})", back=1)
        name = _SIMAI_LABELS[label]
        if name in found:
            raise words.error(f"{label!r} is there twice", back=1)
        least = 1 if name in ("tp", "ep", "pp", "all_gpus") else 0
        value = words.number(f"the number behind {label!r}", least=least, fraction=name == "pp_comm_bytes")
        if name:
            found[name] = value
    if "tp" not in found:
        raise words.error("the header has no model_parallel_NPU_group:", back=1)
    words.names_experts = "ep" in found
    layout = Layout(**found)
    each = layout.tp * layout.pp
    if layout.all_gpus is not None and layout.all_gpus % each:
        raise words.error(
            f"all_gpus ({layout.all_gpus}) must be a multiple of model_parallel_NPU_group x pp = {each}",
            back=1,
        )
    return layout, chosen.get(_OWN_LABELS[1], frozenset()), chosen.get(_OWN_LABELS[2], frozenset())


def _layers(words: "_Words", count: int, *, per_layer: bool, groups: bool = False) -> tuple[Layer, ...]:
    layers = []
    for index in range(count):
        if words.at_end():
            raise ConversionError(
                f"{words.source}: the header says {counted(count, 'layer')}, but the file ends after {index}"
            )
        layers.append(_layer(words, index, strict=True, per_layer=per_layer, groups=groups))
    if not words.at_end():
        raise words.error(
            f"{words.peek()!r} follows the last layer; the header says {counted(count, 'layer')} (a layer has "
            f"{counted(13 if per_layer else 12, 'word')})"
        )
    return tuple(layers)


def _layer(
    words: "_Words", index: int | None, *, strict: bool, per_layer: bool = False, groups: bool = False
) -> Layer:
    name = words.word("a layer's name" if index is None else f"the name of layer {index}")
    whose = f"layer {name!r}"
    reserved = words.word(f"the reserved number of {whose}")
    if strict and not is_whole(reserved.removeprefix("-")):
        raise words.error(
            f"the second word of {whose} is {reserved!r}; a whole number is expected (-1: unused)"
        )

    def step(what: str) -> Step:
        time = words.number(f"the {what} time of {whose}", most=MAX_TIME)
        told = f"the {what} communication of {whose}"
        group = ""
        if groups:
            word, group = words.grouped(told)
        else:
            word = words.choice(told, CommWord) if strict else words.word(told)
        return Step(time, word, words.number(f"the {what} bytes of {whose}", most=MAX_BYTES), group)

    forward, input_gradient, weight_gradient = (
        step("forward"),
        step("input-gradient"),
        step("weight-gradient"),
    )
    what = f"the update time of {whose}"
    update = words.number(what, most=MAX_TIME) if strict else 0 * len(words.word(what))
    policy = None
    if per_layer:
        allowed = [word for word, row in POLICIES.items() if not row.per_layer]
        policy = words.choice(f"the policy of {whose}", allowed)
    return Layer(name, forward, input_gradient, weight_gradient, update, policy)


def _check(workload: TextWorkload) -> None:
    """Check what the header says about layers, now that they are known."""
    n = len(workload.layers)
    bottom = workload.last_bottom_layer
    if bottom is not None and bottom >= n:
        raise ConversionError(
            f"{workload.source}: line 1: the last bottom layer is {bottom}, but the layers are 0 to {n - 1}"
        )
    for what, chosen in (
        ("checkpoints", workload.checkpoints),
        ("checkpoint_initiates", workload.initiators),
    ):
        for layer in sorted(chosen):
            if layer >= n:
                raise ConversionError(
                    f"{workload.source}: {what} names layer {layer}, but the layers are 0 to {n - 1}"
                )
    for layer in sorted(workload.initiators):
        if layer < min(workload.checkpoints, default=n):
            raise ConversionError(
                f"{workload.source}: checkpoint_initiates names layer {layer}, but no checkpoint lies at "
                f"or below it"
            )
    if POLICIES[workload.policy].backward is Backward.COLLECTIVES_ONLY:
        _check_micro(workload)


def _check_micro(workload: TextWorkload) -> None:
    """Refuse a micro benchmark that would come out empty although the file holds traffic (or holds none)."""
    first = workload.layers[0]
    if first.weight_gradient.word == CommWord.NONE:
        others = {"forward": first.forward.word, "input-gradient": first.input_gradient.word}
        used = [f"{name} {word}" for name, word in others.items() if word != CommWord.NONE]
        hint = f"; move the {used[0]} there" if used else ""
        raise ConversionError(
            f"{workload.source}: MICRO runs the weight-gradient collective of the first layer, and that is "
            f"NONE in "
            f"layer {first.name!r}{hint}"
        )


class _Words:
    """The words of a file in order, with the line each stands on."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self._words: list[str] = []
        self._lines: list[int] = []
        for number, line in enumerate(text.split("\n"), 1):
            found = line.split()
            self._words += found
            self._lines += [number] * len(found)
        self._next = 0
        self._end = len(self._words)
        #: whether the header says how many ranks experts are spread over
        self.names_experts = False

    def at_end(self) -> bool:
        return self._next >= self._end

    def peek(self) -> str:
        return self._words[self._next]

    def error(self, message: str, *, back: int = 0) -> ConversionError:
        """Error at the next word, or ``back`` words before it."""
        position = self._next - back
        line = self._lines[position] if position < len(self._lines) else (self._lines or [1])[-1]
        return ConversionError(f"{self.source}: line {line}: {message}")

    def word(self, what: str) -> str:
        if self._next >= self._end:
            # The end may be that of one line only (files read as upstream reads them).
            where = "the file ends" if self._end == len(self._words) else "the line ends"
            raise self.error(f"{where} where {what} is expected", back=1 if self._next else 0)
        self._next += 1
        return self._words[self._next - 1]

    def choice(self, what: str, allowed: Iterable[str]) -> str:
        word = self.word(what)
        options = [str(option) for option in allowed]
        if word in options:
            return word
        close = difflib.get_close_matches(word.upper(), options, 1, 0.75) if len(word) <= 60 else []
        hint = f"; did you mean {close[0]}?" if close else ""
        raise self.error(
            f"{word[:60]!r} is not {what} (allowed: {', '.join(options)}){hint}", back=1
        ) from None

    def labels_of_simai(self) -> bool:
        """Whether the first line has labels that SimAI's headers have and 1.0's have not."""
        head = itertools.takewhile(
            lambda item: item[1] == self._lines[0], zip(self._words, self._lines, strict=True)
        )
        return any(word in _FOREIGN_LABELS and word != "dp:" for word, _ in head)

    def grouped(self, what: str) -> tuple[str, str]:
        """A collective's word, and the group that it names behind it."""
        word = self.word(what)
        for group in _GROUPS:
            plain = word.removesuffix(group)
            if plain != word and plain in _GROUPED:
                if not self.names_experts:
                    raise self.error(
                        f"{word!r} is among ranks with experts, and the header has no ep:", back=1
                    )
                return plain, group[1:]
        self._next -= 1
        named = [f"{plain}{group}" for plain in _GROUPED for group in _GROUPS]
        return self.choice(what, (*CommWord, *named)), ""

    def number(self, what: str, *, least: int = 0, most: int = MAX_BYTES, fraction: bool = False) -> int:
        word = self.word(what)
        if fraction:
            # AICB divides, and writes 1024.0
            word = word.removesuffix(".0")
        if not is_whole(word):
            raise self.error(
                f"{what} must be a whole number, but is {word[:60]!r}{self._foreign(word)}", back=1
            )
        if len(word) > 25 or not least <= whole_number(word) <= most:
            raise self.error(f"{what} must lie between {least} and {most}, but is {word[:60]}", back=1)
        return whole_number(word)

    def numbers(self, what: str) -> frozenset[int]:
        count = self.number(f"the number of {what}")
        if count > self._end - self._next:
            raise self.error(f"{count} {what} are announced, but the file has fewer words left", back=1)
        return frozenset(self.number(f"one of the {what}") for _ in range(count))

    def label(self, expected: str) -> None:
        """Skip a label; any word will do, as in 1.0, but a number there means that something is missing."""
        word = self.word(f"the label {expected!r}")
        if is_whole(word) or word in POLICIES:
            raise self.error(f"{word!r} stands where the label {expected!r} is expected", back=1)
        if word in _FOREIGN_LABELS:
            raise self.error(f"{word!r} stands where {expected!r} is expected{self._foreign(word)}", back=1)

    def _foreign(self, word: str) -> str:
        if word in _FOREIGN_LABELS or (word == "-1" and self._words[0] not in POLICIES):
            return " (this header is that of a later tool, not ASTRA-sim 1.0's)"
        return ""

    def rest_by_line(self) -> Iterable["_Words"]:
        """The rest of the file, one line at a time, each a stream of its own."""
        end = self._end
        while self._next < end:
            line = self._lines[self._next]
            stop = self._next
            while stop < end and self._lines[stop] == line:
                stop += 1
            self._end = stop
            yield self
            self._next = stop
            self._end = end
