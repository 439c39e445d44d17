"""A row of a table becomes a workload, a machine and a framework by its columns alone; or it says why not."""

import csv
import json
from dataclasses import asdict, replace

import pytest
from click.testing import CliRunner

from chakra.accuracy import Case, Measured, Quantity, Unread, measured_rows, read_case, read_table
from chakra.accuracy.table import NEEDED, read_whole_table
from chakra.cli.commands.accuracy import command
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
        ({"precision": ""}, "precision is not printed"),
        ({"notes": ""}, "no framework is named"),
        ({"notes": "framework=megatrn"}, "no framework 'megatrn'; did you mean 'megatron'?"),
        ({"value": "-1"}, "must be above 0"),
        ({"metric": "joy", "unit": "nats"}, "metric: no 'joy'; known: step time"),
        ({"unit": "nats"}, "metric 'tokens/s/GPU' in 'nats' is not read"),
        ({"precision": "bf61"}, "precision: no 'bf61'; did you mean 'bf16'?"),
        ({"precision": "bf16xyz"}, "precision: no 'bf16xyz'"),
        ({"metric": "uptime", "unit": "s"}, "metric: no 'uptime'"),
        ({"parallelism": "tpp4 pp2"}, "parallelism: no word 'tpp4'; did you mean 'tp'?"),
        ({"parallelism": "tp4 pp2 tp8"}, "parallelism: tp4 and tp8 contradict each other"),
        ({"parallelism": "tp4 overlap"}, "parallelism: no word 'overlap'; known: tpN, ppN"),
        ({"workload_model": "GPT (layrs 24, hidden 2048, heads 16)"}, "did you mean 'layers'?"),
        (
            {"workload_model": "llama3-8b (layers=24)"},
            "workload_model: 'layers=24' is not read, write 'layers 24",
        ),
        ({"notes": "framework=megatron; recompute=selectve"}, "notes: recompute is one of none, sel"),
        ({"network": "400 GB/s each"}, "network: the rate in '400 GB/s each' is not read"),
        ({"framework": "megatrn"}, "no framework 'megatrn'; did you mean 'megatron'?"),
        ({"parallelism": "tp3"}, "npus (32) must be a multiple of tp*cp*pp = 3"),
        ({"global_batch": "63"}, "global batch (63) must be a multiple"),
    ],
)
def test_a_row_that_cannot_be_read_says_why(changes: dict[str, str], reason: str) -> None:
    assert reason in why(**changes)


@pytest.mark.parametrize("column", ["parallelism", "precision", "metric", "unit", "workload_model"])
def test_no_word_of_a_row_is_left_out_in_silence(column: str) -> None:
    words = getattr(ROW, column).split()
    # a model's name, before the parentheses, is free text
    for at in range(2, len(words)) if column == "workload_model" else range(len(words) + 1):
        text = " ".join([*words[:at], "qzx7", *words[at:]])
        assert why(**{column: text}), text


def test_capitals_and_other_spellings_mean_the_same() -> None:
    request = case_of(
        parallelism="TP=4, PP2 dp4 VP3 SP",
        precision="BFloat16",
        notes="selective recomputation",
        framework="megatron",
    ).request
    assert request == case_of().request
    each, both = case_of(metric="tokens/s per GPU"), case_of(metric="throughput", unit="tokens/s/GPU")
    assert each.measured == both.measured == case_of().measured


def test_columns_under_other_names_are_refused_and_unknown_ones_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "mine.csv"
    path.write_text("accelerator,workload_model\nH100,llama3-8b\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="column 'accelerator' is called 'hardware'"):
        read_table(path)
    path.write_text("# notez: x\n" + ",".join([*NEEDED, "date"]) + "\n\n1,2,3,4,5,6,7\n", encoding="utf-8")
    (row,), others = read_whole_table(path)
    assert others == ["'notez'; did you mean 'notes'?", "'date'"]
    assert row.where == f"{path}, line 4"
    path.write_text(",".join([*NEEDED, "unit"]) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="'unit' is given twice"):
        read_table(path)


def test_the_command_names_rows_and_columns(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "mine.csv"
    row = {**asdict(ROW), "parallelism": "tpp4", "colour": "red"}
    row.pop("where")
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([list(row), list(row.values())])
    done = CliRunner().invoke(command, ["--file", str(path), "--format", "json"])
    assert done.exit_code == 0
    assert "columns that are not read: 'colour'" in done.stderr
    (unread,) = json.loads(done.stdout)["not_predicted"]
    assert unread["where"] == [f"{path}, line 2"]
    assert "did you mean 'tp'?" in unread["reason"]
    text = CliRunner().invoke(command, ["--file", str(path)]).stdout
    assert f"did you mean 'tp'? ({path}, line 2)" in text


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
    with pytest.raises(ConfigError, match="line 2 has 7 cells"):
        read_table(path)
