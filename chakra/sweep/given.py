"""What a study gives: keys of its sections and the values that they take, fixed or varied."""

from collections.abc import Iterator

from chakra.sweep.study import Study


def values_of(study: Study, name: str) -> list[object]:
    """Values that a key takes: those of its parameter, else the fixed one, else none.

    Parameters
    ----------
    study
        The study.
    name
        The key, with its section.
    """
    for parameter in study.parameters:
        if parameter.name == name:
            return list(parameter.values) or [parameter.low, parameter.high]
    section, _, key = name.partition(".")
    given = study.fixed.get(section)
    if not key:
        return [] if given is None else [given]
    found = {plain(k): v for k, v in given.items()} if isinstance(given, dict) else {}
    return [found[key]] if key in found else []


def plain(key: object) -> str:
    """A key as documents of chakra write it.

    Parameters
    ----------
    key
        The key as the study has it.
    """
    return str(key).replace("_", "-")


def keys_of(study: Study, section: str) -> Iterator[str]:
    """Keys of a section, given or varied, as they are written.

    Parameters
    ----------
    study
        The study.
    section
        The section.
    """
    given = study.fixed.get(section)
    yield from map(str, given if isinstance(given, dict) else ())
    yield from (
        parameter.name.partition(".")[2]
        for parameter in study.parameters
        if parameter.name.startswith(f"{section}.")
    )
