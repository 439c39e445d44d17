"""`chakra check-config`: check configuration files and explain every value in effect."""

import os
import textwrap
from typing import TYPE_CHECKING, Any

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.errors import UsageError
from chakra.io.digits import is_whole
from chakra.io.documents import document_text
from chakra.io.readable import counted, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakra.io.yaml import Entry
    from chakra.replay.config.values_in_effect import FileInEffect

    Entries = Mapping[object, Entry]


@click.command(cls=ChakraCommand)
@click.argument("files", nargs=-1)
@click.option("-s", "--system", "--system-configuration", metavar="FILE", help="System file.")
@click.option("-n", "--network", "--network-configuration", metavar="FILE", help="Network file.")
@click.option("-m", "--memory", "--remote-memory-configuration", metavar="FILE", help="Remote-memory file.")
@click.option("-g", "--groups", "--comm-group-configuration", metavar="FILE", help="Communicator-group file.")
@click.option("--npu-scale", metavar="FILE", help="Speed factors of single NPUs; with a network file.")
@click.option(
    "--compat",
    type=click.Choice(["none", "astra-sim", "astra-sim-1.0"]),
    default="none",
    show_default=True,
    help="Read the files as ASTRA-sim does.",
)
@click.option(
    "--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output."
)
def command(
    files: tuple[str, ...],
    system: str | None,
    network: str | None,
    memory: str | None,
    groups: str | None,
    npu_scale: str | None,
    compat: str,
    output_format: str,
) -> None:
    """Check configuration files and print every value with unit, default, source and meaning.

    FILES are told apart by their content: network (building blocks, links, GraphML), system, remote memory,
    communicator groups, study, platform, custom algorithms per node, speed factors. The options say it outright.
    """
    chosen = {
        "network": network,
        "system": system,
        "memory": memory,
        "groups": groups,
        "npu-scale": npu_scale,
    }
    others: list[tuple[str, str]] = []
    entries: dict[str, Entries] = {}
    for path in files:
        kind, read = kind_of(path)
        if read is not None:
            entries[path] = read
        if kind in _ALONE:
            others.append((kind, path))
            continue
        if chosen[kind] is not None:
            raise UsageError(f"{path} and {chosen[kind]} are both {kind} files")
        chosen[kind] = path
    if not any(chosen.values()) and not others:
        raise UsageError("check-config: name a file, such as system.json or network.yml")
    mode = None if compat == "none" else compat
    parts = explain_all(chosen, mode, entries) + [explain_alone(kind, path) for kind, path in others]
    if output_format == "json":
        click.echo(document_text({"schema": "chakra.check-config/1", "files": parts}, indent=1))
    else:
        click.echo("\n".join(line for part in parts for line in text_of(part)))


#: kinds of files that stand alone: any number of them may be checked at once
_ALONE = ("study", "platform", "custom")


def kind_of(path: str) -> "tuple[str, Entries | None]":
    """Which configuration a file holds, by its content; and the entries of a YAML file, which is not read again.

    The kind is one of "network", "system", "memory", "groups", "study", "platform", "custom" and "npu-scale".
    """
    from chakra.io.text import read_text
    from chakra.replay.config.files import read_json
    from chakra.replay.config.keys import MEMORY_KEYS, SYSTEM_KEYS

    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".graphml":
        return "network", None
    if suffix in (".yml", ".yaml"):
        return _kind_of_yaml(path)
    start = read_text(path).lstrip()[:1]
    if start == "[" or (start not in ("", "{") and suffix != ".json"):
        return "npu-scale", None
    entries = read_json(path, last_wins=True)
    if {key.name for key in MEMORY_KEYS} & set(entries):
        return "memory", None
    if entries and not {key.name for key in SYSTEM_KEYS} & set(entries):
        values = [entry.value for entry in entries.values()]
        if all(isinstance(value, list) and all(isinstance(rank, int) for rank in value) for value in values):
            return "groups", None
        if all(is_whole(str(key)) for key in entries):
            return "npu-scale", None
    return "system", None


def _kind_of_yaml(path: str) -> "tuple[str, Entries]":
    from chakra.io.yaml import read_entries

    entries = read_entries(path)
    keys = set(entries)
    if keys & {"accelerator", "dims"}:
        return "platform", entries
    if keys & {"workload", "parameters", "objective", "pareto"}:
        return "study", entries
    if all(isinstance(key, int) for key in keys):
        return "custom", entries
    return "network", entries


