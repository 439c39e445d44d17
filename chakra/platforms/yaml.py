"""Reading YAML 1.2 files of any shape (duplicate keys are errors, ``1e9`` is a number), with one-line errors."""

from pathlib import Path
from typing import Any

from chakra.errors import ConfigError
from chakra.io.files import read_raw

#: larger files are no description of a machine or a study
MAX_BYTES = 4_000_000
#: deeper nesting is no description of a machine or a study either, and slow to refuse later
MAX_DEPTH = 50


def read_yaml(path: Path) -> Any:
    """Parse a YAML file into plain values.

    Raises
    ------
    ConfigError
        Not readable, too large, or not YAML; with the line where that is known.
    """
    try:
        text = read_raw(path, error=ConfigError, most=MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML text; ``source`` begins messages."""
    depth = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if depth > MAX_DEPTH:
            raise ConfigError(f"{source}: brackets nested more than {MAX_DEPTH} deep")
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    from chakra.replay.config.files import composed

    try:
        root, yaml = composed(text)
        if root is None:
            return None
        _check_aliases(root, source)
        return yaml.constructor.construct_document(root)
    except MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}:" if error.problem_mark else ""
        raise ConfigError(f"{source}:{line} {error.problem or 'not YAML'}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{source}: not YAML: {str(error).splitlines()[0] if str(error) else 'nested too deeply'}"
        ) from None


def _check_aliases(root: Any, source: str) -> None:
    """Refuse a document that a few lines make huge: by aliases of aliases, or by merge keys (not in YAML 1.2)."""
    from chakra.replay.config.files import refuse_growth

    refuse_growth(root, source)
    waiting, seen = [root], {id(root)}
    while waiting:
        node = waiting.pop()
        if node.id == "mapping":
            for key, _ in node.value:
                if key.id == "scalar" and key.value == "<<":
                    line = key.start_mark.line + 1
                    raise ConfigError(
                        f"{source}: line {line}: merge keys (<<) are not part of YAML 1.2: repeat the entries"
                    )
        if node.id != "scalar":
            inner = node.value if node.id == "sequence" else [part for pair in node.value for part in pair]
            new = [part for part in inner if id(part) not in seen]
            seen.update(map(id, new))
            waiting += new
