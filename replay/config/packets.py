"""The key `packets` of a network file: reading it, and what its keys say together."""

from collections.abc import Mapping

from chakra.io.yaml import Entry
from chakra.io.yaml_text import entry_text
from chakra.replay.config.model import Packets
from chakra.replay.config.packet_keys import (
    BUFFER,
    DCTCP_THRESHOLD,
    ECN_THRESHOLD,
    INITIAL_WINDOW,
    MTU,
    OF_WINDOWS,
    PACKET_KEYS,
    PACKETS,
    QUEUE,
    WINDOW,
)
from chakra.replay.config.section import Section


def packet_section(section: Section) -> Section:
    """The entries of `packets`, whose errors name the file and the line of that key."""
    value = section.read(PACKETS)
    entry = section.entries.get(PACKETS.name)
    line = f":{entry.line}" if entry is not None and entry.line else ""
    given = value if isinstance(value, Mapping) else {}
    entries = {key: Entry(item) for key, item in given.items()}
    return Section(f"{section.source}{line}: packets", entries, None)


def read_packets(section: Section) -> Packets:
    """How packets go on the network of a file.

    Raises
    ------
    ConfigError
        Naming file, line and key: for a wrong value, or one that another makes meaningless.
    """
    part = packet_section(section)
    part.refuse_unknown(PACKET_KEYS)
    packets = Packets(**part.fields(PACKET_KEYS))
    if packets.transport == "lossless":
        for of_windows in OF_WINDOWS:
            if part.given(of_windows):
                raise part.error(
                    of_windows.name, "has no meaning with transport lossless: nothing is dropped"
                )
    if packets.transport == "dctcp" and packets.queue == "droptail":
        raise part.error(QUEUE.name, "must be red with transport dctcp, which lives on marks")
    if packets.transport == "dctcp" and packets.ecn_threshold == 0:
        raise part.error(ECN_THRESHOLD.name, "must be above 0 with transport dctcp, which lives on marks")
    if threshold_of(packets) and queue_of(packets) != "red":
        raise part.error(
            ECN_THRESHOLD.name, f"needs '{QUEUE.name}: red': a queue that drops at its end marks nothing"
        )
    if threshold_of(packets) > packets.buffer:
        raise part.error(
            ECN_THRESHOLD.name if part.given(ECN_THRESHOLD) else BUFFER.name,
            f"marks from {threshold_of(packets)} bytes on, but the buffer has {packets.buffer}",
        )
    if packets.buffer < 2 * packets.mtu:
        raise part.error(BUFFER.name, f"must hold two packets at least, {2 * packets.mtu} bytes")
    if packets.largest_window < packets.mtu:
        raise part.error(WINDOW.name, f"must be a packet at least, {packets.mtu} bytes ({MTU.name})")
    if (packets.initial_window or 0) > packets.largest_window:
        raise part.error(
            INITIAL_WINDOW.name, f"must not exceed {WINDOW.name}, which is {packets.largest_window}"
        )
    return packets


def queue_of(packets: Packets) -> str:
    """Queue in effect."""
    return packets.queue or ("red" if packets.transport == "dctcp" else "droptail")


def threshold_of(packets: Packets) -> int:
    """Bytes from which packets are marked; 0: none is."""
    if packets.ecn_threshold is not None:
        return packets.ecn_threshold
    return DCTCP_THRESHOLD if packets.transport == "dctcp" else 0


def dump_packets(packets: Packets) -> str:
    """Lines of a network file, empty where all are defaults."""
    if packets == Packets():
        return ""
    given = {key.name: key.of(packets) for key in PACKET_KEYS}
    defaults = {key.name: key.of(Packets()) for key in PACKET_KEYS}
    changed = {name: value for name, value in given.items() if value != defaults[name]}
    return entry_text(PACKETS.name, changed) + "\n"
