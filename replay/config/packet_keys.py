"""Keys of `packets` in a network file: how packets go, where they are simulated; for both kinds of network files."""

from collections.abc import Mapping

from chakra.replay.config.key import IGNORED, Key
from chakra.replay.config.model import Packets
from chakra.replay.config.readers import MAX_INT, Count, MapOf, words

_PACKETS = Packets()
#: bytes from which DCTCP marks: 65 packets of 1,500 bytes at 10 Gb/s (Alizadeh et al., SIGCOMM 2010, section 4)
DCTCP_THRESHOLD = 97_500
#: segments of TCP's first window (RFC 6928)
FIRST_SEGMENTS = 10
LEAST_MTU, LARGEST_MTU = 256, 65_535
#: what TCP's window field can say when it is scaled as far as it goes (RFC 7323)
LARGEST_WINDOW = 1 << 30


def _bytes(least: int, most: int) -> Count:
    return Count(f"must be a whole number of bytes from {least} to {most}", least, most)


PACKET_KEYS = (
    TRANSPORT := Key(
        "transport",
        words("tcp", "dctcp", "lossless"),
        _PACKETS.transport,
        "",
        "transport",
        "tcp: as Linux has it, CUBIC; dctcp; lossless: back pressure in place of loss, no windows (RoCE's kind)",
    ),
    MTU := Key(
        "mtu",
        _bytes(LEAST_MTU, LARGEST_MTU),
        _PACKETS.mtu,
        "bytes",
        "mtu",
        "of the largest packet, headers from IP on included",
    ),
    BUFFER := Key(
        "buffer",
        _bytes(LEAST_MTU, MAX_INT),
        _PACKETS.buffer,
        "bytes",
        "buffer",
        "that wait for a link at most, per direction; lossless: of a link, at its receiving end",
    ),
    QUEUE := Key(
        "queue",
        words("droptail", "red"),
        None,
        "",
        "queue",
        "droptail: drops what finds the buffer full; red: marks from ecn_threshold on, or drops early without one",
        "red with dctcp, else droptail",
    ),
    ECN_THRESHOLD := Key(
        "ecn_threshold",
        _bytes(0, MAX_INT),
        None,
        "bytes",
        "ecn_threshold",
        "of a queue from which packets are marked instead of dropped; 0: none is marked",
        f"{DCTCP_THRESHOLD} with dctcp, else 0",
    ),
    INITIAL_WINDOW := Key(
        "initial_window",
        _bytes(1, LARGEST_WINDOW),
        None,
        "bytes",
        "initial_window",
        "of a connection, under way before anything is acknowledged; rounded up to whole packets",
        f"{FIRST_SEGMENTS} packets",
    ),
    WINDOW := Key(
        "largest_window",
        _bytes(LEAST_MTU, LARGEST_WINDOW),
        _PACKETS.largest_window,
        "bytes",
        "largest_window",
        "of a connection, under way at most",
    ),
    TIMEOUT := Key(
        "least_timeout",
        Count("must be a whole number of ns, at least 1", 1, MAX_INT),
        _PACKETS.least_timeout_ns,
        "ns",
        "least_timeout_ns",
        "before what was lost is sent again without being asked for",
    ),
    SEED := Key(
        "seed",
        Count("must be a whole number from 1 to 2147483647", 1),
        _PACKETS.seed,
        "",
        "seed",
        "of random early drops",
    ),
)

PACKETS: Key[Mapping[object, object] | None] = Key(
    "packets",
    MapOf(
        PACKET_KEYS,
        f"map of {', '.join(key.name for key in PACKET_KEYS)}",
        "must be a map, such as {transport: dctcp, mtu: 4096}",
    ),
    None,
    "",
    "packets",
    "how packets go, with `--backend ns3`",
    "every key at its default",
    IGNORED,
)
#: what the lossless transport knows nothing of
OF_WINDOWS = (QUEUE, ECN_THRESHOLD, INITIAL_WINDOW, WINDOW, TIMEOUT, SEED)
