"""The comparison with SimGrid: what it does where that is not installed, and what it takes away."""

import importlib.util
import sys
from typing import Any

import bench_simgrid
import pytest
from bench_packets import cases


def test_without_simgrid_it_says_so_and_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name == "simgrid" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    monkeypatch.setattr(sys, "argv", ["bench_simgrid.py"])
    bench_simgrid.main()
    assert capsys.readouterr().out == "SimGrid is not installed (import simgrid): nothing is compared\n"


def test_every_case_is_there_without_latencies() -> None:
    made = list(cases())
    assert len({(case.family, case.name) for case in made}) == len(made) == 52
    for case in made:
        network, plain = case.network(1.0), bench_simgrid.without_latency(case.network(1.0))
        assert {dim.latency_ns for dim in plain.dims} == {0.0}
        assert [dim.bandwidth_gibps for dim in plain.dims] == [dim.bandwidth_gibps for dim in network.dims]
        if network.links is not None and plain.links is not None:
            assert {link.latency_ns for link in plain.links.links} == {0.0}
            assert len(plain.links.links) == len(network.links.links)
