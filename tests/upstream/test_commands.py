"""mlcommons/chakra's commands, classes and module paths: every line of the migrating guide's table is run."""

import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chakra.et import read_trace
from chakra.upstream.commands import COMMANDS
from chakra.upstream.samples import write_samples

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "migrating.md"
DDP = ROOT / "tests" / "data" / "pytorch" / "ddp"
TEXT = "DATA\n1\nlayer0 -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1024 5\n"
#: what a command writes, by the option that names it
WRITTEN = ("--output-file", "--output_filename", "--output")


def command_lines() -> list[str]:
    """First column of the table of command lines."""
    body = GUIDE.read_text(encoding="utf-8").split("<!-- upstream's command lines -->")[1].split("\n\n")[1]
    return re.findall(r"^\| `(.*?)` \|", body, re.MULTILINE)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the table names."""
    folder = tmp_path_factory.mktemp("upstream")
    for name, source in (("host", "ddp.rank0.et.json.gz"), ("device", "ddp.rank0.kineto.json.gz")):
        (folder / f"{name}.json").write_bytes(gzip.decompress((DDP / source).read_bytes()))
    (folder / "workload.txt").write_text(TEXT)
    write_samples(1, folder=folder)
    (folder / "two_comp_nodes_dependent.0.et").rename(folder / "one.et")
    (folder / "log.log").write_text(
        "[x] [workload] [debug] issue,sys->id=0, tick=0, node->id=0, node->name=COMP_NODE, node->type=4\n"
        "[x] [workload] [debug] callback,sys->id=0, tick=5, node->id=0, node->name=COMP_NODE, node->type=4\n"
    )
    run(folder, "chakra link --host host.json --device device.json --rank 0 -o linked.json")
    return folder


def run(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line)
    if words[0] == "python":
        words[0] = sys.executable
    else:
        script = shutil.which(words[0], path=str(Path(sys.executable).parent))
        assert script is not None, f"{words[0]} is not installed"
        words[0] = script
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("line", command_lines())
def test_a_command_line_of_the_table(line: str, inputs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    shutil.copytree(inputs, folder)
    words = shlex.split(line)
    written = [words[i + 1] for i, word in enumerate(words) if word in WRITTEN]
    for name in written:
        (folder / name).unlink(missing_ok=True)
    run(folder, line)
    if not written:  # the generator
        assert len(read_trace(folder / "two_comp_nodes_dependent.1.et")) == 2
        return
    (name,) = written
    if "Text" in words:
        assert len([*folder.glob(f"{name}.*.et")]) == 8
    elif "PyTorch" in words:
        assert len(read_trace(folder / f"{name}.et")) > 100
    elif name.endswith(".pdf"):
        assert (folder / name).read_bytes().startswith(b"%PDF")
    else:
        assert json.loads((folder / name).read_text())


def test_the_table_names_every_command() -> None:
    named = {shlex.split(line)[0] for line in command_lines()}
    modules = {shlex.split(line)[2] for line in command_lines() if line.startswith("python -m")}
    assert set(COMMANDS) - {"et_converter"} == named - {"python"}
    shims = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "chakra").rglob("*.py")
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
        and "upstream.commands" in path.read_text()
    }
    assert shims - {"chakra.trace_link.trace_link"} == modules


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("chakra_converter Text --inpt x", "chakra_converter Text: error: No such option '--inpt'. Did you mean"),
        ("et_converter --input_type Flex --input_filename a --output_filename b", "--input_type Flex is not read"),
        ("et_converter --input_type Text --input_filename a --output_filename b", "--num_npus is missing"),
        ("chakra_jsonizer --input_filename nothing.et --output_filename b", "nothing.et"),
        ("chakra_generator --num_npus 0", "Invalid value for '--num_npus'"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line(
    line: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from chakra.cli.main import entry

    monkeypatch.chdir(tmp_path)
    name, *arguments = shlex.split(line)
    with pytest.raises(SystemExit) as ended:
        entry(arguments, command=COMMANDS[name], prog=name)
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not [*tmp_path.iterdir()]


def test_samples_have_every_kind_of_node_and_attribute(tmp_path: Path) -> None:
    """As upstream's: ids go on from file to file, sizes and times are those asked for."""
    names = write_samples(2, runtime_us=7, tensor_bytes=11, comm_bytes=13, folder=tmp_path)
    assert len(names) == 14
    traces = {name: [read_trace(tmp_path / f"{name}.{npu}.et") for npu in range(2)] for name in names}
    ids = [int(value) for of_kind in traces.values() for trace in of_kind for value in trace.ids]
    assert ids == list(range(len(ids)))
    first = {name: of_kind[0] for name, of_kind in traces.items()}
    assert {trace.node(0).type.name for trace in first.values()} == {
        *("METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_COLL", "COMM_SEND", "COMM_RECV"),
    }
    chained = first["two_comp_nodes_dependent"]
    assert chained.node(1).data_deps == (chained.node(0).id,)
    assert chained.durations_ns().tolist() == [7000, 7000]
    assert first["ALL_REDUCE"].node(0).attrs["comm_size"] == 13
    assert first["BARRIER"].node(0).attrs["comm_size"] == 0
    assert first["one_comm_send_node"].node(0).attrs["tensor_size"] == 11
    attributes = first["one_metadata_node_all_types"].node(0).attrs
    assert len(attributes) == 30
    assert attributes["sint32_list"] == (-12345, 23456)


def test_upstreams_classes(inputs: Path, tmp_path: Path) -> None:
    from chakra.src.converter.pytorch_converter import PyTorchConverter
    from chakra.src.converter.text_converter import TextConverter
    from chakra.src.trace_link.trace_linker import TraceLinker

    TextConverter(str(inputs / "workload.txt"), str(tmp_path / "t"), 4, 2).convert()
    assert len([*tmp_path.glob("t.*.et")]) == 4
    linked = str(tmp_path / "linked.json")
    TraceLinker().link(0, str(inputs / "host.json"), str(inputs / "device.json"), linked)
    PyTorchConverter().convert(linked, str(tmp_path / "p.et"), simulate=False)
    assert len(read_trace(tmp_path / "p.et")) > 100
