"""Every well-formed case of the reference corpus, to the cycle, per NPU and per node."""

from pathlib import Path

import pytest
from message_corpus import check, well_formed


@pytest.mark.shared
@pytest.mark.parametrize("family", "abcdefghi")
def test_family_is_equal_to_the_cycle(shared: Path, family: str) -> None:
    """Finish, exposed time and recorded node ticks are equal in every case."""
    folders = [f for f in sorted((shared / "oracle/corpus").glob(f"{family}*")) if well_formed(f)]
    assert folders
    different = {f.name: what for f in folders if (what := check(f, jit=False))}
    assert different == {}
