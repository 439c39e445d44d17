"""Classes that stand for texts: numbered by first use, or made with a secret key.

Numbers say nothing of the text, so nobody can try words against them; they are the same in all files of one call.
With a key the class is a keyed hash: the same in every call with this key, and without the key no word can be tried.
A hash without a key would not do: names such as ``layer.3.mlp`` can be guessed, and a guess checked.
"""

import hashlib
import re

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io import files
from chakra.io.digits import is_whole, signed_whole_number, whole_number
from chakra.io.readable import counted

#: shortest key, in bytes: what cannot be tried out
MIN_KEY_BYTES = 16
#: the time, ns since 1970, that the first time of a clock becomes: it still looks like one of a clock that ranks share
NO_DATE_NS = 10**18
#: times above, ns, are counted since 1970; below, since a machine started
DATED_NS = 10**17
#: the time, ns since a machine's start, that the first time of such a clock becomes
_STARTED_NS = 5 * 10**16
#: times of one job are no farther apart, ns (15 months): a date that is known would give away the other
MAX_APART_NS = 4 * 10**16
#: digits of a number, as the name of a process group, that stays: more may be a date, an account or a telephone
_GROUP_DIGITS = 6
#: the number in front of a name, as ASTRA-sim reads it
_FRONT = re.compile(r"\s*[+-]?[0-9]+")
#: hash digits of a class: with 2^64 values, a million names collide once in 37 million jobs
_DIGITS = 16

#: words that say what kind of work a node does; public vocabulary of frameworks and device libraries
KINDS = {
    "collective": r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|[nr]ccl|gloo",
    "copy": r"memcpy|memset|copy_",
    "attention": r"attention|attn|flash|sdpa|fmha",
    "conv": r"conv(olution)?[0-9]?d?(?![a-z])|cudnn",
    "gemm": r"gemm|gemv|matmul|(?<![a-z])(mm|bmm|addmm|baddbmm|linear)(?![a-z])|cutlass|cublas",
    "norm": r"(layer|batch|group|rms)_?norm",
    "embedding": r"embedding",
    "optimizer": r"optimizer|adamw?(?![a-z])|(?<![a-z])sgd(?![a-z])",
    "elementwise": r"elementwise|relu|gelu|silu|sigmoid|dropout|softmax|(?<![a-z])(add|mul|div|sub)_?(?![a-z])",
}
_KIND = re.compile("|".join(f"(?P<{kind}>{words})" for kind, words in KINDS.items()), re.IGNORECASE)


class Labels:
    """Replaces texts by classes; equal texts that one object sees get equal classes.

    Parameters
    ----------
    key
        Secret of at least 16 bytes; None numbers the classes by first use.
    kinds
        Whether a node's class says what kind of work it is (``gemm3``), where its name has a public word for it.

    Raises
    ------
    UsageError
        If the key is too short.

    Examples
    --------
    >>> labels = Labels()
    >>> labels.node("falcon.mlp.addmm"), labels.node("falcon.step"), labels.node("falcon.mlp.addmm")
    ('gemm0', 'node0', 'gemm0')
    """

    @checked
    def __init__(self, key: bytes | None = None, *, kinds: bool = True) -> None:
        if key is not None and len(key) < MIN_KEY_BYTES:
            raise UsageError(
                f"the key has {counted(len(key), 'byte')}; it must have at least {MIN_KEY_BYTES}"
            )
        self._key = None if key is None else hashlib.blake2b(key, digest_size=32).digest()
        self._kinds = kinds
        self._known: dict[str, dict[str, str]] = {}
        self._used: dict[str, int] = {}
        self._clocks: dict[str, int] = {}

    @checked
    def label(self, kind: str, text: str, prefix: str | None = None) -> str:
        """The class of a text among those of its kind, such as ``tensor17``."""
        known = self._known.setdefault(kind, {})
        found = known.get(text)
        if found is None:
            shown = prefix or kind
            if self._key is None:
                number = self._used.get(shown, 0)
                self._used[shown] = number + 1
                found = f"{shown}{number}"
            else:
                digest = hashlib.blake2b(
                    text.encode("utf-8", "surrogatepass"), key=self._key, person=kind.encode()[:16]
                )
                found = f"{shown}-{digest.hexdigest()[:_DIGITS]}"
            known[text] = found
        return found

    @checked
    def node(self, name: str) -> str:
        """The class of a node's name; empty stays empty."""
        if not name:
            return name
        return self.label("node", name, self._kind_of(name))

    @checked
    def group(self, name: str) -> str:
        """The name of a process group: numbers of up to six digits stay, since ASTRA-sim reads nothing else.

        Of other names the number in front stays, because ASTRA-sim reads just that. A longer number becomes another one.
        """
        front = _FRONT.match(name)
        if front is None:
            return self.label("group", name) if name else name
        digits = front[0].strip().lstrip("+-")
        if len(digits) > _GROUP_DIGITS:
            number = str(10**_GROUP_DIGITS + self._long_number(front[0].strip()))
        else:
            number = str(signed_whole_number(front[0].strip()))
            if name == front[0] and (is_whole(name) or (name.isascii() and name == number)):
                return name
        return number if name == front[0] else number + self.label("group", name)

    def _long_number(self, text: str) -> int:
        """Which of the long numbers: by first use, or by the key."""
        if self._key is None:
            return self.number("group number", text)
        digest = hashlib.blake2b(text.encode(), key=self._key, person=b"group number", digest_size=7)
        return int.from_bytes(digest.digest(), "big")

    @checked
    def number(self, kind: str, text: str) -> int:
        """The class of a text among those of its kind as a number from 1, by first use, also with a key."""
        known = self._known.setdefault(kind, {})
        return whole_number(known.setdefault(text, str(len(known) + 1)))

    @checked
    def instant(self, time_ns: int) -> int:
        """A time without its date: as far from 9 September 2001 as it is from the first time that this object saw.

        Times since a machine's start (below 10^17 ns) are another clock, whose first time becomes 5 * 10^16 ns. Times of
        one clock keep their distances, in all files that this object sees.

        Parameters
        ----------
        time_ns
            The whole time, ns: base and offset added up, for a part that stays as it was would tell the date.

        Raises
        ------
        UsageError
            When the time is more than 4 * 10^16 ns (15 months) from the first: the distance would tell a date.
        """
        clock, origin = ("dated", NO_DATE_NS) if time_ns > DATED_NS else ("started", _STARTED_NS)
        distance = time_ns - self._clocks.setdefault(clock, time_ns)
        if abs(distance) > MAX_APART_NS:
            raise UsageError("times of one job are more than 15 months apart, which tells a date")
        return origin + distance

    def counts(self) -> dict[str, int]:
        """Number of distinct texts replaced, by kind."""
        return {kind: len(known) for kind, known in sorted(self._known.items())}

    def _kind_of(self, name: str) -> str | None:
        found = _KIND.search(name) if self._kinds else None
        return found.lastgroup if found else None


@checked
def read_key(path: str) -> bytes:
    """The key in a file: its bytes without white space at the ends.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    UsageError
        If the file cannot be read or the key is too short.
    """
    key = files.read_bytes(path, error=UsageError).strip()
    if len(key) < MIN_KEY_BYTES:
        raise UsageError(
            f"{path}: the key has {counted(len(key), 'byte')}; it must have at least {MIN_KEY_BYTES}"
        )
    return key
