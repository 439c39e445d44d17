"""Speed factors per NPU."""

from pathlib import Path
from typing import Any

import pytest

from chakra.errors import ConfigError
from chakra.replay.config.npu_scale import load_npu_scale


@pytest.mark.parametrize(
    "text",
    [
        '{"1": 2, "3": 0.5}',
        "[1, 2, 1, 0.5]",
        "# slow\n1 2\n3 = 0.5\n",
        "1-1: 2.0\n\n3,5e-1  # fast\n",
        " \n1\t2\n3 0.5",
    ],
)
def test_every_form_of_a_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "scale"
    path.write_text(text)
    assert load_npu_scale(path, 4).tolist() == [1, 2, 1, 0.5]


def test_objects() -> None:
    assert load_npu_scale({1: 2.0}, 3).tolist() == [1, 2, 1]
    assert load_npu_scale([1, 2, 3], 3).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"4": 2}, "NPU 4: the network has 4 NPUs"),
        ({"x": 2}, "key 'x' must be the number of an NPU"),
        ({"0": 0}, "NPU 0: the factor must be a number above 0, found 0"),
        ({"0": "2"}, 'found "2"'),
        ([1, 2], "has 2 factors, but the network has 4 NPUs"),
        ("1 2\n1 3\n", "s:2: NPU 1 is given twice"),
        ("3-2 1\n", "s:1: 3-2 is not a range"),
        ("0-99999999999 1\n", "s:1: NPU 99999999999: the network has 4"),
        ("0 fast\n", 's:1: NPU 0: the factor must be a number above 0, found "fast"'),
        ("hello\n", "s:1: expected `NPU factor`"),
        ("[1, 2", "s: not valid JSON"),
        ('{"0": 1, "0": 2}', "s:1: key '0' is given twice"),
    ],
)
def test_wrong_factors_name_the_place(tmp_path: Path, source: Any, message: str) -> None:
    if isinstance(source, str):
        (tmp_path / "s").write_text(source)
        source = tmp_path / "s"
    with pytest.raises(ConfigError, match=message):
        load_npu_scale(source, 4)
