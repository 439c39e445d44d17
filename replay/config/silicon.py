"""The package aiconfigurator-core (the extra ``silicon``): where its tables of measured times lie, read in place.

Tables are by system (``h100_sxm``), what was measured (``gemm``), who ran it (``vllm``) and its version. A name asks for
them: ``aiconfigurator``, ``aiconfigurator:SYSTEM``, and with ``/BACKEND`` behind it whose matrix products.
"""

import importlib.util
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from chakra.errors import UsageError
from chakra.io.nearest import nearest

NAME = "aiconfigurator"
_PACKAGE, _DISTRIBUTION = "aiconfigurator_core", "aiconfigurator-core"
#: presets and the package's names of the same machines
_SYSTEMS = {
    "dgx-a100": "a100_sxm", "hgx-h100": "h100_sxm", "hgx-h200": "h200_sxm", "hgx-b200": "b200_sxm",
    "hgx-b300": "b300_sxm", "gb200-nvl72": "gb200", "gb300-nvl72": "gb300", "l40s": "l40s",
    "rtx-pro-6000": "rtx_pro_6000_server",
}  # fmt: skip


def named(name: str) -> bool:
    """Whether a name means the package's tables, not a file."""
    return re.match(rf"{NAME}(?:[:/]|$)", name) is not None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a name asks the package for.

    Attributes
    ----------
    system
        Its name of the machine; ``""``: the package has none that is called so.
    called
        The machine as the user calls it.
    backend
        Whose matrix products; ``""``: the first that there is.
    """

    system: str
    called: str
    backend: str


def asked(name: str, machine: str) -> Asked:
    """What a name asks for on a machine.

    Raises
    ------
    UsageError
        A slash with nothing behind it.
    """
    front, slash, backend = name.partition("/")
    system = front.partition(":")[2]
    if slash and not backend:
        raise UsageError(f"{NAME}: {name!r} names no back end behind the slash, such as {NAME}/vllm")
    return Asked(system or _SYSTEMS.get(machine, ""), system or machine, backend)


def folder() -> Path:
    """Where the tables lie.

    Raises
    ------
    UsageError
        The package is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"{NAME}: {_DISTRIBUTION} is not installed: pip install 'chakra-replay[silicon]'")
    return Path(next(iter(spec.submodule_search_locations))) / "systems" / "data"


def newest(kind: str, file: str, what: str, wanted: Asked) -> dict[str, Path]:
    """By who ran it, the newest tables of a kind that a system has: ``SYSTEM/kind/WHO/VERSION/file``.

    `what` names such a table in messages.

    Raises
    ------
    UsageError
        The package is not installed, or has no such table of this system.
    """
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder().glob(f"*/{kind}/*/*/{file}"), key=_version):
        who, system = path.parts[-3], path.relative_to(folder()).parts[0]
        found.setdefault(system, {})[who] = path  # the last is the newest
    if wanted.system not in found:
        raise UsageError(
            f"{NAME}: no {what} for {wanted.called!r}{nearest(wanted.called, sorted(found))}; say which with "
            f"{NAME}:SYSTEM, one of {', '.join(sorted(found)) or 'none'}"
        )
    return found[wanted.system]


def _version(path: Path) -> tuple[int, ...]:
    """Of the folder that a table lies in."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", path.parts[-2]))


def called(text: str) -> str:
    """How results call the package's tables of a system, and whose they are."""
    try:
        release = f" {metadata.version(_DISTRIBUTION)}"
    except metadata.PackageNotFoundError:
        release = ""
    return f"{_DISTRIBUTION}{release} ({text})"
