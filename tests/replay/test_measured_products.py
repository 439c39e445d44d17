"""Measured matrix products in place of the model: where they reach, only where they are asked for, and named."""

import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from chakra.builder import TraceBuilder, Workload
from chakra.cli.commands.replay import command
from chakra.errors import ConfigError
from chakra.et.operators import (
    Attention,
    Computed,
    Direction,
    Kernel,
    KernelKind,
    MatrixProduct,
    operator_text,
)
from chakra.generate import TransformerRequest, build_workload
from chakra.platforms import cluster
from chakra.replay import ReplayResult, simulate
from chakra.replay.compute import compute_parameters, operator_ns
from chakra.replay.compute.measured_products import Left, MeasuredProducts, grid_of
from chakra.replay.compute.product_tables import read_products
from chakra.replay.results.product_notes import operators_timed

H100 = compute_parameters("hgx-h100")
REQUEST = TransformerRequest(model="llama2-7b", dp=8, framework="megatron", zero=1)
#: m, n, k, type and us; the last corner of the cell up to 4096 is missing in k
ROWS = [
    (m, n, k, "bf16", m * n * k / 1e8 + 7.0)
    for m in (1024, 2048) for n in (1024, 4096) for k in (1024, 2048)
]  # fmt: skip


def table(path: Path, rows: list[tuple[int, int, int, str, float]]) -> str:
    """A CSV of products."""
    lines = [f"{m},{n},{k},{element},{time!r}" for m, n, k, element, time in rows]
    path.write_text("\n".join(["m,n,k,type,time_us", *lines]) + "\n")
    return str(path)


def us(measured: MeasuredProducts, product: MatrixProduct) -> tuple[float | None, Left | None]:
    """Time of one product, us, or why it was not measured."""
    (time,), (why,) = measured.times_us([product])
    return (None if np.isnan(time) else float(time)), why


def model_us(operator: Computed) -> float:
    return float(operator_ns([operator_text(operator)], H100)[0]) / 1e3


def read(folder: Path, rows: list[tuple[int, int, int, str, float]]) -> MeasuredProducts:
    return read_products((table(folder / "t.csv", rows),), "hgx-h100", "x")


# ----------------------------------------------------------------------------------------------------- what a table says


def test_a_measured_product_takes_its_own_time(tmp_path: Path) -> None:
    measured = read(tmp_path, ROWS)
    for m, n, k, _, time in ROWS:
        assert us(measured, MatrixProduct(m, n, k)) == (time, None)


def test_between_measured_products_time_is_linear_in_each_size(tmp_path: Path) -> None:
    """1 and 3 us at m = 1000 and 3000 are 2 at 2000; the mean of eight corners stands in their middle."""
    line = [(m, 512, 512, "bf16", time) for m, time in ((1000, 1.0), (3000, 3.0), (4000, 9.0))]
    measured = read(tmp_path, line)
    assert us(measured, MatrixProduct(2000, 512, 512))[0] == pytest.approx(2.0)
    assert us(measured, MatrixProduct(3500, 512, 512))[0] == pytest.approx(6.0)
    assert us(measured, MatrixProduct(4000, 512, 512)) == (9.0, None)
    corners = [(m, n, k, "bf16", float(i)) for i, (m, n, k) in enumerate(np.ndindex(2, 2, 2), start=1)]
    cube = read(tmp_path, [(2 + 2 * m, 2 + 2 * n, 2 + 2 * k, word, t) for m, n, k, word, t in corners])
    assert us(cube, MatrixProduct(3, 3, 3))[0] == pytest.approx(4.5)
    # a quarter of the way in k alone: 1 and 2 us
    wide = read(tmp_path, [(8 * m + 8, 8 * n + 8, 8 * k + 8, word, t) for m, n, k, word, t in corners])
    assert us(wide, MatrixProduct(8, 8, 10))[0] == pytest.approx(1.25)