def explain_alone(kind: str, path: str) -> dict[str, Any]:
    """Explain a study, a platform file, or a map of custom algorithms per node.

    Raises
    ------
    ConfigError
        if the file is wrong
    """
    if kind == "study":
        from chakra.sweep.values_in_effect import values_in_effect as of_study

        return _part(of_study(path))
    if kind == "platform":
        from chakra.platforms.values_in_effect import values_in_effect as of_platform

        return _part(of_platform(path))
    from chakra.replay.config import load_per_node_custom

    return {"kind": "custom", "source": path, "nodes": load_per_node_custom(path)}


def explain_all(
    chosen: dict[str, str | None], compat: str | None, entries: "dict[str, Entries] | None" = None
) -> list[dict[str, Any]]:
    """Explain the named files, and check that they fit each other; `entries` are those that have been read.

    Raises
    ------
    ConfigError
        for the first file that is wrong
    """
    from chakra.replay.config import check_fit, load_groups, load_memory, load_network, load_system
    from chakra.replay.config.section import Section
    from chakra.replay.config.values_in_effect import network_in_effect, values_in_effect

    parts: list[dict[str, Any]] = []
    network = None
    if chosen["network"] is not None:
        path = chosen["network"]
        described: str | Section = path
        if not path.lower().endswith(".graphml"):
            known = (entries or {}).get(path)
            described = (
                Section.of(path, kind="network", compat=compat, yaml=True)
                if known is None
                else Section(path, known, compat)
            )
        network = load_network(described, compat=compat)
        parts.append(_part(network_in_effect(described, network, compat)))
    if chosen["system"] is not None:
        parts.append(_part(values_in_effect("system", chosen["system"], compat=compat, network=network)))
    if chosen["memory"] is not None:
        parts.append(_part(values_in_effect("memory", chosen["memory"], compat=compat)))
    if chosen["groups"] is not None:
        path = chosen["groups"]
        found = load_groups(path, compat=compat, npus=network.npus if network else None)
        parts.append({"kind": "groups", "source": path, "groups": {k: list(v) for k, v in found.items()}})
    if chosen["npu-scale"] is not None:
        parts.append(_scales(chosen["npu-scale"], network.npus if network else None))
    if network is not None and (chosen["system"] or chosen["memory"]):
        system = load_system(chosen["system"] or {}, compat=compat)
        check_fit(network, system, load_memory(chosen["memory"], compat=compat))
    return parts


def _scales(path: str, npus: int | None) -> dict[str, Any]:
    """The factors that are not 1."""
    from chakra.replay.config.npu_scale import load_npu_scale

    if npus is None:
        raise UsageError(
            f"{path}: speed factors are checked with the network that has the NPUs: name its file, too"
        )
    factors = enumerate(load_npu_scale(path, npus).tolist())
    return {"kind": "npu-scale", "source": path, "factors": {npu: f for npu, f in factors if f != 1.0}}


def _part(explanation: "FileInEffect") -> dict[str, Any]:
    return {
        "kind": explanation.kind,
        "source": explanation.source,
        "values": [
            {
                "key": row.key,
                "value": row.value,
                "unit": row.unit,
                "default": row.default,
                "source": row.source,
                "meaning": row.meaning,
                "allowed": row.allowed,
            }
            for row in explanation.rows
        ],
        "notes": list(explanation.notes),
    }


def text_of(part: dict[str, Any]) -> list[str]:
    """Lines for people: one block per file."""
    lines = [f"{part['kind']}: {part['source']}"]
    if part["kind"] == "groups":
        lines += [
            f"  {printable(name)}: {counted(len(ranks), 'rank')}: {_short(ranks)}"
            for name, ranks in part["groups"].items()
        ]
        return [*lines, "  ok", ""]
    if "nodes" in part or "factors" in part:
        told = part.get("nodes") or part.get("factors") or {}
        what = "node {}: custom algorithm {}" if "nodes" in part else "NPU {}: compute times x {}"
        return [*lines, *(f"  {what.format(key, value)}" for key, value in told.items()), "  ok", ""]
    width = max(len(row["key"]) for row in part["values"])
    before = ""
    for row in part["values"]:
        origin = f"default: {row['default']}"
        if row["source"] != "default":
            origin = f"{os.path.basename(row['source'])}; {origin}"
        value = f"{_value(row['value'])} {row['unit']}".rstrip()
        lines.append(f"  {row['key']:{width}}  {value}  [{origin}]")
        said = f"{row['meaning']} ({row['allowed']})"
        if said != before:  # not again for every entry of a section
            lines += textwrap.wrap(said, 100, initial_indent=" " * 6, subsequent_indent=" " * 6)
        before = said
    lines += [f"  note: {note}" for note in part["notes"]]
    return [*lines, "  ok", ""]


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    return f"{value:g}" if isinstance(value, float) and value.is_integer() and value < 1e15 else str(value)


def _short(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:16]))
    return shown + (", ..." if len(ranks) > 16 else "")
