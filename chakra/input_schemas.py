"""JSON Schemas of the configuration files that users write, made from the keys that read them.

They are named like those of the documents that commands write: `chakra.config.system/1`. What one value alone can say is
in them; what two keys say together (lists of equal length, a roofline without its peak) only the readers know.
"""

from collections.abc import Callable
from functools import partial

from chakra.errors import UsageError
from chakra.io.nearest import nearest
from chakra.replay.config.key import Schema, object_schema

DRAFT = "https://json-schema.org/draft/2020-12/schema"
PREFIX = "chakra.config."


def _network() -> Schema:
    from chakra.replay.config.keys import LINK_KEYS, NETWORK_KEYS, PLUGIN_KEYS

    return {"anyOf": [object_schema(keys) for keys in (NETWORK_KEYS, LINK_KEYS, PLUGIN_KEYS)]}


def _system() -> Schema:
    from chakra.replay.config.keys import SYSTEM_KEYS

    return object_schema(SYSTEM_KEYS)


def _memory() -> Schema:
    from chakra.replay.config.keys import MEMORY_KEYS

    return object_schema(MEMORY_KEYS)


def _groups() -> Schema:
    from chakra.replay.config.groups import GROUPS

    return GROUPS.schema()


def _npu_scale() -> Schema:
    from chakra.replay.config.npu_scale import FACTOR

    factors = {"type": "object", "propertyNames": {"pattern": r"^[0-9]+$"}}
    return {
        "anyOf": [
            {**factors, "additionalProperties": FACTOR.schema()},
            {"type": "array", "items": FACTOR.schema()},
        ]
    }


def _per_node_custom() -> Schema:
    from chakra.replay.config.system import NODE_PREFIX

    return {
        "type": "object",
        "propertyNames": {"pattern": r"^[0-9]+$"},
        "additionalProperties": NODE_PREFIX.schema(),
    }


def _platform() -> Schema:
    from chakra.platforms.keys import PLATFORM_KEYS

    return object_schema(PLATFORM_KEYS)


def _study() -> Schema:
    from chakra.sweep.keys import STUDY_KEYS

    return object_schema(STUDY_KEYS)


def _request(kind: str) -> Schema:
    from chakra.generate.request.parameters import keys_of
    from chakra.generate.request.requests import REQUESTS

    return object_schema(keys_of(REQUESTS[kind]))


#: name without version -> what makes the schema
_MADE: dict[str, Callable[[], Schema]] = {
    "network": _network,
    "system": _system,
    "memory": _memory,
    "groups": _groups,
    "npu-scale": _npu_scale,
    "per-node-custom": _per_node_custom,
    "platform": _platform,
    "study": _study,
    **{
        f"request.{kind}": partial(_request, kind) for kind in ("transformer", "moe", "mlp", "resnet", "dlrm")
    },
}


def names() -> list[str]:
    """Names of all schemas, sorted: ``chakra.config.network/1``."""
    return sorted(f"{PREFIX}{name}/1" for name in _MADE)


def load(name: str) -> Schema:
    """The JSON Schema (draft 2020-12) of a kind of configuration file.

    Parameters
    ----------
    name
        As `names` has it; the version and ``chakra.`` may be left out.

    Raises
    ------
    UsageError
        If there is no such schema.
    """
    wanted = name.removesuffix("/1").removeprefix("chakra.").removeprefix("config.")
    if wanted not in _MADE:
        raise UsageError(f"there is no schema {name!r}{nearest(name, names())}")
    identity: Schema = {"$schema": DRAFT, "$id": f"{PREFIX}{wanted}/1"}
    return {**identity, "title": f"chakra: {wanted} file", **_MADE[wanted]()}
