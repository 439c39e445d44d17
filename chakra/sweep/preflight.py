"""What is wrong with a study whatever the point: names that nothing knows. Found before anything runs.

A point may turn out not to be possible; a word that no machine, model or option has is a mistake in the study file, and
would make a point that nobody asked for.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from chakra.errors import ChakraError, ConfigError, UsageError
from chakra.generate.request.base import Request
from chakra.generate.request.requests import REQUESTS, DlrmRequest
from chakra.generate.request.transformers import TransformerRequest
from chakra.io.digits import is_whole
from chakra.io.nearest import nearest
from chakra.io.shown import describe
from chakra.platforms import cluster, platform_names
from chakra.replay.config import load_network, load_system
from chakra.replay.config.files import Source
from chakra.replay.options import BACKENDS, COMPAT_MODES
from chakra.sweep.available import check_metrics
from chakra.sweep.expressions import expression
from chakra.sweep.given import keys_of, plain, values_of
from chakra.sweep.metrics import METRICS
from chakra.sweep.point import DIM_KEYS, REPLAY_OPTIONS, price_of, same_words
from chakra.sweep.study import FILES, Study

#: a network of which a study's values replace a part, one at a time
ONE_DIMENSION = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]}


def check_study(study: Study) -> None:
    """Refuse a study that names a platform, model, parameter or option that is not there, or a metric that no point has.

    Parameters
    ----------
    study
        The study; its lists of values are read, nothing is run.

    Raises
    ------
    ConfigError
        Naming the study file, the key and the nearest name.
    """
    try:
        _platforms(study)
        _workload(study)
        _options(study)
        _files(study)
        _prices(study)
        _constraints(study)
        check_metrics(study)
    except UsageError as error:
        raise ConfigError(f"{study.source}: {error}") from None


def _platforms(study: Study) -> None:
    for words in values_of(study, "platform"):
        if not isinstance(words, str):
            raise UsageError(f"platform: must be a text, not {describe(words)}")
        cluster(words, sized=False)


def _files(study: Study) -> None:
    """Files of networks and systems, given or varied: each is there, and is one."""
    modes = {mode for mode in values_of(study, "replay.compat") if mode is None or mode in COMPAT_MODES} or {
        None
    }
    read: dict[str, Callable[..., object]] = {"network": load_network, "system": load_system}
    for section in FILES:
        whole = [value for value in values_of(study, section) if not isinstance(value, dict)]
        for path in [*whole, *values_of(study, f"{section}.file")]:
            if not isinstance(path, str):
                raise UsageError(f"{section}: must be the path of a file, not {describe(path)}")
            if not Path(path).is_file():
                raise UsageError(f"{section}: there is no file {path}")
            try:
                for mode in modes:
                    read[section](path, compat=mode)
            except ChakraError as error:
                raise UsageError(f"{section}: {error}") from None


def _loads(name: str, load: Callable[[Source], object], given: Source) -> None:
    """Refuse a value that no network or system takes."""
    try:
        load(given)
    except ConfigError as error:
        raise UsageError(f"{name}: {error}") from None


def _prices(study: Study) -> None:
    """Prices by machine name machines, and every machine of the study has one."""
    if not isinstance(study.price, Mapping):
        return
    names = platform_names()
    given = [str(words) for words in values_of(study, "platform")]
    known = {"files", *names, *map(same_words, given)}
    for name in study.price:
        if same_words(name) in known:
            continue
        if " " in name.strip():
            raise UsageError(
                f"cost-per-npu-hour: no platform of the study is {name!r}; they are: {', '.join(given)}"
            )
        raise UsageError(f"cost-per-npu-hour: no machine preset {name!r}{nearest(name, names)}")
    for words in given:
        price_of({"price": study.price, "platform": words}, cluster(words, sized=False))


def _constraints(study: Study) -> None:
    """Constraints name values of the study, given or varied, and metrics: one that names another would never be asked."""
    known = {*study.names({parameter.name: None for parameter in study.parameters}), *METRICS}
    for text in study.constraints:
        for name in sorted(expression(text, f"{study.source}: constraints").names - known):
            hint = nearest(name, sorted(known))
            raise UsageError(
                f"constraints: {text!r}: the study gives no value named {name!r}"
                f"{hint or ', and it is no metric'}; a text stands in quotes"
            )


def _workload(study: Study) -> None:
    """Kinds, names of parameters and presets; what only some kinds have is left to the points of the others."""
    if "files" in keys_of(study, "workload"):
        return
    kinds = []
    for kind in values_of(study, "workload.kind") or ["transformer"]:
        if not isinstance(kind, str) or kind not in REQUESTS:
            hint = nearest(str(kind), list(REQUESTS)) or f"; there are: {', '.join(REQUESTS)}"
            raise UsageError(f"workload.kind: no workload {describe(kind)}{hint}")
        kinds.append(REQUESTS[kind])
    for key in keys_of(study, "workload"):
        if key == "kind":
            continue
        for value in values_of(study, f"workload.{key}") or values_of(study, f"workload.{plain(key)}"):
            _accepted(kinds, key, value)


def _accepted(kinds: list[type[Request]], key: str, value: object) -> None:
    """Refuse a value that no kind of workload takes, with the first kind's reason."""
    reasons = []
    for kind in kinds:
        try:
            request = kind.from_mapping({key: value})
            if key == "model" and value and isinstance(request, TransformerRequest | DlrmRequest):
                request.config()
            return
        except ChakraError as error:
            reasons.append(error)
    raise UsageError(f"workload: {reasons[0]}")


def _options(study: Study) -> None:
    """Names of the network's dimensions and of the replay's options."""
    for name in keys_of(study, "network"):
        dim, _, key = name.partition(".")
        if not (dim.startswith("dim") and is_whole(dim[3:], 9) and key in DIM_KEYS) and name != "file":
            hint = nearest(key, list(DIM_KEYS)) if key else ""
            raise UsageError(
                f"network.{name}: must be dim<k>.<{'|'.join(DIM_KEYS)}>, such as dim1.bandwidth{hint}"
            )
        for value in values_of(study, f"network.{name}") if name != "file" else ():
            _loads(f"network.{name}", load_network, {**ONE_DIMENSION, DIM_KEYS[key]: [value]})
    for name in keys_of(study, "system"):
        for value in values_of(study, f"system.{name}") if name != "file" else ():
            _loads(f"system.{name}", load_system, {plain(name): value})
    for name in keys_of(study, "replay"):
        option = name.replace("-", "_")
        if option not in REPLAY_OPTIONS:
            known = [plain(known) for known in sorted(REPLAY_OPTIONS)]
            hint = nearest(plain(name), known) or f"; there are: {', '.join(known)}"
            raise UsageError(f"replay: unknown option {name!r}{hint}")
        words = {"backend": BACKENDS, "compat": COMPAT_MODES}.get(option)
        for value in values_of(study, f"replay.{name}"):
            if words and value not in words:
                hint = nearest(str(value), [word for word in words if word])
                raise UsageError(
                    f"replay.{name}: {describe(value)} is not one of {', '.join(w for w in words if w)}{hint}"
                )