@given(st.data())
def test_times_lie_between_those_of_the_neighbours(data: st.DataObject) -> None:
    """No product is shorter than the shortest of the eight around it, nor longer than the longest."""
    axes = [
        data.draw(st.lists(st.integers(1, 9999), min_size=2, max_size=4, unique=True).map(sorted))
        for _ in "mnk"
    ]
    sizes = np.array(np.meshgrid(*axes, indexing="ij")).reshape(3, -1)
    times = np.array(
        data.draw(st.lists(st.floats(0.1, 1e6), min_size=sizes.shape[1], max_size=sizes.shape[1]))
    )
    grid = grid_of(sizes.astype(np.int64), times)
    wanted = [data.draw(st.integers(axis[0], axis[-1])) for axis in axes]
    around = np.ones(len(times), np.bool_)
    for axis, size, want in zip(axes, sizes, wanted, strict=True):
        low, high = max(v for v in axis if v <= want), min(v for v in axis if v >= want)
        around &= (size == low) | (size == high)
    (time,) = grid.at(np.array(wanted)[:, None])
    assert times[around].min() * (1 - 1e-9) <= time <= times[around].max() * (1 + 1e-9)


@pytest.mark.parametrize(
    "size", [(1023, 1024, 1024), (2049, 1024, 1024), (1024, 4097, 1024), (1024, 1024, 1023)]
)
def test_nothing_is_taken_from_beyond_what_was_measured(tmp_path: Path, size: tuple[int, int, int]) -> None:
    assert us(read(tmp_path, ROWS), MatrixProduct(*size)) == (None, Left.OUTSIDE)


def test_a_hole_between_measured_products_is_the_models(tmp_path: Path) -> None:
    """Without (2048, 4096, 2048) nothing that needs that corner is known, and all that does not still is."""
    measured = read(tmp_path, ROWS[:-1])
    assert us(measured, MatrixProduct(1500, 2000, 1500)) == (None, Left.OUTSIDE)
    assert us(measured, MatrixProduct(2048, 4096, 2048)) == (None, Left.OUTSIDE)
    assert us(measured, MatrixProduct(2048, 4096, 1024)) == (ROWS[-2][-1], None)
    assert us(measured, MatrixProduct(1500, 2000, 1024))[1] is None


@pytest.mark.parametrize(
    ("product", "why"),
    [
        (MatrixProduct(1024, 1024, 1024, type="fp16"), Left.TYPE),
        (MatrixProduct(1024, 1024, 1024, out="fp32", direction=Direction.WEIGHT), Left.RESULT),
        (MatrixProduct(1024, 1024, 1024, batch=2), Left.BATCH),
        (MatrixProduct(1024, 1024, 1024, role="convolution", bytes=1), Left.ROLE),
        (MatrixProduct(1024, 1024, 1024, role="scan"), Left.ROLE),
        (MatrixProduct(1024, 1024, 1024, type="fp8", direction=Direction.WEIGHT), Left.CAST),
        (MatrixProduct(1024, 1024, 1024, role="router"), None),
        (MatrixProduct(1024, 1024, 1024, direction=Direction.WEIGHT), None),
        (MatrixProduct(1024, 1024, 1024, type="fp8", out="bf16"), None),
        (MatrixProduct(1024, 1024, 1024, type="fp8", out="fp32"), Left.RESULT),
    ],
)
def test_what_a_table_does_not_speak_of_says_why(
    tmp_path: Path, product: MatrixProduct, why: Left | None
) -> None:
    measured = read(tmp_path, [*ROWS, *((m, n, k, "fp8", time) for m, n, k, _, time in ROWS)])
    assert us(measured, product)[1] is why


def test_the_median_of_repeated_measurements_holds(tmp_path: Path) -> None:
    times = (5.0, 1.0, 90.0, 2.0)
    measured = read(tmp_path, [(64, 64, 64, "bf16", time) for time in times])
    assert us(measured, MatrixProduct(64, 64, 64)) == (3.5, None)
    assert us(read(tmp_path, [(64, 64, 64, "bf16", t) for t in times[:3]]), MatrixProduct(64, 64, 64)) == (
        5.0,
        None,
    )


