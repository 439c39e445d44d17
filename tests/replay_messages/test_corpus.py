"""Every well-formed case of the reference corpus message by message, to the cycle, per NPU and per node."""

from pathlib import Path

import pytest
from oracle_cases import cases, difference


@pytest.mark.shared
@pytest.mark.parametrize("family", "abcdefghi")
def test_family_is_equal_to_the_cycle(shared: Path, family: str) -> None:
    """Finish, exposed time and recorded node ticks are equal in every case."""
    found = [case for case in cases(shared / "oracle" / "corpus") if case.family == family and case.sound]
    assert found
    different = {}
    for case in found:
        result = case.run("astra-sim", engine="messages")
        assert result.raw.engine == "messages"
        text = difference(case, result, statistics=False)
        if text:
            different[case.name] = text
    assert different == {}
