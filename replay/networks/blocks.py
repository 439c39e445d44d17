"""Building blocks link by link, and networks with failed or slow links."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.digits import decimal_number
from chakra.io.limits import MAX_LINKED_NPUS, MAX_LINKS
from chakra.io.readable import counted
from chakra.replay.config.links import check_reach, with_dims
from chakra.replay.config.model import Faults, Link, Links, Network, Topology

#: links of a vertex that a message lists
_MOST_SHOWN = 8


def block_links(network: Network) -> Links:
    """The links of a network's building blocks, with routes in the order of dimensions.

    The switch of row r of dimension k is the vertex ``sw<k>.<r>``; rows count the NPUs at coordinate 0 of the dimension.
    """
    links: dict[tuple[int, int], Link] = {}
    names: list[str] = []
    stride = 1
    n = network.npus
    for k, dim in enumerate(network.dims):
        first = n + len(names)
        for npu in range(n):
            at = npu // stride % dim.npus
            base = npu - at * stride
            row = npu // (stride * dim.npus) * stride + npu % stride
            if dim.topology is Topology.RING:
                ends = [(npu, base + (at + way) % dim.npus * stride) for way in (1, -1)]
            elif dim.topology is Topology.FULLY_CONNECTED:
                ends = [(npu, base + other * stride) for other in range(dim.npus) if other != at]
            else:
                ends = [(npu, first + row), (first + row, npu)]
            for end in ends:
                links[end] = Link(*end, dim.bandwidth_gibps, dim.latency_ns)
        if dim.topology is Topology.SWITCH:
            names += [f"sw{k}.{row}" for row in range(n // dim.npus)]
        stride *= dim.npus
    return Links(tuple(links.values()), tuple(names), dimension_ordered=True)


@checked
def with_faults(
    network: Network, fail: Iterable[str] = (), slow: Mapping[str, float] | None = None
) -> Network:
    """The network with some links gone or slower, both directions of each.

    Parameters
    ----------
    network
        Of links or of building blocks; these become links (`block_links`), with the same routes where they are whole.
    fail
        Links as ``A-B``: numbers of NPUs or names of vertices.
    slow
        Factor on the bandwidth of each link ``A-B``.

    Raises
    ------
    UsageError
        When there is no such link, or a factor is not a number above 0.
    ConfigError
        When an NPU can no longer be reached.
    """
    slow = dict(slow or {})
    gone = list(fail)
    if not gone and not slow:
        return network
    if network.outside is not None:
        raise UsageError(
            f"{network.source} is simulated by another package: --fail-link and --slow-link do not reach its links"
        )
    if network.links is None:
        _check_size(network)
    links = network.links or block_links(network)
    number = {str(i): i for i in range(network.npus)}
    number |= {name: network.npus + i for i, name in enumerate(links.vertices)}
    have = {(link.src, link.dst) for link in links.links}
    failed: dict[tuple[int, int], str] = {}
    for text in gone:
        ends = _ends(text, "--fail-link", number, have, network)
        if ends in failed:
            raise UsageError(f"--fail-link {text}: this link is given twice")
        failed[ends] = text
    factor: dict[tuple[int, int], float] = {}
    for text, value in slow.items():
        if not 1e-9 <= value <= 1e9:
            raise UsageError(
                f"--slow-link {text}={value:g}: the factor must be above 0, from 1e-9 to 1e9; a failed link is "
                "--fail-link"
            )
        ends = _ends(text, "--slow-link", number, have, network)
        if ends in failed:
            raise UsageError(f"--slow-link {text}: --fail-link {failed[ends]} takes this link out")
        if ends in factor:
            raise UsageError(f"--slow-link {text}: this link is given twice")
        factor[ends] = float(value)
    left = tuple(
        replace(link, bandwidth_gibps=link.bandwidth_gibps * factor.get(_both_ways(link), 1.0))
        for link in links.links
        if _both_ways(link) not in failed
    )
    names = list(number)
    name = {ends: "-".join(names[end] for end in ends) for ends in (*failed, *factor)}
    # however and in whatever order they were asked for: equal faults are equal inputs of runs
    faults = Faults(
        tuple(name[ends] for ends in sorted(failed)),
        tuple((name[ends], factor[ends]) for ends in sorted(factor)),
        links,
    )
    out = replace(network, links=replace(links, links=left, faults=faults))
    check_reach(out, " once the failed links are gone" if failed else "")
    return out if links.dimension_ordered else with_dims(out)


def _check_size(network: Network) -> None:
    """Refuse building blocks that stand for more links than are listed one by one."""
    if network.npus > MAX_LINKED_NPUS:
        raise UsageError(
            f"{network.source}: {counted(network.npus, 'NPU')}; links fail or slow down on networks of at most "
            f"{MAX_LINKED_NPUS}"
        )
    per_npu = sum(dim.npus - 1 if dim.topology is Topology.FULLY_CONNECTED else 2 for dim in network.dims)
    if network.npus * per_npu > 2 * MAX_LINKS:
        raise UsageError(
            f"{network.source}: {counted(network.npus * per_npu, 'link')}; links fail or slow down where there are "
            "at most "
            f"{2 * MAX_LINKS}"
        )


def _both_ways(link: Link) -> tuple[int, int]:
    """The ends of a link, the same for both directions."""
    return min(link.src, link.dst), max(link.src, link.dst)


def _ends(
    text: str, option: str, number: Mapping[str, int], have: set[tuple[int, int]], network: Network
) -> tuple[int, int]:
    """Ends, ascending, of the link that a text ``A-B`` names; names may have hyphens themselves."""
    known = ""
    found: dict[tuple[int, int], str] = {}
    for at in (i for i, c in enumerate(text) if c == "-"):
        a, b = text[:at].strip(), text[at + 1 :].strip()
        if a in number and b in number:
            known = a
            first, second = sorted((number[a], number[b]))
            if {(first, second), (second, first)} & have:
                found[first, second] = f"{a!r} to {b!r}"
    if len(found) == 1:
        return next(iter(found))
    if found:
        raise UsageError(f"{option} {text}: may be the link from {' or '.join(found.values())}")
    names = list(number)
    if not known:
        src, dst = min(have)
        raise UsageError(
            f"{option} {text}: expected A-B with two NPUs or vertices of the network in {network.source}; a link is "
            f"written such as {names[src]}-{names[dst]}"
        )
    beside = sorted(
        {dst if src == number[known] else src for src, dst in have if number[known] in (src, dst)}
    )
    shown = ", ".join(f"{known}-{names[end]}" for end in beside[:_MOST_SHOWN])
    more = f" and {len(beside) - _MOST_SHOWN} more" if len(beside) > _MOST_SHOWN else ""
    raise UsageError(
        f"{option} {text}: there is no such link in {network.source}; links of {known}: {shown}{more}"
    )


def parse_slow(texts: Iterable[str]) -> dict[str, float]:
    """Links and factors of texts ``A-B=FACTOR``.

    Raises
    ------
    UsageError
        For any other text.
    """
    out: dict[str, float] = {}
    for text in texts:
        name, sign, value = text.rpartition("=")
        try:
            factor = decimal_number(value)
        except ValueError:
            sign = ""
            factor = 0.0
        if not sign or not name:
            raise UsageError(
                f"--slow-link {text}: expected A-B=FACTOR, such as 0-1=0.5 for half the bandwidth"
            )
        if name in out:
            raise UsageError(f"--slow-link {text}: this link is given twice")
        out[name] = factor
    return out
