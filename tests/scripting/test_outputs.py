"""Where commands write: names that are none are refused, and a command that fails leaves nothing behind."""

import shutil
from pathlib import Path

import pytest
from scenes import SCENES, Scene, prepare_with, words

from chakra.cli.main import run
from chakra.io import files

#: scenes with an option that names what to write
WRITING = {
    **{name: scene for name, scene in SCENES.items() if " -o " in scene.line},
    "anonymize": Scene("anonymize run -o hidden"),
    "anonymize recordings": Scene("anonymize recorded -o hidden"),
    "anonymize one": Scene("anonymize recorded/DEVICE -o hidden.json"),
    "compare document": Scene("compare recorded/DEVICE result.json -o difference.json"),
    "convert pytorch linked": Scene("convert pytorch --device recorded/DEVICE -o one.et"),
    "jsonize": Scene("jsonize run.0.et -o run.json"),
    "timeline": Scene("timeline result.json -o line.json.gz"),
    "timeline of a recording": Scene("timeline recorded/DEVICE -o line.json.gz"),
    "visualize": Scene("visualize run.0.et -o graph.svg"),
}
#: those that have no input file, or can do with a part of it; all of `generate` and `topology`, but the import
SOUND = {"calibrate --library", "convert msccl export", "platform write"}
#: those that write into a folder, which may be there
INTO_FOLDERS = ("sweep", "anonymize recordings")


def written_to(scene: Scene, output: str) -> list[str]:
    """The command line with another output."""
    line = words(scene)
    line[line.index("-o") + 1] = output
    return line


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs of all scenes, those too that other scenes make."""
    folder = tmp_path_factory.mktemp("inputs")
    prepare_with(folder, "replay aware", "convert msccl export")
    return folder


@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize("output", ["", "/", "new/", "."])
def test_a_name_that_is_none_is_refused(
    name: str, output: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in INTO_FOLDERS and output:
        return
    before = tree(here)
    assert run(written_to(WRITING[name], output)) == 2
    error = capsys.readouterr().err.splitlines()
    assert len([line for line in error if "error" in line]) == 1
    assert any(said in error[-1] for said in ("an empty value", "folder", "suffix"))
    assert tree(here) == before


@pytest.mark.parametrize("name", WRITING)
def test_a_command_that_fails_leaves_no_folder(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of its inputs is cut in turn; the folder to write into is not there yet."""
    scene = WRITING[name]
    line = words(scene)
    target = Path(line[line.index("-o") + 1])
    given = [word for word in line[1:] if word not in ("-o", target.name)]
    failed = 0
    for path in sorted(here.rglob("*")):
        own = any(str(path.relative_to(here)).startswith(word) for word in given)
        if not path.is_file() or not own:
            continue
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        code = run(written_to(scene, f"new/deep/{target.name}"))
        capsys.readouterr()
        path.write_bytes(whole)
        if code == 2:
            failed += 1
            assert not (here / "new").exists(), f"{path}: {sorted((here / 'new').rglob('*'))}"
        shutil.rmtree(here / "new", ignore_errors=True)
    assert (failed == 0) == (
        name in SOUND or (name.startswith(("generate", "topology")) and "import" not in name)
    )
    # and where nothing can be written, since a file stands in the place of the folder
    (here / "taken").write_bytes(b"")
    before = tree(here)
    assert run(written_to(scene, f"taken/deep/{target.name}")) == 2
    assert tree(here) == before
    assert capsys.readouterr().err.count("error: ") == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["platform", "write", "hgx-h100", "--npus", "8", "--output="], "--output: an empty value"),
        (["platform", "write", "hgx-h100", "--npus", "8", "--output=new/"], "--output: new/ names a folder"),
        (["info", ""], "an empty argument"),
        (["convert", "pytorch", "--device", "", "-o", "x"], "--device: an empty value"),
        (["replay", "-w", "run", "-s", "", "-n", "network.yml"], "--system: an empty value"),
    ],
)
def test_other_spellings_and_inputs(
    line: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(here)
    assert run(line) == 2
    assert capsys.readouterr().err.startswith(f"chakra: error: {said}")
    assert tree(here) == before


#: names that stand where the output's stands, without which a command would write over what was meant as an input
MEANT_AS_INPUTS = {
    "anonymize run.0.et run.1.et": "differs from run.0.et by a number alone",
    "anonymize run.0.et run.1.et -o hidden.et": "OUT is named twice, by run.1.et and by hidden.et",
    "jsonize run.0.et run.1.et": "run.1.et: the name of a trace, and run.0.et becomes JSON",
    "jsonize run.0.et run.1.et -o run.json": "OUTPUT is named twice, by run.1.et and by run.json",
    "jsonize run.0.et run.1.et --input_filename run.0.et": "FILE is named twice",
    "timeline recorded/DEVICE other.json": "other.json: is there, and is a Kineto trace",
    "timeline result.json earlier.json": "earlier.json: is there, and is a replay result",
    "visualize run.0.et run.1.et -o graph.svg": "expected one trace and one file to write",
}


@pytest.mark.parametrize("line", MEANT_AS_INPUTS)
def test_what_may_be_meant_as_an_input_is_not_written_over(
    line: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell makes two names of a pattern such as ``run.*.et``, of which the last was taken for the output's."""
    scene = Scene(line)
    device = next(word for word in words(Scene("timeline recorded/DEVICE")) if word.startswith("recorded/"))
    with files.open_stream(here / device) as file:
        (here / "other.json").write_bytes(file.read())
    shutil.copy(here / "result.json", here / "earlier.json")
    shutil.copy(here / "run.0.et", here / "run.1.et")
    before = tree(here)
    assert run(words(scene)) == 2
    assert MEANT_AS_INPUTS[line] in capsys.readouterr().err
    assert tree(here) == before


def test_what_a_command_wrote_it_writes_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        "timeline result.json line.json",
        "anonymize run.0.et hidden.et",
        "jsonize run.0.et run.json",
    ):
        assert [run(line.split()) for _ in range(2)] == [0, 0], line
    assert run(["jsonize", "--input_filename", "run.0.et", "named.json"]) == 0
    assert (here / "named.json").read_bytes() == (here / "run.json").read_bytes()
