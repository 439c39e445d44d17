"""Build wheel and source distribution and use them as a user would: in empty environments, on several Pythons.

    python tools/check_wheel.py [--only NAME] [--list]

The wheel must be pure Python and hold every file of the packages, the source distribution every file of the
repository. The environments: the oldest supported Python that this machine has with the lowest and with the newest
versions of what is needed, every newer one with the newest, and the source distribution on the newest. In each of
them every module must import, the command must run outside the repository, `chakra doctor` must find nothing broken
and a replay must give the known figure; the newest Python runs a part of the tests, too. A supported Python that
this machine lacks is named, not missed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import tomllib
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOLDERS = {
    "chakra": "chakra",
    "chakra/replay": "replay",
    "chakra/converters": "converters",
    "chakra/schemas": "schemas",
}
#: packages of extras, which an installation may lack
OPTIONAL = ("torch", "matplotlib", "pyarrow", "distributed", "optuna", "perfetto")
#: files of the repository that a source distribution does not need
NOT_IN_SDIST = re.compile(r"\.(git|github|pre-commit)[^/]*(/.*)?$")
#: what builds add to a source distribution
MADE = re.compile(r"PKG-INFO$|setup\.cfg$|[^/]*\.egg-info/.*")
#: the part of the tests that the newest Python runs against the installed wheel
TESTS = ("tests/et", "tests/cli", "tests/builder", "tests/replay/test_golden_values.py")
EXAMPLE = "allreduce_ring8"

IMPORT_ALL = f"""
import importlib, pkgutil, sys, warnings
warnings.simplefilter("error")
import chakra
count = 0
for found in pkgutil.walk_packages(chakra.__path__, "chakra."):
    if found.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(found.name)
        count += 1
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in {OPTIONAL!r}:
            raise
        print(f"{{found.name}} needs the optional {{error.name}}")
assert count > 50, count
for name in chakra.__all__:
    getattr(chakra, name)
print(f"{{count}} modules import")
"""

PROBE = "import sys, venv, ensurepip; print(*sys.version_info[:3], sys.implementation.name)"


class CheckError(Exception):
    """Something that a user of the wheel would meet."""


@dataclass(frozen=True, order=True)
class Interpreter:
    """A Python of this machine."""

    version: tuple[int, int, int]
    path: Path

    @property
    def series(self) -> tuple[int, int]:
        """Major and minor version."""
        return self.version[:2]

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


@dataclass(frozen=True)
class Environment:
    """An environment to be made: what is installed into it, under which constraints, and what else is tried."""

    name: str
    interpreter: Interpreter
    what: Path
    constraints: tuple[str, ...] = ()
    both_protobufs: bool = False
    tests: bool = False


class Talk:
    """What one environment has to say, printed in one piece."""

    _lock = threading.Lock()

    def __init__(self, title: str) -> None:
        self._lines = [f"-- {title}"]

    def say(self, text: str) -> None:
        """Add lines."""
        self._lines += text.rstrip("\n").splitlines()

    def end(self) -> None:
        """Print everything."""
        with self._lock:
            print("\n".join(self._lines), flush=True)


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command outside the repository and return what it printed.

    Raises
    ------
    CheckError
        It failed; with its output.
    """
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**environment, **variables},
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        shown = " ".join(str(part) if len(str(part)) < 200 else "..." for part in command)
        raise CheckError(f"failed ({done.returncode}): {shown}\n{done.stdout}{done.stderr}")
    return done.stdout


# ------------------------------------------------------------------------------------------------- interpreters


def candidates() -> Iterable[Path]:
    """Where Pythons may lie: this one, the path, pyenv, uv, /opt."""
    yield Path(sys.executable)
    for folder in filter(None, os.environ.get("PATH", "").split(os.pathsep)):
        yield from Path(folder).glob("python3.[0-9]*[0-9]")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python"))
    yield from (pyenv / "versions").glob("3.*/bin/python3")
    yield from uv.glob("cpython-3.*/bin/python3")
    yield from Path("/opt").glob("*python*/bin/python3")
    yield from Path("/opt").glob("*python*/*/bin/python3")


def interpreters() -> list[Interpreter]:
    """The newest CPython of every series that this machine has, oldest series first."""
    best: dict[tuple[int, int], Interpreter] = {}
    for path in dict.fromkeys(candidates()):
        try:
            done = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            continue
        found = re.fullmatch(r"(\d+) (\d+) (\d+) cpython\n", done.stdout)
        if done.returncode or found is None:  # pyenv has stand-ins for versions that are not switched on
            continue
        interpreter = Interpreter((int(found[1]), int(found[2]), int(found[3])), path)
        known = best.get(interpreter.series)
        if known is None or interpreter.version > known.version:
            best[interpreter.series] = interpreter
    return [best[series] for series in sorted(best)]


