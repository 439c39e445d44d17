"""Every JSON document names its schema and fits it."""

import ast
import importlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_schema import problems
from scenes import SCENES, Ran, prepare

import chakra.cli
from chakra import input_schemas
from chakra.cli.main import COMMANDS, run
from chakra.errors import UsageError
from chakra.io.documents import document_text
from chakra.output_schemas import load, names
from chakra.replay import simulate


def walk(schema: Any) -> Any:
    yield schema
    for child in (*schema.get("properties", {}).values(), *schema.get("anyOf", ())):
        yield from walk(child)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from walk(schema[key])


@pytest.mark.parametrize("name", [name for name, scene in SCENES.items() if scene.schema])
def test_document_fits_its_schema(first: dict[str, Ran], name: str) -> None:
    scene, ran = SCENES[name], first[name]
    assert ran.code == 0, ran.err
    document = json.loads(ran.files[scene.document] if scene.document else ran.out)
    assert next(iter(document)) in ("schema", "format")
    assert next(iter(document.values())) == scene.schema
    assert problems(document, load(str(scene.schema))) == []


def test_stored_points_fit_their_schema(first: dict[str, Ran]) -> None:
    points = list((first["sweep"].folder / "results" / "points").glob("*.json"))
    assert len(points) == 4
    for path in points:
        assert problems(json.loads(path.read_text()), load("chakra.sweep.point/1")) == []


def test_every_schema_has_a_document() -> None:
    """Points and the warm-up, which compiles for twenty seconds, have tests of their own."""
    elsewhere = {"chakra.sweep.point/1", "chakra.warmup/1"}
    assert {scene.schema for scene in SCENES.values() if scene.schema} | elsewhere == set(names())


