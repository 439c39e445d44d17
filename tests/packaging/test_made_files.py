"""Files that tools make are what the tools would make now (docs/architecture.md lists them)."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "tool",
    [
        "benchmark_tables.py",  # tables that repeat figures of docs/benchmarks.md
        "collective_formulas.py",  # formulas of the guide on collectives
        "config_reference.py",  # docs/reference/configuration.md
        "framework_table.py",  # docs/reference/frameworks.md
        "generate_schema.py",  # schemas/et_def_pb2.py
        "library_pictures.py",  # pictures of the guide on collective libraries
        "network_pictures.py",  # pictures of the guide on networks
        "pictures.py",  # pictures of the guide on collectives
    ],
)
def test_made_files_are_in_step(tool: str) -> None:
    if tool == "generate_schema.py":
        pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    done = subprocess.run(
        [sys.executable, f"tools/{tool}", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