def supported() -> list[tuple[int, int]]:
    """Series that the metadata says are supported."""
    marks = (re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", c) for c in PROJECT["classifiers"])
    return sorted((3, int(mark[1])) for mark in marks if mark)


# --------------------------------------------------------------------------------------------------- distributions


def build(work: Path) -> tuple[Path, Path]:
    """Build from a copy of the tracked files, so that leftovers of other builds cannot get in; wheel and sdist."""
    copy = work / "source"
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    files = [name for name in names.split("\0") if name and (ROOT / name).is_file()]
    for name in files:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    # the wheel is made from the source distribution, so that one must hold all it needs
    run(sys.executable, "-m", "build", "--outdir", work / "dist", copy, cwd=work)
    (wheel,) = (work / "dist").glob("*.whl")
    (sdist,) = (work / "dist").glob("*.tar.gz")
    if not wheel.name.endswith("-py3-none-any.whl"):
        raise CheckError(f"{wheel.name} is not pure Python")
    check_wheel(wheel, files)
    check_sdist(sdist, files)
    sizes = ", ".join(f"{path.name} {path.stat().st_size // 1024} KiB" for path in (wheel, sdist))
    print(f"{sizes}; both hold what they should")
    return wheel, sdist


def check_wheel(wheel: Path, files: list[str]) -> None:
    """Every file of the packages is in the wheel, and nothing else; its metadata are complete."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (place,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(place).decode()
    wanted = {
        f"{package}/{name.removeprefix(folder + '/')}"
        for package, folder in FOLDERS.items()
        for name in files
        if name.startswith(folder + "/")
    }
    compare("wheel", {name for name in names if ".dist-info/" not in name}, wanted)
    for line in (
        f"Name: {PROJECT['name']}",
        f"Version: {PROJECT['version']}",
        f"Summary: {PROJECT['description']}",
        f"License-Expression: {PROJECT['license']}",
        "License-File: LICENSE",
        f"Requires-Python: {PROJECT['requires-python']}",
        "Description-Content-Type: text/markdown",
        *(f"Provides-Extra: {extra}" for extra in PROJECT["optional-dependencies"]),
    ):
        if f"\n{line}\n" not in metadata:
            raise CheckError(f"the wheel's metadata lack {line!r}")
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        raise CheckError("the wheel holds no licence")


def check_sdist(sdist: Path, files: list[str]) -> None:
    """Every file of the repository is in the source distribution: what builds, tests and documents it."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    packed = {name for name in names if not MADE.match(name)}
    compare("source distribution", packed, {name for name in files if not NOT_IN_SDIST.match(name)})


def compare(what: str, packed: set[str], wanted: set[str]) -> None:
    """Both sets must be equal."""
    if packed != wanted:
        lacking, extra = sorted(wanted - packed), sorted(packed - wanted)
        raise CheckError(f"not in the {what}: {lacking}; only in the {what}: {extra}")


def lowest() -> tuple[str, ...]:
    """Constraints that pin every dependency to the release series of its lower bound."""
    found = (re.match(r"([A-Za-z0-9._-]+)>=([0-9.]+)", line) for line in PROJECT["dependencies"])
    return tuple(f"{match[1]}=={match[2]}.*" for match in found if match)


# ---------------------------------------------------------------------------------------------------- environments


def use(environment: Environment, work: Path, repository: Path) -> None:
    """Make an environment and use what is installed there; what it has to say is printed at the end."""
    talk = Talk(f"{environment.name}: Python {environment.interpreter}, {environment.what.name}")
    try:
        _use(environment, work / environment.name, repository, talk.say)
    finally:
        talk.end()


def _use(environment: Environment, home: Path, repository: Path, say: Callable[[str], None]) -> None:
    home.mkdir()
    run(environment.interpreter.path, "-m", "venv", home / "venv", cwd=home)
    folder = home / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pins = home / "constraints.txt"
    pins.write_text("\n".join(environment.constraints) + "\n")
    # compiled kernels of another environment must not stand in for this one's
    here = partial(run, cwd=home, CHAKRA_CACHE_DIR=str(home / "kernels"))
    python = partial(here, folder / "python")
    install = partial(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    chakra = partial(here, folder / "chakra")

    # the extra `test` brings nothing that the package itself may quietly lean on: the others go without it
    install(f"{environment.what}{'[test]' if environment.tests else ''}", "-c", pins)
    say(python("-c", IMPORT_ALL))
    said = chakra("--version")
    if said != f"chakra, version {PROJECT['version']}\n":
        raise CheckError(f"chakra --version says {said!r}, pyproject.toml {PROJECT['version']}")
    say(check_doctor(chakra))
    say(check_replay(chakra, repository))
    for bound in ("protobuf>=7,<8", "protobuf==5.29.*") if environment.both_protobufs else ():
        install(bound)
        python("-c", IMPORT_ALL)
        say(f"with {bound}: {check_doctor(chakra)}")
    if environment.tests:
        say(check_tests(folder / "python", repository, home))


def check_doctor(chakra: Callable[..., str]) -> str:
    """Nothing is broken; the versions that are there."""
    findings = json.loads(chakra("doctor", "--format=json"))["findings"]
    versions = (
        f"{found['name'].split(' (')[0]} {found['detail']}"
        for found in findings
        if found["status"] == "ok" and re.fullmatch(r"[0-9.]+", found["detail"])
    )
    return f"doctor finds nothing broken: {', '.join(versions)}"


def check_replay(chakra: Callable[..., str], repository: Path) -> str:
    """Replay an example; traces/README.md states the figure."""
    stated = re.search(rf"`{EXAMPLE}` \|.* ([\d,]+) ns \|", (repository / "traces" / "README.md").read_text())
    if stated is None:
        raise CheckError(f"traces/README.md states no finish time of {EXAMPLE}")
    wanted = int(stated[1].replace(",", ""))
    example = repository / "traces" / EXAMPLE
    given = ("-w", example / "workload", "-s", example / "system.json", "-n", example / "network.yml")
    document = json.loads(chakra("replay", *given, "--format", "json", "--quiet"))
    if set(document["finish_ns"]) != {wanted}:
        raise CheckError(f"{EXAMPLE} finishes at {document['finish_ns']}, not {wanted}")
    return f"{EXAMPLE} finishes at {wanted} ns"


def check_tests(python: Path, repository: Path, home: Path) -> str:
    """Run a part of the tests against what is installed: the copy that they lie in has no `chakra` to import."""
    copy = home / "tests"
    shutil.copytree(repository, copy, ignore=shutil.ignore_patterns(".git"))
    shutil.rmtree(copy / "chakra")
    where = run(python, "-c", "import chakra; print(chakra.__path__[0])", cwd=copy)
    if str(home / "venv") not in where:
        raise CheckError(f"the tests would try the package in {where}")
    pytest = (python.with_name("pytest"), "-q", "-n", "2", "-p", "no:cacheprovider", *TESTS)
    return run(*pytest, cwd=copy).splitlines()[-1]


def environments(pythons: list[Interpreter], wheel: Path, sdist: Path) -> list[Environment]:
    """What is tried; those that take longest come first."""
    oldest, newest = pythons[0], pythons[-1]
    between = [Environment(f"python{p.version[1]}", p, wheel) for p in pythons[1:-1]]
    return [
        Environment("newest", newest, wheel, tests=True),
        Environment("lowest", oldest, wheel, lowest()),
        Environment("oldest", oldest, wheel, both_protobufs=True),
        *between,
        Environment("sdist", newest, sdist),
    ]


def main() -> None:
    """Build, then check in the environments asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", help="one environment: newest, lowest, oldest, python3N or sdist")
    parser.add_argument("--list", action="store_true", help="only say which Pythons there are")
    arguments = parser.parse_args()
    found = interpreters()
    pythons = [python for python in found if python.series in supported()]
    for python in pythons:
        print(f"Python {python}: {python.path}")
    for python in found:
        if python.series > supported()[-1]:
            print(f"Python {python}: newer than the metadata name, not tried")
    for series in supported():
        if series not in {python.series for python in found}:
            print(f"Python {'.'.join(map(str, series))}: supported, but not on this machine: not tried")
    if not pythons:
        sys.exit("there is no supported Python")
    if arguments.list:
        return
    with tempfile.TemporaryDirectory(prefix="chakra-wheel-") as folder:
        work = Path(folder)
        try:
            wheel, sdist = build(work)
            chosen = [
                one for one in environments(pythons, wheel, sdist) if arguments.only in (None, one.name)
            ]
            # two at a time: an installation waits for the disk half of its time
            with ThreadPoolExecutor(2) as pool:
                try:
                    for done in [pool.submit(use, one, work, work / "source") for one in chosen]:
                        done.result()
                except CheckError:
                    pool.shutdown(cancel_futures=True)
                    raise
        except CheckError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
