"""Which families of kernels the merged operators of a result's nodes are, and for which share of their time."""

from collections.abc import Iterable

from chakra.errors import ConfigError
from chakra.et.families import FAMILIES
from chakra.replay.compute.in_effect import measured_products, operator_model
from chakra.replay.compute.shares import family_shares, is_mixed
from chakra.replay.engines.scenario import Scenario
from chakra.replay.workload.compile import framework_of


def shares_entry(texts: Iterable[str], scenario: Scenario) -> dict[str, list[dict[str, float] | None]]:
    """The key ``operator_shares`` of a result: per text the share of each family, None for texts of a single one.

    Nothing where no text is of several families, or no operator model tells their shares.
    """
    every = list(texts)
    mixed = [text for text in every if is_mixed(text)]
    if not mixed:
        return {}
    system, options = scenario.system, scenario.options
    model = operator_model(system, options, framework_of(scenario.workload.traces))
    if model is None:
        return {}
    try:
        shares = family_shares(mixed, model, measured_products(system, options, model))
    except ConfigError:
        # durations that the traces give are of a machine with an element type that this one does not have
        return {}
    told = {
        text: {family: share for family, share in zip(FAMILIES, row, strict=True) if share > 0}
        for text, row in zip(mixed, shares.tolist(), strict=True)
    }
    return {"operator_shares": [told.get(text) or None for text in every]}
