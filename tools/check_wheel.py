"""Build the wheel and use it as a user would: in empty environments, at both ends of the versions it allows.

    python tools/check_wheel.py [--only newest|lowest]

The wheel must be pure Python and hold every file of the packages. In each environment every module must
import, the command must run outside the repository, `chakra doctor` must find nothing broken, and the schema
must import with the oldest and the newest protobuf.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "chakra": "chakra",
    "chakra/replay": "replay",
    "chakra/converters": "converters",
    "chakra/schemas": "schemas",
}
#: packages of extras, which an installation may lack
OPTIONAL = ("torch", "matplotlib", "pyarrow", "distributed", "optuna", "perfetto")

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
print(f"{{count}} modules import on Python {{sys.version.split()[0]}} from {{chakra.__path__[0]}}")
"""


def run(*command: str | Path, cwd: Path, quiet: bool = False) -> None:
    """Run a command outside the repository; a failure ends this program with its output."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        text=True,
        capture_output=quiet,
        check=False,
    )
    if done.returncode:
        sys.exit(f"failed ({done.returncode}): {command}\n{done.stdout or ''}{done.stderr or ''}")


def build(work: Path) -> Path:
    """Build the wheel from a copy of the tracked files, so that leftovers of other builds cannot get in."""
    copy = work / "source"
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, copy / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    run(sys.executable, "-m", "build", "--outdir", work / "dist", copy, cwd=work, quiet=True)
    (wheel,) = (work / "dist").glob("*.whl")
    (sdist,) = (work / "dist").glob("*.tar.gz")
    if not wheel.name.endswith("-py3-none-any.whl"):
        sys.exit(f"{wheel.name} is not pure Python")
    check_content(wheel, copy)
    print(f"{wheel.name} {wheel.stat().st_size // 1024} KiB, {sdist.name} {sdist.stat().st_size // 1024} KiB")
    return wheel


def check_content(wheel: Path, source: Path) -> None:
    """Every file of the packages is in the wheel, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {
        f"{package}/{path.relative_to(source / folder).as_posix()}"
        for package, folder in FOLDERS.items()
        for path in (source / folder).rglob("*")
        if path.is_file()
    }
    if packed != wanted:
        sys.exit(f"not in the wheel: {sorted(wanted - packed)}; only in the wheel: {sorted(packed - wanted)}")


def lowest() -> list[str]:
    """Constraints that pin every dependency to the release series of its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = []
    for line in project["dependencies"]:
        match = re.match(r"([A-Za-z0-9._-]+)>=([0-9.]+)", line)
        if match is not None:
            pins.append(f"{match[1]}=={match[2]}.*")
    return pins


def use(wheel: Path, work: Path, name: str, constraints: list[str]) -> None:
    """Install the wheel into an empty environment and use it there."""
    environment = work / name
    run(sys.executable, "-m", "venv", environment, cwd=work)
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    pins = work / f"{name}.txt"
    pins.write_text("\n".join(constraints) + "\n")
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*install, wheel, "-c", pins, cwd=work)
    print(f"-- {name}")
    run(python, "-c", IMPORT_ALL, cwd=work)
    run(python.with_name("chakra"), "--version", cwd=work)
    run(python.with_name("chakra"), "doctor", cwd=work)
    for bound in ("protobuf>=7,<8", "protobuf==5.29.*") if name == "newest" else ():
        run(*install, bound, cwd=work)
        run(python, "-c", "import google.protobuf as g; print('protobuf', g.__version__)", cwd=work)
        run(python, "-c", IMPORT_ALL, cwd=work)
        run(python.with_name("chakra"), "doctor", "--format=json", cwd=work, quiet=True)


def main() -> None:
    """Build, then check in the environments asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", choices=["newest", "lowest"])
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory(prefix="chakra-wheel-") as folder:
        work = Path(folder)
        wheel = build(work)
        for name, constraints in (("newest", []), ("lowest", lowest())):
            if only in (None, name):
                use(wheel, work, name, constraints)


if __name__ == "__main__":
    main()
