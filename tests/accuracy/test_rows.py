"""A row of a table becomes a workload, a machine and a framework by its columns alone; or it says why not."""

import csv
import json
from dataclasses import asdict, replace

import pytest
from click.testing import CliRunner

from chakra.accuracy import Case, Measured, Quantity, Unread, measured_rows, read_case, read_table
from chakra.accuracy.table import COLUMNS, NEEDED, read_whole_table
from chakra.cli.commands.accuracy import command
from chakra.cli.main import run
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
        ({"nodes": "x"}, "nodes is no whole number from 1 to 999999: 'x'"),
        ({"parallelism": "fsdp4"}, "shards of 4 of 32 replicas (hybrid sharding) are not read"),
        (
            {"value": "1e-30", "metric": "step time", "unit": "s"},
            "the measured value makes a step of 1e-30 s",
        ),
        (
            {"workload_model": "GPT (layers 24, layers 48, hidden 2048, heads 16)"},
            "'layers 24' and 'layers 48' contradict each other",
        ),
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


def test_words_of_nanotron_are_read() -> None:
    """Its tensor parallelism has sequence parallelism in one of two modes; rows are chosen by their configuration."""
    words = "tp2 pp1 dp16 zero1 REDUCE_SCATTER pp_engine OneForwardOneBackward"
    row = replace(
        ROW, source="Ultra-Scale Playbook (nanotron)", parallelism=words, sequence="4096", notes="",
    )  # fmt: skip
    case = read_case(row)
    assert isinstance(case, Case), case
    assert (case.family, case.framework) == ("nanotron, chosen", "nanotron")
    assert (case.request.sp, case.request.zero, case.request.tp) == (True, 1, 2)
    summed = read_case(replace(row, parallelism=words.replace("REDUCE_SCATTER", "ALL_REDUCE")))
    assert isinstance(summed, Case)
    assert not summed.request.sp
    for changes in ({"micro_batch": "1"}, {"parallelism": words.replace("pp1 dp16", "pp2 dp8")}):
        assert read_case(replace(row, **changes)).family == "nanotron, others"


def test_releases_that_record_steps_of_experts_are_read() -> None:
    """Megatron-Bridge from 26.06 on, experts in MXFP8: one graph a pass, and fused kernels."""
    for release, model, precision, recorded in (
        ("26.08", "GPT OSS 120B", "MXFP8", True), ("26.06.01", "GPT OSS 120B", "FP8-MX", True),
        ("26.04.01", "GPT OSS 120B", "MXFP8", False), ("26.08", "GPT OSS 120B", "BF16", False),
        ("26.08", "LLAMA3.1_405B", "MXFP8", False),
    ):  # fmt: skip
        case = case_of(
            source="NVIDIA-NeMo/Megatron-Bridge", source_path_or_id=f'summary.md release "{release} NeMo Container"',
            workload_model=model, precision=precision, parallelism="tp1 pp1", notes="",
        )  # fmt: skip
        assert (case.request.graphs, case.request.compiled) == (recorded, recorded), (
            release,
            model,
            precision,
        )


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


HOSTILE = (
    "", "0", "-1", "nan", "inf", "1e400", "1e-320", "9" * 5000, "\u0663", "\u00b2", "1.5", "1_000", "0x10", "\0", "a\nb",
    "\x1b[31m", "x" * 10_000, "999999999999", "(((", "hidden 1" * 300,
)  # fmt: skip


@pytest.mark.parametrize("column", [name for name in COLUMNS if name != "tuned"])
def test_any_cell_is_read_or_refused_in_a_line(column: str) -> None:
    for text in HOSTILE:
        found = read_case(replace(ROW, **{column: text}))
        assert found.family.isprintable()
        assert len(found.family) <= 100
        if isinstance(found, Case):
            assert 1e-9 <= found.measured <= 1e9, text
        else:
            assert found.reason
            assert found.reason.isprintable(), text
            assert len(found.reason) < 500


def test_a_table_of_one_row_is_drawn_and_equal_rows_are_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path, picture = tmp_path / "mine.csv", tmp_path / "mine.svg"
    row = asdict(
        replace(ROW, parallelism="tp2", workload_model="GPT (layers 2, hidden 256, heads 4, vocab 512)")
    )
    row |= {"nodes": "1", "gpus_per_node": "2", "metric": "step time", "unit": "s", "value": "1e9"}
    row.pop("where")
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([list(row), list(row.values()), list(row.values())])
    done = CliRunner().invoke(command, ["--file", str(path), "--picture", str(picture)])
    assert done.exit_code == 0, done.output
    assert "note: 1 row is equal to others" in done.stderr
    assert picture.read_text(encoding="utf-8").count("<circle") == 3


def test_a_bound_with_nothing_to_hold_is_refused(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    """A table whose rows cannot be read does not pass for one that is predicted well."""
    path = tmp_path / "mine.csv"
    row = {**asdict(ROW), "parallelism": "tp2 qzx7"}
    row.pop("where")
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([list(row), list(row.values())])
    assert run(["accuracy", "--file", str(path), "--max-error", "5"]) == 2
    said = capsys.readouterr()
    assert "no word 'qzx7'" in said.out
    assert "--max-error has nothing to hold" in said.err
    assert run(["accuracy", "--file", str(path), "--max-error", "nan"]) == 2
    assert "'--max-error': 'nan' is not a number" in capsys.readouterr().err


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


def test_rows_are_shown_with_their_units(capsys: pytest.CaptureFixture[str]) -> None:
    """Seconds of steps and bytes of memory stood in one column, without a word."""
    assert run(["accuracy", "--family", "Selene", "--rows"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if ", dgx-a100," in line]
    assert {row[3] for row in rows} == {"s", "GB"}
    assert all(0.1 < float(row[1]) < 100 for row in rows)
