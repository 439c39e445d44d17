"""A fit says when its rate of ports, or the fit itself, is not to be believed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from chakra.calibrate.doubts import error_doubt, rate_doubt
from chakra.cli.commands.calibrate import command
from chakra.platforms.collectives import collective_parameters
from chakra.replay.collectives.library import Communicator, library_time
from chakra.replay.collectives.measured.nccl_log import Measurement
from chakra.replay.config.model import CollectiveKind as Kind

MACHINE = collective_parameters("hgx-h100")


def measured(kind: Kind, ranks: int, gbps: float, nics: int, largest: int = 34) -> list[Measurement]:
    """Rows as the model has them on ports of a rate."""
    nodes = Communicator(ranks, 8, gbps, nics)
    return [
        Measurement(
            kind, ranks, 1 << power, library_time(kind, 1 << power, nodes, MACHINE).time_ns / 1e3, "made"
        )
        for power in range(10, largest)
    ]


@pytest.mark.parametrize("kind", [Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER])
@pytest.mark.parametrize("ranks", [16, 64, 256])
@pytest.mark.parametrize(("gbps", "nics"), [(50.0, 8), (25.0, 8), (12.5, 4), (100.0, 8)])
def test_bits_for_bytes_are_told_and_right_rates_are_not(
    kind: Kind, ranks: int, gbps: float, nics: int
) -> None:
    rows = measured(kind, ranks, gbps, nics)
    assert rate_doubt(rows, Communicator(16, 8, gbps, nics)) is None
    told = rate_doubt(rows, Communicator(16, 8, 8 * gbps, nics))
    assert told is not None
    assert f"--nic-gbps {8 * gbps:g} is contradicted" in told
    assert "a port of 400 Gb/s has 50" in told
    assert rate_doubt(rows, Communicator(16, 8, gbps / 8, nics)) is not None


def test_small_sizes_and_one_node_prove_nothing() -> None:
    rows = measured(Kind.ALL_REDUCE, 16, 50.0, 8, largest=20)
    assert rate_doubt(rows, Communicator(16, 8, 400.0)) is None
    one = [Measurement(Kind.ALL_REDUCE, 8, 1 << 30, 1e4, "made")]
    assert rate_doubt(one, Communicator(16, 8, 400.0)) is None
    assert rate_doubt(one, None) is None


def test_a_fit_that_does_not_describe_its_rows_is_told() -> None:
    assert error_doubt(0.14) is None
    assert error_doubt(float("nan")) is None
    told = error_doubt(0.36)
    assert told is not None
    assert "36 % off" in told


def test_the_command_warns(tmp_path: Path) -> None:
    """A log of 16 ranks at 50 GB/s a port, fitted as if the ports had 400; and one whose times follow no size."""
    log = tmp_path / "run.log"

    def write(rows: list[Measurement]) -> None:
        lines = [
            f"{m.size_bytes} {m.size_bytes // 4} float sum -1 {m.time_us:.2f} {m.size_bytes / m.time_us / 1e3:.4f} "
            f"{m.size_bytes / m.time_us / 1e3 * 2 * (m.ranks - 1) / m.ranks:.4f} 0"
            for m in rows
        ]
        ranks = [f"# Rank {rank} Group 0 Pid 1 on n device {rank} [0] H100" for rank in range(rows[0].ranks)]
        log.write_text("\n".join(["# Collective test starting: all_reduce_perf", *ranks, *lines]) + "\n")

    def warnings(*options: str) -> list[str]:
        done = CliRunner().invoke(command, [str(log), "--format", "json", *options])
        assert done.exit_code == 0, done.output
        found: list[str] = json.loads(done.stdout)["warnings"]
        assert [f"chakra: warning: {text}" for text in found] == [
            line for line in done.stderr.splitlines() if "warning" in line
        ]
        return found

    write(measured(Kind.ALL_REDUCE, 16, 50.0, 8))
    library = ("--library", "hgx-h100", "--nic-gbps")
    assert any("contradicted" in text for text in warnings(*library, "400"))
    assert not any("contradicted" in text for text in warnings(*library, "50"))
    write([
        Measurement(Kind.ALL_REDUCE, 8, 1 << power, 30.0 * (1 + 9 * (power % 2)), "made") for power in range(10, 30)
    ])  # fmt: skip
    assert any("off the measurements" in text for text in warnings())