def test_the_first_table_that_reaches_a_product_has_its_time(tmp_path: Path) -> None:
    one = table(tmp_path / "one.csv", [(64, 64, 64, "bf16", 1.0)])
    two = table(tmp_path / "two.csv", [(64, 64, 64, "bf16", 2.0), (128, 64, 64, "bf16", 4.0)])
    measured = read_products((one, two), "x", "x")
    assert measured.name == "one.csv, two.csv"
    assert us(measured, MatrixProduct(64, 64, 64)) == (1.0, None)
    assert us(measured, MatrixProduct(96, 64, 64)) == (3.0, None)


def test_a_file_that_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    measured = read(tmp_path, [(64, 64, 64, "bf16", 1.0)])
    assert us(measured, MatrixProduct(64, 64, 64)) == (1.0, None)
    table(tmp_path / "t.csv", [(64, 64, 64, "bf16", 2.0), (65, 64, 64, "bf16", 2.0)])
    assert us(measured, MatrixProduct(64, 64, 64)) == (2.0, None)


def test_a_type_that_is_left_out_is_bf16(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("m,n,k,time_us\n64,64,64,1.5\n")
    measured = read_products((str(tmp_path / "t.csv"),), "x", "x")
    assert us(measured, MatrixProduct(64, 64, 64)) == (1.5, None)
    assert us(measured, MatrixProduct(64, 64, 64, type="fp8")) == (None, Left.TYPE)


# ------------------------------------------------------------------------------------------------------ what a run does

#: one operator a node: two measured, one between them, and four of the model's
OPERATORS: list[Computed] = [
    MatrixProduct(1024, 1024, 1024),
    MatrixProduct(2048, 4096, 2048, direction=Direction.BACKWARD),
    MatrixProduct(1536, 1024, 1024),
    MatrixProduct(1024, 1024, 512),
    MatrixProduct(1024, 1024, 1024, out="fp32", direction=Direction.WEIGHT),
    Attention(1, 8, 8, 1024, 1024, 128, causal=True),
    Kernel(KernelKind.NORM, 1 << 20, 1 << 22),
]
MEASURED = [ROWS[0][-1], ROWS[-1][-1], (ROWS[0][-1] + ROWS[4][-1]) / 2]


def job(each: Callable[[TraceBuilder], object]) -> Workload:
    """Eight ranks that run one program."""
    workload = Workload(8)
    workload.run(each)
    return workload


def node(text: str) -> dict[str, Any]:
    """A node that says what it computes."""
    return {"num_ops": 10**9, "tensor_bytes": 10**6, "attrs": {"operator": text}}


def program(b: TraceBuilder) -> None:
    last: Any = ()
    for operator in OPERATORS:
        last = b.compute("f", after=last, **node(operator_text(operator)))
    b.collective("all_reduce", size_bytes=1 << 20, after=last)


def run(**options: Any) -> ReplayResult:
    platform = cluster("hgx-h100")
    return simulate(job(program), platform.system(), platform.network(), **options)


def note(result: ReplayResult) -> str:
    (found,) = [text for text in result.notes if "measured times of matrix products" in text]
    return found


def test_a_replay_takes_them_where_they_reach(tmp_path: Path) -> None:
    """The sum of the times, measured and modelled, is what a rank computes."""
    plain, made = run(), run(measured=table(tmp_path / "t.csv", ROWS))
    others = [model_us(operator) for operator in OPERATORS[3:]]
    expected = sum(round(1e3 * time) for time in MEASURED + others)
    assert int(made.account["compute_ns"][0]) == expected
    assert int(plain.account["compute_ns"][0]) == sum(round(1e3 * model_us(op)) for op in OPERATORS)
    # a file of products says nothing of collectives
    taken = [{row["transfer_ns"] for row in one.to_dict()["collectives"]} for one in (plain, made)]
    assert taken[0] == taken[1]


def test_the_result_says_how_many_and_why_not_the_others(tmp_path: Path) -> None:
    """Counts of all reasons and of what was measured add up to the operators of all ranks, and shares to the whole."""
    result = run(measured=table(tmp_path / "t.csv", ROWS))
    text = note(result)
    counts = {
        "24 of 56 operators of all ranks", "8 bound by memory", "8 of attention",
        "8 with results of another type than their table's", "8 outside the measured sizes",
    }  # fmt: skip
    assert all(count in text for count in counts), text
    assert "are those of t.csv; the model takes the others: " in text
    assert f"such as {operator_text(OPERATORS[3])})" in text
    taken, rest = text.split("; the model takes the others: ")
    others = sum(int(found) for found in re.findall(r"(?:^|, )([0-9]+) [a-z]", rest))
    assert int(re.findall(r": ([0-9]+) of", taken)[0]) + others == 56
    assert sum(operators_timed(result.workload).values()) == 56
    shares = [float(found) for found in re.findall(r"([0-9.]+) %", text)]
    assert sum(shares) == pytest.approx(100, abs=0.3)
    times = [*MEASURED, *(model_us(operator) for operator in OPERATORS[3:])]
    assert shares[0] == pytest.approx(100 * sum(MEASURED) / sum(times), abs=0.051)
    # the error that is reported stays the model's, and no interval is stated
    assert any("mean error of matrix products" in one for one in result.notes)
    assert text.endswith(
        "no measured step was predicted with them, and errors that are stated are those of the model"
    )


def test_a_node_of_several_operators_counts_each(tmp_path: Path) -> None:
    def several(b: TraceBuilder) -> None:
        first, norm = operator_text(OPERATORS[0]), operator_text(OPERATORS[-1])
        b.compute("f", **node(f"3 * {first} + {norm}"))

    platform = cluster("hgx-h100")
    result = simulate(
        job(several),
        platform.system(),
        platform.network(),
        measured=table(tmp_path / "t.csv", ROWS),
    )
    assert "24 of 32 operators of all ranks" in note(result)
    assert int(result.account["compute_ns"][0]) == round(1e3 * (3 * MEASURED[0] + model_us(OPERATORS[-1])))


@pytest.mark.parametrize("by", ["key", "option"])
def test_a_system_file_may_ask_for_them(tmp_path: Path, by: str) -> None:
    """The option comes before the key; a name of collectives alone leaves the key in effect."""
    platform = cluster("hgx-h100")
    own = table(tmp_path / "own.csv", ROWS)
    other = table(tmp_path / "other.csv", [(m, n, k, word, 2 * time) for m, n, k, word, time in ROWS])
    logs = tmp_path / "log.csv"
    logs.write_text("name,ranks,size,time_us\nall_reduce,8,1000,9\nall_reduce,8,2000000,90\n")
    system = {**platform.system(), "operator-times": other}
    options = {"measured": [own, str(logs)]} if by == "option" else {"measured": str(logs)}
    result = simulate(job(program), system, platform.network(), **options)
    assert f"are those of {'own.csv' if by == 'option' else 'other.csv'}" in note(result)
    assert any("1 of 1 different ones are those of log.csv" in one for one in result.notes)


@pytest.mark.parametrize(
    ("options", "changes", "words"),
    [
        ({"ideal": True}, {}, "have no effect: --ideal asks for the peak"),
        (
            {"compat": "astra-sim"},
            {},
            "have no effect: compat 'astra-sim' has the compute times of ASTRA-sim",
        ),
        ({}, {"replay-only": True}, "have no effect: replay-only takes recorded times"),
    ],
)
def test_where_they_have_no_effect_a_note_says_why(
    tmp_path: Path, options: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    platform = cluster("hgx-h100")
    system, name = {**platform.system(), **changes}, table(tmp_path / "t.csv", ROWS)
    plain = simulate(job(program), system, platform.network(), **options)
    made = simulate(job(program), system, platform.network(), measured=name, **options)
    assert words in note(made)
    assert made.finish_ns.tolist() == plain.finish_ns.tolist()


def test_durations_of_traces_win(tmp_path: Path) -> None:
    def timed(b: TraceBuilder) -> None:
        b.compute("f", duration_micros=5, **node(operator_text(OPERATORS[0])))

    platform = cluster("hgx-h100")
    made = simulate(
        job(timed),
        platform.system(),
        platform.network(),
        measured=table(tmp_path / "t.csv", ROWS),
    )
    assert made.finish_ns.tolist() == [5000] * 8
    assert note(made).endswith("have no effect: no node of the workload takes the time of an operator")


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        ("m,n,k,time_us\n64,64,64,1\n", {"peak-perf": 1978.0}, "of hgx-h100 as it is, and peak-perf or local-mem-bw"),
        ("m,n,k,time_us\n64,64,64,1\n", {"local-mem-bw": 1000.0}, "peak-perf or local-mem-bw are not its own"),
        ("m,n,k,time_us\n64,64,64,1\n", {"operator-model": None}, "name a model with operator-model"),
        ("m,n,k\n64,64,64\n", {}, "no times of matrix products: a column time_us, or latency in ms, is needed"),
        ("m,n,k,time_us\n64,64,x,1\n", {}, r"t.csv: line 2: m, n and k must be whole numbers .* not '64 64 x 1'"),
        ("m,n,k,time_us\n64,64,64\n", {}, "line 2: m, n and k must be whole numbers"),
        ("m,n,k,time_us\n64,64,64,nan\n", {}, "line 2: m, n and k must be whole numbers"),
        ("m,n,k,time_us\n64,64,0,1\n", {}, "64 x 64 x 0 in 1 us is no measured product"),
        ("m,n,k,time_us\n64,64,64,0\n", {}, "64 x 64 x 64 in 0 us is no measured product"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_in_one_line(
    tmp_path: Path, content: str, changes: dict[str, Any], message: str
) -> None:
    platform = cluster("hgx-h100")
    (tmp_path / "t.csv").write_text(content)
    system = {key: value for key, value in {**platform.system(), **changes}.items() if value is not None}
    with pytest.raises(ConfigError, match=message) as error:
        simulate(job(program), system, platform.network(), measured=str(tmp_path / "t.csv"))
    assert "\n" not in str(error.value)


def test_a_file_without_products_is_none(tmp_path: Path) -> None:
    platform = cluster("hgx-h100")
    (tmp_path / "log.csv").write_text("name,ranks,size,time_us\nall_reduce,8,1000,9\n")
    (tmp_path / "empty.csv").write_text("m,n,k,type,time_us\n")
    (tmp_path / "long.csv").write_text("m,n,k,type,time_us\n1,1,1,bf16,1e30\n")
    for name, words in (
        ("log.csv", "no matrix products: columns m, n, k are needed"),
        ("gone.csv", "no such file"),
        ("empty.csv", "no products below the names of columns"),
        ("long.csv", "1 x 1 x 1 in 1e\\+30 us is no measured product: .* below 1e\\+12 us"),
    ):
        system = {**platform.system(), "operator-times": str(tmp_path / name)}
        with pytest.raises(ConfigError, match=f"operator-times: .*{name}: .*{words}"):
            simulate(job(program), system, platform.network())


def test_a_workload_without_operators_needs_no_table(tmp_path: Path) -> None:
    """Nothing is read for a job that computes by its own durations, whatever its machine."""
    platform = cluster("hgx-h100")
    workload = job(lambda b: b.compute("f", duration_micros=3))
    system = {**platform.system(), "operator-times": str(tmp_path / "gone.csv")}
    made = simulate(workload, system, platform.network())
    assert note(made).endswith("no node of the workload takes the time of an operator")


def test_what_nobody_asked_for_changes_nothing(package: Path) -> None:
    assert int(run().account["compute_ns"][0]) == sum(round(1e3 * model_us(op)) for op in OPERATORS)
    assert not any("measured" in one for one in run().notes)


# ----------------------------------------------------------------------------------------------------------- the package


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package laid out as aiconfigurator-core is: two back ends, one of two versions, and other types beside."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    data = tmp_path / "aiconfigurator_core" / "systems" / "data" / "h100_sxm"
    for backend, version, scale in (
        ("vllm", "0.9.2", 9.0),
        ("vllm", "0.10.0", 2.0),
        ("trtllm", "1.3.0rc20", 1.0),
    ):
        folder = data / "gemm" / backend / version
        folder.mkdir(parents=True)
        rows = [
            {"framework": backend, "gemm_dtype": word, "m": m, "n": n, "k": k, "latency": scale * factor * time / 1e3}
            for word, factor in (("fp8_block", 5.0), ("bfloat16", 1.0), ("fp8", 0.5)) for m, n, k, _, time in ROWS
        ]  # fmt: skip
        parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "gemm_perf.parquet")
    nccl = data / "comm" / "nccl" / "2.29.2"
    nccl.mkdir(parents=True)
    sizes = [
        {"op_name": "all_reduce", "nccl_dtype": "half", "num_gpus": 8, "message_size": size, "latency": 0.25}
        for size in (1024, 1 << 24)
    ]
    parquet.write_table(pyarrow.Table.from_pylist(sizes), nccl / "nccl_perf.parquet")
    (tmp_path / "aiconfigurator_core" / "__init__.py").write_text(
        "raise RuntimeError('is read, never run')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "aiconfigurator_core", raising=False)
    return tmp_path


def test_tables_of_aiconfigurator_are_read_in_place(package: Path) -> None:
    """Latencies in ms; the first of the known back ends, the newest version, or the one that is named."""
    first = read_products(("aiconfigurator",), "hgx-h100", "x")
    assert "h100_sxm, TensorRT-LLM 1.3.0rc20" in first.name
    for name, backend, scale in (
        ("aiconfigurator", "TensorRT-LLM 1.3.0rc20", 1.0),
        ("aiconfigurator/vllm", "vLLM 0.10.0", 2.0),
        ("aiconfigurator:h100_sxm/vllm", "vLLM 0.10.0", 2.0),
    ):
        measured = read_products((name,), "hgx-h100", "x")
        assert backend in measured.name
        assert us(measured, MatrixProduct(1024, 1024, 1024))[0] == pytest.approx(scale * ROWS[0][-1])
        assert us(measured, MatrixProduct(1024, 1024, 1024, type="fp8"))[0] == pytest.approx(
            scale * ROWS[0][-1] / 2
        )
        assert us(measured, MatrixProduct(1024, 1024, 1024, type="mxfp8")) == (None, Left.TYPE)
    path = next(package.rglob("vllm/0.9.2/*.parquet"))
    assert us(read_products((str(path),), "x", "x"), MatrixProduct(1024, 1024, 1024))[0] == pytest.approx(
        9 * ROWS[0][-1]
    )


@pytest.mark.parametrize(
    ("name", "machine", "message"),
    [
        ("aiconfigurator", "mi300x", "products for 'mi300x'; say which with aiconfigurator:SYSTEM, one of h100"),
        ("aiconfigurator:h100_sxn", "x", "no table of matrix products for 'h100_sxn'; did you mean 'h100_sxm'"),
        ("aiconfigurator/vlm", "hgx-h100", "of 'vlm' on h100_sxm; did you mean 'vllm'.*there are those of trtllm, vllm"),
        ("aiconfigurator/", "hgx-h100", "names no back end behind the slash, such as aiconfigurator/vllm"),
    ],
)  # fmt: skip
def test_what_the_package_lacks_is_told(package: Path, name: str, machine: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^--measured: .*{message}"):
        read_products((name,), machine, "--measured")


def test_the_package_gives_products_and_collectives(package: Path) -> None:
    result = run(measured="aiconfigurator")
    others = [model_us(operator) for operator in OPERATORS[3:]]
    assert int(result.account["compute_ns"][0]) == pytest.approx(1e3 * sum(MEASURED + others), abs=7)
    assert {row["transfer_ns"] for row in result.to_dict()["collectives"]} == {250_000}
    assert "TensorRT-LLM" in note(result)
    # the key of collectives takes those alone, and products need no collective library
    platform = cluster("hgx-h100")
    alone = simulate(
        job(program),
        {**platform.system(), "collective-times": "aiconfigurator"},
        platform.network(),
    )
    assert not any("matrix products:" in one for one in alone.notes)
    without = {
        k: v for k, v in platform.system().items() if k not in ("collective-library", "collective-costs")
    }
    made = simulate(job(program), without, platform.network(), measured="aiconfigurator")
    assert made.account["compute_ns"].tolist() == result.account["compute_ns"].tolist()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"m": [1.5], "n": [1], "k": [1], "time_us": [1.0]}, "m, n and k must be whole numbers"),
        ({"m": ["1"], "n": [1], "k": [1], "time_us": [1.0]}, "t.parquet: m must be a column of numbers"),
        ({"m": [1], "n": [1], "k": [1], "time_us": [None]}, "time_us must be a column of numbers"),
        ({"m": [1], "n": [1], "k": [1], "time_us": [1.0], "type": [3]}, "type must be a column of texts"),
    ],
)
def test_parquet_that_is_no_table_of_products(
    tmp_path: Path, columns: dict[str, list[Any]], message: str
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    importlib.import_module("pyarrow.parquet").write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    with pytest.raises(ConfigError, match=message):
        run(measured=str(tmp_path / "t.parquet"))


def test_without_the_package_the_command_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    job(program).write(tmp_path / "w")
    options = ["-w", str(tmp_path / "w"), "--platform", "hgx-h100", "--measured", "aiconfigurator"]
    done = CliRunner().invoke(command, options, standalone_mode=False)
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == (
        "--measured: aiconfigurator: aiconfigurator-core is not installed: pip install 'chakra-replay[silicon]'"
    )


def test_the_command_names_them(tmp_path: Path) -> None:
    job(program).write(tmp_path / "w")
    name = table(tmp_path / "t.csv", ROWS)
    options = ["-w", str(tmp_path / "w"), "--platform", "hgx-h100", "--measured", name]
    done = CliRunner().invoke(command, [*options, "--format", "json"])
    assert done.exit_code == 0, done.output
    assert any("24 of 56 operators" in one for one in json.loads(done.stdout)["notes"])
    assert "24 of 56 operators" in CliRunner().invoke(command, options).stdout


needs_silicon = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None or importlib.util.find_spec("pyarrow") is None,
    reason="the extra silicon (aiconfigurator-core, pyarrow) is not installed",
)


@needs_silicon
@pytest.mark.parametrize("machine", ["dgx-a100", "hgx-h100", "hgx-b200", "gb200-nvl72"])
def test_the_models_products_are_near_the_tables(machine: str) -> None:
    """Of large products; the constants were fitted to an older release of the same tables."""
    measured = read_products(("aiconfigurator",), machine, "x")
    products = [MatrixProduct(8192, n, k) for n in (4096, 8192, 12288) for k in (4096, 8192)]
    times, why = measured.times_us(products)
    assert set(why) == {None}
    modelled = (
        operator_ns([operator_text(product) for product in products], compute_parameters(machine)) / 1e3
    )
    assert np.abs(modelled / times - 1).mean() < 0.2


@needs_silicon
def test_a_generated_step_takes_products_of_the_installed_package() -> None:
    workload = build_workload(REQUEST.plan())
    platform = cluster("hgx-h100")
    plain = simulate(workload, platform.system(), platform.network())
    made = simulate(workload, platform.system(), platform.network(), measured="aiconfigurator/vllm")
    assert "(h100_sxm, vLLM " in note(made)
    assert 0.8 < made.finish_ns.max() / plain.finish_ns.max() < 1.25
    assert made.finish_ns.max() != plain.finish_ns.max()