def _commands(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Commands below a group by their words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _commands(below, (*words, name))
    else:
        yield " ".join(words), command


def test_every_command_that_prints_json_has_a_scene() -> None:
    """With its schema, so that a new command's document is checked, too."""
    printing = set()
    for name, (module, _) in COMMANDS.items():
        for words, command in _commands(importlib.import_module(module).command, (name,)):
            form = next((p for p in command.params if "--format" in p.opts), None)
            if "json" in getattr(getattr(form, "type", None), "choices", ()):
                printing.add(words)
    assert len(printing) > 20
    told = {scene.line for scene in SCENES.values() if scene.schema and "--format json" in scene.line}
    lacking = {words for words in printing if not any(line.startswith(f"{words} ") for line in told)}
    # a timeline's json is Chrome's; the warm-up has a test of its own
    assert lacking == {"timeline", "warmup"}


@pytest.mark.shared
@pytest.mark.parametrize("job", ["ddp", "infer"])
def test_documents_of_a_recorded_job_fit_their_schemas(
    job: str,
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Keys that small jobs have no data for: steps, groups, clocks, turns on a shared GPU, explained shares, and what is
    said of files that are too large to be read back.
    """
    monkeypatch.setattr("chakra.converters.pytorch.job.CHECK_UP_TO", 1000)
    folder = str(shared / "data" / "h200")
    device = f"{folder}/{job}.rank0.kineto.json.gz"
    host = f"{folder}/{job}.rank0.et.json.gz"
    prefix, ranks = str(tmp_path / job), 2 if job == "ddp" else 1
    (tmp_path / "n.yml").write_text(
        f"topology: [ Switch ]\nnpus_count: [ {ranks} ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
    )
    (tmp_path / "s.json").write_text(json.dumps({"replay-only": True}))
    along = "data" if ranks > 1 else "pipeline"
    on = f"-w {prefix} -s {tmp_path}/s.json -n {tmp_path}/n.yml --format json"
    for line in (
        f"convert pytorch --dir {folder} --job {job} -o {prefix} -j 1 --check --deprofile 10 --format json",
        f"convert pytorch --host {host} --device {device} -o {tmp_path}/one.et --deprofile 10 --format json",
        f"link --device {device} -o {tmp_path}/linked.et --format json",
        f"info {prefix}.0.et --format json",
        f"replay {on} --nodes -o {tmp_path}/run.json",
        f"replay {on} --what-if host.speed=2x",
        f"compare {device} {tmp_path}/run.json --format json",
        f"anonymize {prefix} {tmp_path}/hidden --format json",
        f"rescale {prefix} -o {tmp_path}/big --npus {4 * ranks} --along {along} --format json",
    ):
        assert run(line.split()) == 0, capsys.readouterr().err
        written = tmp_path / "run.json"
        text = written.read_text() if line.endswith("run.json") else capsys.readouterr().out
        document = json.loads(text)
        assert problems(document, load(document["schema"])) == [], line


def test_the_warm_up_tells_its_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("chakra.cli.commands.warmup._cpus", lambda: 1)
    monkeypatch.setattr(
        "chakra.cli.commands.warmup.PARTS", (("traces", lambda: None), ("drawings", lambda: None))
    )
    assert run(["warmup", "--format", "json", "-q"]) == 0
    streams = capsys.readouterr()
    document = json.loads(streams.out)
    assert problems(document, load("warmup")) == []
    assert [part["name"] for part in document["parts"]] == ["traces", "drawings"]
    assert streams.err == ""


def test_what_was_written_is_told(first: dict[str, Ran]) -> None:
    fly = json.loads(first["topology file"].out)
    assert fly["command"] == "topology dragonfly"
    assert fly["files"] == [{"path": "fly.yml", "bytes": len(first["topology file"].files["fly.yml"])}]
    assert fly["figures"] == {
        "npus": 12, "switches": 6, "ports": 4, "cables": 12 + 3 + 3, "directed_links": 2 * (12 + 3 + 3)
    }  # fmt: skip
    graph = json.loads(first["visualize svg"].out)
    assert graph["figures"] == {"nodes": 3, "boxes": 3, "edges": 2}


@pytest.mark.parametrize(
    "line",
    [
        "topology torus --shape 2x2",
        "convert config -i network.yml",
        "convert msccl --algorithm ring --collective all_reduce --npus 4",
    ],
)
def test_a_document_about_standard_output_is_refused(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run([*line.split(), "--format", "json"]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.endswith("name the file with --output\n")


@pytest.mark.parametrize("name", names())
def test_schema_files(name: str) -> None:
    schema = load(name)
    head = next(iter(schema["properties"].items()))
    assert head[0] in ("schema", "format")
    assert head[1] == {"const": name}
    for part in walk(schema):
        # Closed objects would make every added key a break for readers that validate.
        assert part.get("additionalProperties") is not False
        assert set(part.get("required", ())) <= set(part.get("properties", ()))


def test_the_checker_finds_what_is_wrong(first: dict[str, Ran]) -> None:
    document = json.loads(first["replay"].out)
    schema = load("replay.result")
    assert problems({**document, "npus": "four"}, schema)
    assert problems({**document, "npus": True}, schema)
    assert problems({**document, "finish_ns": [1.5]}, schema)
    assert problems({**document, "new": 1}, schema) == ["$: undocumented key new"]
    del document["account"]["idle_ns"]
    assert problems(document, schema) == ["$.account: idle_ns is missing"]


CORPUS = Path(__file__).parents[1] / "data" / "oracle"


def test_results_of_the_oracle_cases(shared_cases: list[Any]) -> None:
    schema = load("chakra.replay.result/1")
    for case in shared_cases:
        with case.laid_out():
            groups = "comm_groups.json" if Path("comm_groups.json").exists() else None
            result = simulate(
                "workload", "system.json", "network.yml", memory="memory.json", comm_groups=groups,
                backend=case.backend, **case.options(),
            )  # fmt: skip
        assert problems(json.loads(json.dumps(result.to_dict(nodes=True))), schema) == [], case.name


@pytest.fixture
def shared_cases() -> list[Any]:
    from oracle_cases import cases

    return [case for case in cases(CORPUS) if case.sound][::4]


def test_bad_findings_fit_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(tmp_path)
    (tmp_path / "run.1.et").write_bytes((tmp_path / "run.1.et").read_bytes()[:-3])
    run(["validate", str(tmp_path / "run"), "--npus", "4", "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert document["findings"]
    assert problems(document, load("validate")) == []


def test_the_command_prints_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert capsys.readouterr().out.split() == [*names(), *input_schemas.names()]
    assert run(["schema", "replay.result"]) == 0
    assert json.loads(capsys.readouterr().out) == load("chakra.replay.result/1")
    assert run(["schema", "nothing"]) == 2
    with pytest.raises(UsageError, match="there is no schema"):
        load("nothing")


# ------------------------------------------------------------------------------------------- strict JSON


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN, st.sampled_from([None, 1]))
def test_a_document_has_no_nan_and_no_infinity_and_keeps_the_rest(value: Any, indent: int | None) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    def expected(item: Any) -> Any:
        if isinstance(item, float):
            return item if math.isfinite(item) else None
        if isinstance(item, list):
            return [expected(part) for part in item]
        return {key: expected(part) for key, part in item.items()} if isinstance(item, dict) else item

    assert json.loads(document_text(value, indent), parse_constant=refuse) == expected(value)


def test_commands_write_json_by_the_writer_of_documents_only() -> None:
    """`json.dumps` writes NaN and Infinity, which are no JSON."""
    root = Path(chakra.cli.__file__).parent
    modules = sorted(root.rglob("*.py"))
    assert len(modules) > 30

    def dumps(node: ast.AST) -> bool:
        if not isinstance(node, ast.Attribute) or node.attr not in ("dump", "dumps"):
            return False
        return isinstance(node.value, ast.Name) and node.value.id == "json"

    found = [
        f"{path.relative_to(root)}:{getattr(node, 'lineno', 0)}"
        for path in modules
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if dumps(node)
    ]
    assert found == []
