"""Other distributions that install an import package of our name.

`mlc-chakra` (MLCommons' tools) puts modules into a folder `chakra` too, some under the very names of ours
(`chakra/schema/protobuf/et_def_pb2.py`), so the one installed last wins file by file.
"""

import os
import sys
import warnings

#: distribution -> prefix of its metadata folder
_RIVALS = {"mlc-chakra": "mlc_chakra-"}


class ConflictWarning(UserWarning):
    """Two distributions share the import name `chakra` in one environment."""


def conflicting_distributions() -> list[tuple[str, str]]:
    """Names and versions of such distributions on `sys.path`, by their metadata folders (which is quick)."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(sys.path):
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            for name, prefix in _RIVALS.items():
                if entry.startswith(prefix) and entry.endswith(".dist-info"):
                    found.setdefault(name, entry[len(prefix) : -len(".dist-info")])
    return sorted(found.items())


def warn_of_conflicts() -> None:
    """Say how to mend an environment that holds such a distribution."""
    for name, version in conflicting_distributions():
        warnings.warn(
            f"{name} {version} is installed beside chakra-replay and has an import package `chakra` too, "
            "so that modules of the two get mixed. Give each its own environment: "
            f"`pip uninstall {name} chakra-replay`, then `pip install chakra-replay`",
            ConflictWarning,
            stacklevel=3,
        )
