"""Products on systolic arrays: SCALE-Sim's cycles, and closed forms of what it does not model."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chakra.errors import ConfigError
from chakra.replay.compute import (
    SystolicArray,
    compute_parameters_from,
    compute_parameters_to,
    operator_ns,
)
from chakra.replay.compute.systolic import systolic_cycles

#: m, n, k
PRODUCTS = ((32, 32, 32), (100, 70, 50), (256, 64, 96), (33, 17, 129), (1, 128, 64))
#: what is stationary, rows, columns, and compute cycles of the products by SCALE-Sim 3.0.0
SCALE_SIM = (
    ("weight", 32, 32, (125, 1163, 2099, 634, 759)),
    ("weight", 16, 8, (559, 4967, 14111, 1916, 2495)),
    ("weight", 8, 32, (311, 3065, 7247, 1342, 1503)),
    ("input", 32, 32, (125, 1311, 3791, 1109, 443)),
    ("input", 16, 8, (559, 5615, 19583, 2474, 663)),
    ("input", 8, 32, (311, 3247, 10559, 2141, 1391)),
    ("output", 32, 32, (93, 1343, 2527, 381, 503)),
    ("output", 16, 8, (431, 4535, 15103, 1358, 1375)),
    ("output", 8, 32, (279, 3431, 8575, 834, 407)),
)
#: 2 arrays of 128 x 128 at 1 GHz: 65.536 TFLOP/s
ARRAY = {"rows": 128, "columns": 128, "arrays": 2, "clock_ghz": 1.0}


def document(**array: Any) -> dict[str, Any]:
    """A machine with systolic arrays on which nothing else costs anything."""
    return {
        "accelerator": "made up",
        "units": 2,
        "matmul": {
            "bf16": {"peak_tflops": 65.536, "efficiency": 1.0, "memory_efficiency": 1.0, "launch_us": 0.0},
            "int8": {"peak_tflops": 131.072},
        },
        "memory": {"gbps": 1e6, "efficiency": 1.0, "floor_us": 0.0},
        "attention": {"fused_forward": 0.5, "fused_backward": 0.25},
        "systolic": {**ARRAY, **array},
    }


def us(text: str, **array: Any) -> float:
    """Time of one operator."""
    return float(operator_ns([text], compute_parameters_from(document(**array), "made up"))[0]) / 1e3


@pytest.mark.parametrize(("stationary", "rows", "columns", "cycles"), SCALE_SIM)
def test_cycles_of_scale_sim(stationary: Any, rows: int, columns: int, cycles: tuple[int, ...]) -> None:
    """SCALE-Sim counts from cycle 0, so that its figure of a product is one less."""
    sizes = np.array([(*product, 1) for product in PRODUCTS], np.float64).T
    modelled = systolic_cycles(sizes, SystolicArray(rows, columns, 1, 1.0, stationary))
    assert modelled.tolist() == [count + 1 for count in cycles]


def test_folds_are_spread_over_arrays() -> None:
    """8 folds of 3 * 128 + 512 - 2 cycles, then 4 for each of two arrays; a batch of 2 has twice as many."""
    fold = 3 * 128 + 512 - 2
    assert us("gemm m=512 n=256 k=512", arrays=1) * 2 == pytest.approx(8 * fold / 1e3, rel=1e-4)
    assert us("gemm m=512 n=256 k=512") == pytest.approx(4 * fold / 1e3, rel=1e-4)
    assert us("gemm m=512 n=256 k=512 batch=2") == pytest.approx(8 * fold / 1e3, rel=1e-4)


def test_an_array_that_loads_ahead_is_near_its_peak() -> None:
    """Each fold takes its stream, and the way through the array is paid once."""
    assert us("gemm m=4096 n=256 k=512", overlapped=True) == pytest.approx((4 * 4096 + 254) / 1e3, rel=1e-4)
    # a stream that is shorter than the loading waits for it
    assert us("gemm m=1 n=256 k=512", overlapped=True) == pytest.approx((4 * 128 + 254) / 1e3, rel=1e-4)


def test_other_types_run_at_the_rate_of_their_peak() -> None:
    assert us("gemm m=512 n=256 k=512 type=int8") == pytest.approx(us("gemm m=512 n=256 k=512") / 2, rel=1e-4)


def test_bytes_can_be_the_bound() -> None:
    machine = compute_parameters_from(document(), "made up")
    slow = replace(machine, memory=replace(machine.memory, gbps=1.0))
    moved = 2 * (512 * 512 + 512 * 256 + 512 * 256)
    assert operator_ns(["gemm m=512 n=256 k=512"], slow)[0] == pytest.approx(moved, rel=1e-4)


def test_arrays_are_plain_data() -> None:
    for array in ({}, {"stationary": "output"}, {"overlapped": True}):
        machine = compute_parameters_from(document(**array), "made up")
        assert compute_parameters_from(compute_parameters_to(machine), "made up").systolic == machine.systolic


def test_what_is_no_array_is_one_line() -> None:
    for array, what in (
        ({"rows": 0}, "systolic: rows must be a number above 0"),
        ({"clock_ghz": 0.0}, "systolic: clock_ghz"),
        ({"stationary": "weights"}, "systolic: .*stationary"),
        ({"columns": "128"}, "systolic: .*columns"),
        ({"column": 1}, "systolic: 'column' is not one of"),
    ):
        with pytest.raises(ConfigError, match=what) as caught:
            compute_parameters_from(document(**array), "made up")
        assert "\n" not in str(caught.value)
