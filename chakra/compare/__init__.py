"""Two recordings, two replays, or a recording and a replay: where their difference lies.

>>> from chakra.compare import compare, read_source
>>> found = compare(read_source("before.json"), read_source("after.json"))  # doctest: +SKIP
>>> found.difference_ns, [(part.part, part.name, part.difference_ns) for part in found.parts[:2]]  # doctest: +SKIP
(-1200345, [('kernels', 'matmul', -1100000), ('gaps', '', -100345)])
"""

from chakra.compare.difference import Comparison, Part, compare
from chakra.compare.match import KernelRow
from chakra.compare.page import difference_html
from chakra.compare.read import read_source
from chakra.compare.spans import Kernel, RankSpans, Source
from chakra.compare.text import difference_text

__all__ = [
    "Comparison",
    "Kernel",
    "KernelRow",
    "Part",
    "RankSpans",
    "Source",
    "compare",
    "difference_html",
    "difference_text",
    "read_source",
]
