"""What docs/limits.md says is refused is refused, in a line that names it; what it says warns, warns."""

from pathlib import Path
from typing import Any

import click
import pytest

from chakra.builder import TraceBuilder
from chakra.cli.main import cli
from chakra.errors import ConfigError
from chakra.replay import simulate

PAGE = " ".join(
    (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text(encoding="utf-8").split()
)
NETWORK = {"topology": ["Ring", "Ring"], "npus_count": [2, 2], "bandwidth": [50, 50], "latency": [1, 1]}
SYSTEM = {"preferred-dataset-splits": 4, "all-reduce-implementation": ["ring", "ring"]}
LATER = ["bruck", "bruck"]


def replay(system: dict[str, Any], **options: Any) -> list[str]:
    """Warnings of an all-reduce on four NPUs."""
    builder = TraceBuilder()
    builder.collective("all_reduce", size_bytes=1 << 20, priority=1)
    builder.collective("all_reduce", size_bytes=1 << 20, priority=2)
    result = simulate([builder.build()] * 4, SYSTEM | system, NETWORK, **options)
    return list(result.warnings)


@pytest.mark.parametrize(
    "options", [{"backend": "aware"}, {"slow_links": {"0-1": 0.5}}], ids=["aware", "links"]
)
def test_the_older_model_where_there_are_links(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"'astra-sim-1\.0' is a model of delays without links"):
        replay({}, compat="astra-sim-1.0", **options)
    assert replay({}, compat="astra-sim-1.0") == replay({}, compat="astra-sim-1.0", engine="messages")


def test_later_algorithms() -> None:
    with pytest.raises(ConfigError, match="'bruck' is not modelled together with the shared memory bus"):
        replay({"all-reduce-implementation": LATER, "model-shared-bus": 1})
    with pytest.raises(ConfigError, match="bruck"):
        replay({"all-reduce-implementation": LATER}, compat="astra-sim")
    assert replay({"all-reduce-implementation": LATER}, backend="aware") == []


def test_the_generators_are_those_that_the_page_lists() -> None:
    context = click.Context(cli, info_name="chakra", **cli.context_settings)
    group = cli.get_command(context, "generate")
    assert isinstance(group, click.Group)
    words = {
        "collective": "",
        "dlrm": "DLRM",
        "mlp": "multi-layer perceptrons",
        "moe": "mixtures of experts",
        "resnet": "ResNet-50",
        "transformer": "transformers (decoders",
    }
    assert set(group.list_commands(context)) == set(words)
    assert [word for word in words.values() if word not in PAGE] == []
