"""What communication shows, counted from the nodes of a replay without the code that accounts for it."""

from typing import Any

from chakra.replay import ReplayResult

#: rows of the account that are communication
EXPOSED = ("transfer_ns", "waiting_ns")


def instants(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Union of intervals, as disjoint ones."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(span for span in spans if span[1] > span[0]):
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out


def length(spans: list[tuple[int, int]]) -> int:
    return sum(last - first for first, last in spans)


def without(spans: list[tuple[int, int]], others: list[tuple[int, int]]) -> int:
    """Length of what lies in the first and not in the second."""
    return length(instants([*spans, *others])) - length(instants(others))


def communication(result: ReplayResult, npu: int) -> int:
    """Time in which an NPU communicates, ns."""
    document: dict[str, Any] = result._node_document(npu)
    rows = zip(document["engines"], document["issue_ns"], document["finish_ns"], strict=True)
    return length(instants([(a, b) for engine, a, b in rows if engine == "COMM"]))


def check(result: ReplayResult, npu: int) -> None:
    """All laws of one NPU."""
    document: dict[str, Any] = result._node_document(npu)
    rows = list(zip(document["engines"], document["issue_ns"], document["finish_ns"], strict=True))
    spans = {
        name: [(a, b) for engine, a, b in rows if str(engine).upper() == name]
        for name in ("COMM", "GPU", "CPU")
    }
    whole = communication(result, npu)
    # where the accelerator has no work, the host is what computes
    hides = spans["GPU"] if any(str(engine).upper() == "GPU" for engine, _, _ in rows) else spans["CPU"]
    exposed = without(spans["COMM"], hides)
    assert exposed <= whole <= result.finish_ns[npu]
    parts = {name: int(values[npu]) for name, values in result.account.items()}
    assert sum(parts.values()) == result.finish_ns[npu]
    assert min(parts.values()) >= 0
    assert sum(parts[name] for name in EXPOSED) == result.exposed_comm_ns[npu] == exposed
