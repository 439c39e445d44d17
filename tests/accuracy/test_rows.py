"""A row of a table becomes a workload, a machine and a framework by its columns alone; or it says why not."""

from dataclasses import replace

import pytest

from chakra.accuracy import Case, Measured, Quantity, Unread, measured_rows, read_case, read_table
from chakra.errors import ConfigError

ROW = Measured(
    source="somebody", hardware="H100 SXM", nodes="4", gpus_per_node="8", network="3200 Gb/s per node",
    workload_model="GPT (layers 24, hidden 2048, heads 16, vocab 51200)", parallelism="tp4 pp2 dp4 vp3 sp",
    sequence="2048", micro_batch="2", global_batch="64", precision="bf16", metric="tokens/s/GPU", value="4096",
    unit="tokens/s", notes="framework=megatron; selective recomputation",
)  # fmt: skip


def case_of(**changes: str) -> Case:
    case = read_case(replace(ROW, **changes))
    assert isinstance(case, Case), case
    return case


def why(**changes: str) -> str:
    unread = read_case(replace(ROW, **changes))
    assert isinstance(unread, Unread), unread
    return unread.reason


def test_a_row_in_words_is_a_request() -> None:
    request = case_of().request
    assert (request.tp, request.pp, request.dp, request.vp, request.npus) == (4, 2, 4, 3, 32)
    assert (request.layers, request.hidden, request.heads, request.vocabulary, request.ffn) == (
        24,
        2048,
        16,
        51200,
        8192,
    )
    assert (request.seq, request.micro_batch, request.global_batch, request.dtype) == (2048, 2, 64, "bf16")
    assert (request.sp, request.recompute.value, request.framework) == (True, "selective", "megatron")


@pytest.mark.parametrize(
    ("metric", "value", "unit", "seconds"),
    [
        ("tokens/s/GPU", "4096", "tokens/s", 64 * 2048 / 4096 / 32),
        ("tokens/s", "4096", "tokens/s", 64 * 2048 / 4096),
        ("step time", "1.5", "s", 1.5),
        ("iteration time", "1500", "ms", 1.5),
        # 6 B s (L 12 h^2 + V h) + 12 B s^2 L h
        (
            "TFLOP/s/GPU", "400", "TFLOP/s",
            (6 * 64 * 2048 * (24 * 12 * 2048**2 + 51200 * 2048) + 12 * 64 * 2048**2 * 24 * 2048) / 400e12 / 32,
        ),
    ],
)  # fmt: skip
def test_what_was_measured_is_the_time_of_a_step(metric: str, value: str, unit: str, seconds: float) -> None:
    case = case_of(metric=metric, value=value, unit=unit)
    assert case.quantity is Quantity.STEP
    assert case.measured == pytest.approx(seconds, rel=1e-12)


def test_machines_are_presets_with_the_printed_port() -> None:
    assert case_of().machine.platform().dims[1].bandwidth.value == pytest.approx(50)
    assert case_of(network="4x 200 Gb/s per node").machine.fabric == 100
    assert case_of(network="NVLink5 + 800 Gb/s per GPU").machine.fabric == 800
    assert case_of(network="").machine.fabric is None
    small = case_of(hardware="a100_40gb").machine.platform().accelerator
    large = case_of(hardware="NVIDIA A100-80GB (Selene)").machine.platform().accelerator
    assert (small.mem_gbps, large.mem_gbps) == (1555, 2039)


def test_jobs_on_large_domains_take_equal_parts_of_them() -> None:
    machine = case_of(
        hardware="DGX-GB200", nodes="64", gpus_per_node="4", parallelism="tp4 pp2", global_batch="1024"
    ).machine
    assert [dim.npus for dim in machine.platform().dims] == [64, 4]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hardware": "Cerebras"}, "no machine preset for 'Cerebras'"),
        ({"hardware": "Google TPU v5p"}, "the sharding of a TPU recipe lies in the recipe"),
        ({"micro_batch": ""}, "micro-batch is not printed"),
        ({"nodes": ""}, "number of nodes"),
        ({"workload_model": "GPT (layers 24)"}, "its sizes are not printed"),
        ({"workload_model": "Nemotron_3_Nano"}, "state-space"),
        ({"precision": "posit"}, "the element type is not printed"),
        ({"notes": ""}, "no framework is named"),
        ({"notes": "framework=megatrn"}, "no framework 'megatrn'; did you mean 'megatron'?"),
        ({"value": "-1"}, "must be above 0"),
        ({"metric": "loss", "unit": "nats"}, "is not read"),
        ({"parallelism": "tp3"}, "npus (32) must be a multiple of tp*cp*pp = 3"),
        ({"global_batch": "63"}, "global batch (63) must be a multiple"),
    ],
)
def test_a_row_that_cannot_be_read_says_why(changes: dict[str, str], reason: str) -> None:
    assert reason in why(**changes)


def test_shipped_rows_are_read_or_named() -> None:
    found = [read_case(row) for row in measured_rows()]
    read = [item for item in found if isinstance(item, Case)]
    assert len(found) >= 1000
    assert len(read) >= 950
    assert not any("nanotron" in item.family for item in read), "the licence of these rows is not checked"
    assert sum(bool(item.row.tuned) for item in read) < len(read) / 4


def test_tables_share_columns_and_refuse_others(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "mine.csv"
    path.write_text(
        "# hardware: H100\n# unit: s\nworkload_model,parallelism,metric,value\nllama3-8b,tp2,step time,1\n",
        encoding="utf-8",
    )
    (row,) = read_table(path)
    assert (row.hardware, row.unit, row.value, row.notes) == ("H100", "s", "1", "")
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no column hardware"):
        read_table(path)
    path.write_text(
        "hardware,workload_model,parallelism,metric,value,unit\n1,2,3,4,5,6,7\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match="row 2 has 7 cells"):
        read_table(path)
