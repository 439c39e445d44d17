# ruff: noqa: E501
"""A result document made by hand, as `chakra replay --format json --nodes` writes it."""

from typing import Any


def sample(npus: int = 4, slow: int = 3) -> dict[str, Any]:
    """Two collectives and three compute nodes on each of ``npus`` NPUs; NPU ``slow`` computes longer."""
    finish, exposed = 900_000, 400_000
    account: dict[str, list[int]] = {
        key: [] for key in ("compute_ns", "cpu_ns", "transfer_ns", "waiting_ns", "memory_ns", "idle_ns")
    }
    nodes = []
    for npu in range(npus):
        first = 300_000 if npu == slow else 200_000
        starts = [0, first, 500_000, 600_000, 850_000]
        ends = [first, 500_000, 600_000, 850_000, 900_000]
        account["compute_ns"].append(first + 150_000)
        account["cpu_ns"].append(0)
        account["transfer_ns"].append(450_000)
        account["waiting_ns"].append(300_000 - first)
        account["memory_ns"].append(0)
        account["idle_ns"].append(0)
        nodes.append(
            {
                "npu": npu,
                "ids": [0, 1, 2, 3, 4],
                "names": ["forward", "grad all-reduce", "backward <b>&", "all-gather", "optimizer"],
                "kinds": ["COMP", "COMM_COLL", "COMP", "COMM_COLL", "COMP"],
                "engines": ["GPU", "COMM", "GPU", "COMM", "GPU"],
                "issue_ns": starts,
                "finish_ns": ends,
            }
        )
    return {
        "schema": "chakra.replay.result/1",
        "version": "0.1.0",
        "backend": "unaware",
        "compat": None,
        "npus": npus,
        "partial": False,
        "finish_ns": [finish] * npus,
        "exposed_comm_ns": [exposed] * npus,
        "corrections": {"C3 all-to-all hops": 2},
        "warnings": ["comm_size of node 7 looks like bits"],
        "inputs": {
            "workload": "traces/mlp",
            "system": {"scheduling_policy": "LIFO", "active_chunks": 1},
            "network": {"dims": [{"topology": "Ring", "npus": npus, "bandwidth_gibps": 50.0, "latency_ns": 500.0}]},
        },
        "account": account,
        "collectives": [
            {
                "kind": "ALL_REDUCE", "algorithm": "ring", "group": None, "members": npus, "bytes": 1048576,
                "start_ns": 200_000, "ready_ns": 300_000, "end_ns": 500_000, "algbw_gbps": 5.24, "busbw_gbps": 7.86,
                "bound_ns": 60_000, "count": 1,
            },
            {
                "kind": "ALL_GATHER", "algorithm": "ring", "group": "tp <0>", "members": npus, "bytes": 4194304,
                "start_ns": 600_000, "ready_ns": 600_000, "end_ns": 850_000, "algbw_gbps": 16.8, "busbw_gbps": 12.6,
                "bound_ns": 240_000, "count": 2,
            },
        ],
        "dimensions": [
            {
                "dim": 0, "topology": "Ring", "npus": npus, "bandwidth_gibps": 50.0, "latency_ns": 500.0,
                "bytes_per_npu": 3_000_000, "utilisation": 0.31,
            }
        ],
        "links": [{"dim": 0, "from": 0, "to": 1, "bytes": 3_000_000, "busy_ns": 290_000, "queued_ns": 1000}],
        "critical_path": [
            {"npu": slow, "node": 0, "name": "forward", "kind": "COMP", "issue_ns": 0, "finish_ns": 300_000},
            {"npu": slow, "node": 1, "name": "grad all-reduce", "kind": "COMM_COLL", "issue_ns": 300_000, "finish_ns": 500_000},
        ],
        "memory": {
            "peak_bytes": [3_000_000] * npus, "npu": 0,
            "time_ns": [0, 200_000, 600_000, 900_000], "bytes": [1_000_000, 3_000_000, 2_000_000, 0],
        },
        "nodes": nodes,
    }  # fmt: skip
