"""The ns-3 wheel: whether it is there, and its libraries with the glue, loaded once in a process."""

import importlib
import importlib.util
import os
import platform
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from chakra.errors import ConfigError, UsageError

#: the parts of ns-3 that the glue uses, each after those that it needs
PARTS = ("core", "network", "stats", "bridge", "traffic-control", "internet", "point-to-point")
#: minor versions of Python 3 for which there are wheels of ns-3 3.44
WHEELS = (11, 12, 13)
INSTALL = 'pip install "chakra-replay[ns3]"'


def require_ns3() -> Path:
    """The folder of the installed wheel.

    Raises
    ------
    UsageError
        If it is not installed, or has not what is needed.
    """
    missing = [name for name in ("ns3", "cppyy") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"backend: 'ns3' needs the package {missing[0]}, which is not installed: {_how()}")
    spec = importlib.util.find_spec("ns3")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        root = Path(folder)
        if (root / "include" / "ns3").is_dir() and all(_library(root, part) for part in PARTS):
            return root
    raise UsageError(
        f"backend: the installed package ns3 has no libraries and headers of ns-3, as its wheel for Linux has: {INSTALL}"
    )


def _how() -> str:
    """How to get it; or that there is no wheel for this Python or machine."""
    minor, machine = sys.version_info[1], platform.machine()
    if sys.platform != "linux" or machine != "x86_64":
        return f"{INSTALL} on Linux on x86-64; there is no wheel for {sys.platform} on {machine}"
    if minor not in WHEELS:
        versions = ", ".join(f"3.{known}" for known in WHEELS)
        return f"{INSTALL} with Python {versions}; there is no wheel for this Python 3.{minor}"
    return INSTALL


def _library(root: Path, part: str) -> Path | None:
    """The shared library of a part of ns-3, whose name has the version in it."""
    return next(iter(sorted((root / "lib64").glob(f"libns3*-{part}.so"))), None)


class _Loaded:
    """What this process has loaded."""

    glue: Any = None


def load_glue() -> Any:
    """The namespace of the glue: loads ns-3 and compiles the glue, which takes seconds, the first time.

    Raises
    ------
    UsageError
        If ns-3 is not there.
    ConfigError
        If it cannot be loaded.
    """
    if _Loaded.glue is None:
        root = require_ns3()
        # the glue's loops are hot, and cling would compile them without optimisation
        os.environ.setdefault("EXTRA_CLING_ARGS", "-O2")
        try:
            _Loaded.glue = _load(root)
        except Exception as error:  # whatever a compiler or a loader says
            lines = str(error).strip().splitlines()
            raise ConfigError(
                f"ns-3 in {root} cannot be loaded: {type(error).__name__}{': ' + lines[0] if lines else ''}"
            ) from error
    return _Loaded.glue


def _load(root: Path) -> Any:
    cppyy = importlib.import_module("cppyy")
    cppyy.add_include_path(str(root / "include"))
    for part in PARTS:
        cppyy.load_library(str(_library(root, part)))
    source = resources.files("chakra.replay.networks.ns3").joinpath("glue.cc").read_text(encoding="utf-8")
    cppyy.cppdef(source)
    time = cppyy.gbl.ns3.Time
    time.SetResolution(time.PS)
    return cppyy.gbl.chakra_packets
