"""Reading YAML 1.2 files of any shape (duplicate keys are errors, ``1e9`` is a number), with one-line errors."""

from pathlib import Path
from typing import Any

from chakra.errors import ConfigError

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
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
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
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}:" if error.problem_mark else ""
        raise ConfigError(f"{source}:{line} {error.problem or 'not YAML'}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{source}: not YAML: {str(error).splitlines()[0] if str(error) else 'nested too deeply'}"
        ) from None
