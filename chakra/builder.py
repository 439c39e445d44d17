"""Writing workloads in Python: one typed call a node, dependencies by handle, ids by themselves.

One rank:

>>> from chakra.builder import TraceBuilder, Workload
>>> b = TraceBuilder()
>>> forward = b.compute("forward", duration_micros=120)
>>> reduced = b.collective("all_reduce", size_bytes=1 << 20, after=forward)
>>> update = b.compute("update", duration_ns=800, after=[forward, reduced])
>>> trace = b.build()
>>> [str(node.name) for node in trace.nodes()], trace.durations_ns().tolist()
(['forward', 'all_reduce', 'update'], [120000, 0, 800])

Many ranks, written once; ``b.rank`` says whose turn it is:

>>> w = Workload(4)
>>> pairs = [w.add_group([0, 1]), w.add_group([2, 3])]
>>> def step(b: TraceBuilder) -> None:
...     work = b.compute("work", duration_micros=10)
...     b.collective("all_gather", size_bytes=4096, group=pairs[b.rank // 2], after=work)
...     if b.rank == 0:
...         b.send(3, size_bytes=64, after=work)
...     if b.rank == 3:
...         b.recv(0, size_bytes=64)
>>> w.run(step)
>>> [w.trace_of(rank).n_nodes for rank in range(4)]
[3, 2, 2, 3]
"""

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np

from chakra.arguments import checked, shown
from chakra.arrays import bounds
from chakra.errors import TraceError, WorkloadError
from chakra.et import CommType, NodeType, Trace, TraceColumns
from chakra.et.attributes import Value, attribute, comm_type
from chakra.et.same_collective import IN_KINDS, OUT_KINDS
from chakra.et.schema import IN_SPLIT, OUT_SPLIT
from chakra.io import files
from chakra.io.digits import whole_number
from chakra.io.documents import lined_text
from chakra.io.readable import counted, verb
from chakra.schemas.et_def_pb2 import AttributeProto, IOInfo

__all__ = ["Handle", "TraceBuilder", "Workload"]


@dataclass(frozen=True, slots=True)
class Handle:
    """A node of a builder, to be named in ``after`` and ``ctrl`` of later calls.

    Attributes
    ----------
    builder
        The builder that made the node.
    id
        Id of the node in the trace.
    name
        Name of the node.
    """

    builder: "TraceBuilder" = field(repr=False, compare=False)
    id: int
    name: str


Dependencies: TypeAlias = Handle | Iterable[Handle]


@dataclass(frozen=True, slots=True)
class _Draft:
    """One node as the calls collected it."""

    name: str
    type: NodeType
    duration_ns: int
    data: tuple[int, ...]
    ctrl: tuple[int, ...]
    attrs: tuple[AttributeProto, ...]
    inputs: str


class TraceBuilder:
    """Builds the trace of one rank, node by node.

    All calls return a handle. Durations are given as ``duration_micros`` or ``duration_ns`` (not both), sizes
    in bytes. ``after`` takes the handles of data dependencies, ``ctrl`` those of control dependencies; both
    must have finished before the node starts. ``attrs`` adds any other attributes.

    Parameters
    ----------
    rank
        Whose trace this is; messages to itself are refused.
    npus
        Number of ranks, if known; peers outside are refused.
    groups
        Process groups (name -> ranks), if known; collectives of others are refused.
    """

    @checked
    def __init__(
        self, rank: int = 0, npus: int | None = None, groups: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        if rank < 0 or (npus is not None and rank >= npus):
            raise WorkloadError(
                f"rank {rank} does not exist" + ("" if npus is None else f" among {counted(npus, 'NPU')}")
            )
        self.rank = rank
        self.npus = npus
        self._members: Mapping[str, Container[int]] | None = groups
        self._drafts: list[_Draft] = []

    def __repr__(self) -> str:
        return f"<TraceBuilder of rank {self.rank}: {counted(len(self), 'node')}>"

    def __len__(self) -> int:
        return len(self._drafts)

    # ----------------------------------------------------------------------------------------------- nodes

    def compute(
        self,
        name: str = "compute",
        *,
        duration_micros: float | None = None,
        duration_ns: int | None = None,
        num_ops: int | None = None,
        tensor_bytes: int | None = None,
        cpu: bool = False,
        after: Dependencies = (),
        ctrl: Dependencies = (),
        attrs: Mapping[str, Value | AttributeProto] | None = None,
    ) -> Handle:
        """Add work of the accelerator, or with ``cpu`` of the host.

        ``num_ops`` (operations) and ``tensor_bytes`` (bytes touched) give the node its time under the roofline model
        instead of the duration. At least one of duration and ``num_ops`` is needed.

        Raises
        ------
        TraceError
            If neither is given, a number is negative, or a dependency is not a handle of this builder.
        """
        if duration_micros is None and duration_ns is None and num_ops is None:
            raise TraceError(f"compute {name!r}: give duration_micros, duration_ns or num_ops")
        known = {"num_ops": num_ops, "tensor_size": tensor_bytes}
        duration = _duration(name, duration_micros, duration_ns)
        return self._add(NodeType.COMP, name, duration, known, after, ctrl, attrs, cpu=cpu)

    def collective(
        self,
        kind: CommType | str,
        *,
        size_bytes: int,
        name: str | None = None,
        group: str | None = None,
        involved_dim: Sequence[bool] | None = None,
        in_split_bytes: Sequence[int] | None = None,
        out_split_bytes: Sequence[int] | None = None,
        priority: int | None = None,
        duration_micros: float | None = None,
        duration_ns: int | None = None,
        after: Dependencies = (),
        ctrl: Dependencies = (),
        attrs: Mapping[str, Value | AttributeProto] | None = None,
    ) -> Handle:
        """Add a collective.

        Parameters
        ----------
        kind
            A `CommType` or its name in any usual spelling ("all_reduce", "AllReduce", "all-reduce").
        size_bytes
            Bytes that this rank brings in (an all-gather ends with group size x as much, a reduce-scatter
            with the share of one rank).
        group
            Process group; all ranks by default.
        involved_dim
            Which network dimensions take part, dimension 0 first; all by default.
        in_split_bytes, out_split_bytes
            Unequal shares, bytes per member in the group's order. All-to-all: what this rank sends to each (their sum is
            `size_bytes`), and what it receives from each. All-gather and gather: what each brings in
            (`out_split_bytes`). Reduce-scatter and scatter: what each gets (`in_split_bytes`).
        duration_micros, duration_ns
            A measured duration, for replays that do not simulate the network.
        name
            Name of the node; by default the kind's.
        priority
            ``comm_priority``; greater goes first where several are in flight.
        after
            Nodes it waits for by data.
        ctrl
            Nodes it waits for by control.
        attrs
            Further attributes by name.

        Raises
        ------
        TraceError
            If the kind is unknown, a number is negative, or a dependency is not a handle of this builder.
        WorkloadError
            If the group is unknown or does not hold this rank.
        """
        comm = comm_type(kind)
        _text("", "name", name)
        title = comm.name.lower() if name is None or name == "" else name
        _text(title, "group", group)
        dims = [] if involved_dim is None else _truths(title, "involved_dim", involved_dim)
        if group is not None and self._members is not None and group not in ("", "0"):
            if group not in self._members:
                raise WorkloadError(f"collective {title!r}: there is no group {group!r}; add_group makes one")
            if self.rank not in self._members[group]:
                raise WorkloadError(
                    f"collective {title!r}: rank {self.rank} is not a member of group {group!r}"
                )
        if involved_dim is not None and not any(dims):
            raise TraceError(f"collective {title!r}: involved_dim names no dimension")
        known: dict[str, Value | None] = {
            "comm_type": int(comm),
            "comm_size": _whole(title, "size_bytes", size_bytes),
            "comm_priority": priority,
            "pg_name": group,
            "involved_dim": None if involved_dim is None else dims,
            IN_SPLIT: _sizes(title, IN_SPLIT, in_split_bytes),
            OUT_SPLIT: _sizes(title, OUT_SPLIT, out_split_bytes),
        }
        self._check_splits(title, comm, size_bytes, group, known)
        duration = _duration(title, duration_micros, duration_ns)
        return self._add(NodeType.COMM_COLL, title, duration, known, after, ctrl, attrs)

    def _check_splits(
        self,
        title: str,
        kind: CommType,
        size_bytes: int,
        group: str | None,
        known: Mapping[str, Value | None],
    ) -> None:
        """Refuse split sizes that a collective of this kind and size cannot have."""
        members = self.npus
        if group not in (None, "", "0") and self._members is not None and group is not None:
            given = self._members[group]
            members = len(given) if isinstance(given, Sized) else None
        for name, kinds in ((IN_SPLIT, IN_KINDS), (OUT_SPLIT, OUT_KINDS)):
            sizes = known[name]
            if not isinstance(sizes, list):
                continue
            if kind not in kinds:
                raise TraceError(f"collective {title!r}: {name} means nothing in {kind.name}")
            if members is not None and len(sizes) != members:
                raise TraceError(
                    f"collective {title!r}: {name} has {counted(len(sizes), 'size')} for {counted(members, 'member')}"
                )
            summed = name == IN_SPLIT and kind is not CommType.SCATTER
            if summed and sum(int(size) for size in sizes) != size_bytes:
                raise TraceError(f"collective {title!r}: {name} does not add up to size_bytes {size_bytes}")

    def send(
        self,
        to: int,
        *,
        size_bytes: int,
        tag: int = 0,
        name: str = "send",
        after: Dependencies = (),
        ctrl: Dependencies = (),
        attrs: Mapping[str, Value | AttributeProto] | None = None,
    ) -> Handle:
        """Add a message to rank ``to``. It meets the receive of equal peers, tag and size.

        Raises
        ------
        WorkloadError
            If the peer is this rank or does not exist.
        TraceError
            If a number is negative, or a dependency is not a handle of this builder.
        """
        known = {"comm_size": _whole(name, "size_bytes", size_bytes), "comm_src": self.rank}
        known |= {"comm_dst": self._peer(name, to), "comm_tag": _whole(name, "tag", tag)}
        return self._add(NodeType.COMM_SEND, name, 0, known, after, ctrl, attrs)

    def recv(
        self,
        source: int,
        *,
        size_bytes: int,
        tag: int = 0,
        name: str = "recv",
        after: Dependencies = (),
        ctrl: Dependencies = (),
        attrs: Mapping[str, Value | AttributeProto] | None = None,
    ) -> Handle:
        """Add the receipt of a message from rank ``source``; see `send`."""
        known = {"comm_size": _whole(name, "size_bytes", size_bytes), "comm_src": self._peer(name, source)}
        known |= {"comm_dst": self.rank, "comm_tag": _whole(name, "tag", tag)}
        return self._add(NodeType.COMM_RECV, name, 0, known, after, ctrl, attrs)

    def load(
        self,
        size_bytes: int,
        *,
        name: str = "load",
        after: Dependencies = (),
        ctrl: Dependencies = (),
        attrs: Mapping[str, Value | AttributeProto] | None = None,
    ) -> Handle:
        """Add a read of ``size_bytes`` from remote memory."""
        known = {"tensor_size": _whole(name, "size_bytes", size_bytes)}
        return self._add(NodeType.MEM_LOAD, name, 0, known, after, ctrl, attrs)

    def store(
        self,
        size_bytes: int,
        *,
        name: str = "store",
        after: Dependencies = (),
        ctrl: Dependencies = (),
        attrs: Mapping[str, Value | AttributeProto] | None = None,
    ) -> Handle:
        """Add a write of ``size_bytes`` to remote memory."""
        known = {"tensor_size": _whole(name, "size_bytes", size_bytes)}
        return self._add(NodeType.MEM_STORE, name, 0, known, after, ctrl, attrs)

    def metadata(
        self,
        name: str = "metadata",
        *,
        groups: Mapping[str, Sequence[int]] | None = None,
        after: Dependencies = (),
        ctrl: Dependencies = (),
        attrs: Mapping[str, Value | AttributeProto] | None = None,
    ) -> Handle:
        """Add a node that takes no time: it carries attributes, or defines process groups (name -> ranks).

        A file of groups (`Workload.write`) does the same and is understood by more simulators.

        Raises
        ------
        TraceError
            If the groups are no dict, or a dependency is not a handle of this builder.
        WorkloadError
            If a group is no list of ranks.
        """
        inputs = ""
        if groups is not None:
            if not isinstance(groups, Mapping):
                raise TraceError(
                    f"node {name!r}: groups must be a dict of names to ranks, not {shown(groups)}"
                )
            items = [
                {"pg_name": str(key), "ranks": _ranks(f"group {key!r}", ranks)}
                for key, ranks in groups.items()
            ]
            inputs = f"['{json.dumps(items)}']"
        return self._add(NodeType.METADATA, name, 0, {}, after, ctrl, attrs, inputs=inputs)

    # ----------------------------------------------------------------------------------------------- result

    @checked
    def build(self, *, write_rank: bool = False) -> Trace:
        """The trace of everything added so far.

        ``write_rank`` puts the rank into the file's metadata, so that the file is refused under another
        rank's name.
        """
        columns = self._columns()
        if write_rank:
            columns.metadata.attr.add(name="rank", int64_val=self.rank)
        return columns.build()

    def _columns(self) -> TraceColumns:
        drafts = self._drafts
        columns = TraceColumns(len(drafts))
        columns.types[:] = [draft.type for draft in drafts]
        columns.set_names([draft.name for draft in drafts])
        columns.set_data_deps(*_csr([draft.data for draft in drafts]))
        columns.set_ctrl_deps(*_csr([draft.ctrl for draft in drafts]))
        # Readers that only know microseconds see at least 1 where there is any work.
        columns.duration_micros[:] = [
            max(1, (draft.duration_ns + 500) // 1000) if draft.duration_ns else 0 for draft in drafts
        ]
        texts = {text: code for code, text in enumerate(dict.fromkeys(d.inputs for d in drafts if d.inputs))}
        if texts:
            columns.set_inputs(
                [texts.get(d.inputs, -1) for d in drafts], [IOInfo(values=text) for text in texts]
            )
        codes: dict[str, np.ndarray[tuple[int], np.dtype[np.int32]]] = {}
        tables: dict[str, dict[bytes, tuple[int, AttributeProto]]] = {}
        for i, draft in enumerate(drafts):
            for attr in draft.attrs:
                table = tables.setdefault(attr.name, {})
                if attr.name not in codes:
                    codes[attr.name] = np.full(len(drafts), -1, np.int32)
                entry = table.setdefault(attr.SerializeToString(), (len(table), attr))
                codes[attr.name][i] = entry[0]
        for name, column in codes.items():
            columns.set_attribute(name, column, [attr for _, attr in tables[name].values()])
        return columns

    def _content(self, written: dict[int, bytes]) -> tuple[object, ...]:
        """Equal for builders whose traces are equal; `written` are the bytes of attributes that were seen, by `id`."""
        out: list[object] = []
        for draft in self._drafts:
            attrs = draft.attrs
            for attr in attrs:
                if id(attr) not in written:
                    written[id(attr)] = attr.SerializeToString()
            out += (
                draft.name, draft.type, draft.duration_ns, draft.data, draft.ctrl, draft.inputs,
                *[written[id(attr)] for attr in attrs],
            )  # fmt: skip
        return tuple(out)

    # ---------------------------------------------------------------------------------------------- checks

    def _add(
        self,
        kind: NodeType,
        name: str,
        duration_ns: int,
        known: Mapping[str, Value | None],
        after: Dependencies,
        ctrl: Dependencies,
        attrs: Mapping[str, Value | AttributeProto] | None,
        *,
        cpu: bool = False,
        inputs: str = "",
    ) -> Handle:
        _text(name, "name", name)
        if not isinstance(cpu, bool):
            raise TraceError(f"node {name!r}: cpu must be True or False, not {shown(cpu)}")
        if attrs is not None and not isinstance(attrs, Mapping):
            raise TraceError(f"node {name!r}: attrs must be a dict of names to values, not {shown(attrs)}")
        values: dict[str, Value | AttributeProto] = {"is_cpu_op": cpu}
        for key, given in known.items():
            if given is not None:
                values[key] = _whole(name, key, given) if isinstance(given, int) else given
        # Whole microseconds are for every reader, the rest only for those that know the attribute.
        if duration_ns % 1000:
            values["duration_ns"] = duration_ns
        for key, value in (attrs or {}).items():
            _text(name, "a name in attrs", key)
            if key in values:
                raise TraceError(f"node {name!r}: attribute {key} is set by the call itself")
            values[key] = value
        draft = _Draft(
            name=str(name),
            type=kind,
            duration_ns=duration_ns,
            data=self._dependencies(name, "after", after),
            ctrl=self._dependencies(name, "ctrl", ctrl),
            attrs=tuple(
                # most nodes of most ranks repeat a few numbers and names
                (_repeated if type(value) in (bool, int, str) else attribute)(key, value)
                for key, value in values.items()
            ),
            inputs=inputs,
        )
        self._drafts.append(draft)
        return Handle(self, len(self._drafts) - 1, draft.name)

    def _dependencies(self, name: str, option: str, given: Dependencies) -> tuple[int, ...]:
        handles: object = (given,) if isinstance(given, Handle) else given
        if not isinstance(handles, Iterable) or isinstance(handles, str | bytes):
            raise TraceError(
                f"node {name!r}: {option} takes the handles of earlier calls, not {shown(given)}"
            )
        ids: dict[int, None] = {}
        for handle in handles:
            if not isinstance(handle, Handle):
                raise TraceError(
                    f"node {name!r}: {option} takes the handles of earlier calls, not {shown(handle)}"
                )
            if handle.builder is not self:
                raise TraceError(f"node {name!r}: {option} names {handle.name!r}, a node of another builder")
            ids[handle.id] = None
        return tuple(ids)

    def _peer(self, name: str, peer: object) -> int:
        if isinstance(peer, bool) or not isinstance(peer, int | np.integer) or peer < 0:
            raise WorkloadError(f"node {name!r}: the peer must be a rank, not {shown(peer)}")
        if self.npus is not None and peer >= self.npus:
            raise WorkloadError(
                f"node {name!r}: rank {shown(peer)} does not exist among {counted(self.npus, 'NPU')}"
            )
        if peer == self.rank:
            raise WorkloadError(
                f"node {name!r}: rank {peer} cannot exchange a message with itself; "
                "TraceBuilder(rank=...) says whose trace this is"
            )
        return int(peer)


class Workload:
    """The traces of ``npus`` ranks and their process groups.

    Either one program for all ranks (`run`), or a builder for each (`builder`), or both.

    Parameters
    ----------
    npus
        Number of ranks.
    """

    @checked
    def __init__(self, npus: int) -> None:
        if npus < 1:
            raise WorkloadError(f"a workload needs at least one NPU, not {npus!r}")
        self.npus = npus
        self.groups: dict[str, tuple[int, ...]] = {}
        self._members: dict[str, frozenset[int]] = {}
        self._builders: dict[int, TraceBuilder] = {}
        self._uniform: TraceBuilder | None = None

    @checked
    def add_group(self, ranks: Iterable[int], name: str | None = None) -> str:
        """Define a process group; returns its name, by default the next free number from 1 (which ASTRA-sim
        needs).

        The order of ``ranks`` is the order of the group's logical ring.

        Raises
        ------
        WorkloadError
            If the group is empty, repeats a rank, names one that does not exist, or the name is taken.
        """
        members = tuple(_ranks("a group" if name is None else f"group {name!r}", ranks))
        if name is None:
            name = str(len(self.groups) + 1)
            while name in self.groups:
                name = str(whole_number(name) + 1)
        if name in ("", "0"):
            raise WorkloadError(f"group {name!r}: this name means all ranks")
        if name in self.groups:
            raise WorkloadError(f"group {name!r} exists already")
        wrong = [rank for rank in members if not 0 <= rank < self.npus]
        distinct = frozenset(members)
        if not members or wrong or len(distinct) < len(members):
            reason = "is empty" if not members else f"names rank {wrong[0]}" if wrong else "repeats a rank"
            raise WorkloadError(f"group {name!r} {reason}; the ranks are 0 to {self.npus - 1}")
        self.groups[name] = members
        self._members[name] = distinct
        self.__dict__.pop("_traces", None)
        return name

    @checked
    def builder(self, rank: int) -> TraceBuilder:
        """The builder of one rank.

        Raises
        ------
        WorkloadError
            The workload runs one uniform program.
        """
        if self._uniform is not None:
            raise WorkloadError("this workload runs one uniform program; it has no builder for a single rank")
        if rank not in self._builders:
            made = self._builders[rank] = TraceBuilder(rank, self.npus)
            made._members = self._members  # checked when they were added: once, not once a rank
        self.__dict__.pop("_traces", None)
        return self._builders[rank]

    @checked
    def run(self, program: Callable[[TraceBuilder], object], *, uniform: bool = False) -> None:
        """Call ``program`` once for each rank with that rank's builder.

        With ``uniform`` it is called once and all ranks share the result, which takes no time for 100,000
        NPUs; the program must then not depend on ``rank`` (messages are refused, so are groups that do not
        hold every rank).

        Raises
        ------
        WorkloadError
            A uniform program beside other content.
        """
        if uniform:
            if self._builders or self._uniform is not None:
                raise WorkloadError("a uniform program must be the only content of a workload")
            everyone = {name: ranks for name, ranks in self.groups.items() if len(ranks) == self.npus}
            self._uniform = TraceBuilder(0, 1, everyone)
            program(self._uniform)
            self.__dict__.pop("_traces", None)
            return
        for rank in range(self.npus):
            program(self.builder(rank))

    @checked
    def trace_of(self, rank: int) -> Trace:
        """The trace of one rank; ranks with equal nodes share one object.

        Raises
        ------
        WorkloadError
            If the rank does not exist or has no nodes.
        """
        if not 0 <= rank < self.npus:
            raise WorkloadError(f"rank {rank} does not exist among {counted(self.npus, 'NPU')}")
        return self._traces[rank]

    def traces(self) -> list[Trace]:
        """The traces of all ranks, as `chakra.replay.simulate` takes them."""
        return list(self._traces)

    @cached_property
    def _traces(self) -> tuple[Trace, ...]:
        if self._uniform is not None:
            return (self._uniform.build(),) * self.npus
        idle = [rank for rank in range(self.npus) if not len(self._builders.get(rank, ()))]
        if idle:
            raise WorkloadError(
                f"rank {idle[0]} has no nodes ({len(idle)} of {counted(self.npus, 'rank')} "
                f"{verb(self.npus, 'has', 'have')} none)"
            )
        contents: dict[tuple[object, ...], list[int]] = {}
        written: dict[int, bytes] = {}
        for rank in range(self.npus):
            contents.setdefault(self._builders[rank]._content(written), []).append(rank)
        traces: dict[int, Trace] = {}
        for ranks in contents.values():
            # A trace that only one rank has says so; one that many share cannot, or it would not be shared.
            trace = self._builders[ranks[0]].build(write_rank=len(ranks) == 1 and self.npus > 1)
            traces.update(dict.fromkeys(ranks, trace))
        return tuple(traces[rank] for rank in range(self.npus))

    def check_messages(self) -> None:
        """Refuse messages that never meet: every send needs a receive of equal source, destination, tag and
        size.

        Raises
        ------
        WorkloadError
            Naming ranks, tag and size of one that is left over.
        """
        open_sends: Counter[tuple[int, int, int, int]] = Counter()
        for trace in self._traces:
            for kind, sign in ((NodeType.COMM_SEND, 1), (NodeType.COMM_RECV, -1)):
                chosen = trace.types == kind
                if chosen.any():
                    columns = (trace.comm_src, trace.comm_dst, trace.comm_tag, trace.comm_size)
                    for key in zip(*(column[chosen].tolist() for column in columns), strict=True):
                        open_sends[key] += sign
        for (source, target, tag, size), count in sorted(open_sends.items()):
            if count:
                has, lacks = ("send", "receive") if count > 0 else ("receive", "send")
                raise WorkloadError(
                    f"a {has} of {size} bytes from rank {source} to rank {target} with tag {tag} has no "
                    f"{lacks} ({abs(count)} of this kind are left over)"
                )

    @checked
    def write(self, prefix: files.PathLike, *, compress: bool = False) -> list[str]:
        """Write ``PREFIX.<rank>.et`` for every rank (``.et.gz`` with ``compress``) and
        ``PREFIX.groups.json``.

        The group file is written if there are groups. Returns the paths that were written.

        Raises
        ------
        WorkloadError
            If a message has no partner or a rank no nodes.
        UsageError
            If a file cannot be written, or the prefix is empty or names a folder.
        """
        self.check_messages()
        files.expect_prefix(prefix)
        written = [f"{prefix}.{rank}.et{'.gz' * compress}" for rank in range(self.npus)]
        files.expect_writable([*written, f"{prefix}.groups.json"][: len(written) + bool(self.groups)])
        for path, trace in zip(written, self._traces, strict=True):
            with files.atomic_bytes(path, compress=compress) as file:
                file.write(trace.records.data.data)
        if self.groups:
            written.append(f"{prefix}.groups.json")
            with files.atomic_text(written[-1]) as text:
                text.write(lined_text(self.groups))
        return written


_repeated = lru_cache(maxsize=4096, typed=True)(attribute)


def _text(node: object, what: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise TraceError(f"node {shown(node)}: {what} must be a text, not {shown(value)}")


def _truths(node: str, what: str, values: object) -> list[bool]:
    given = list(values) if isinstance(values, Iterable) and not isinstance(values, str | bytes) else [None]
    if any(not isinstance(item, bool | int | np.bool_ | np.integer) for item in given):
        raise TraceError(f"collective {node!r}: {what} must be a list of True or False, not {shown(values)}")
    return [bool(item) for item in given]


def _sizes(node: str, what: str, values: object) -> list[int] | None:
    if values is None:
        return None
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise TraceError(
            f"collective {node!r}: {what} must be a list of bytes per member, not {shown(values)}"
        )
    return [_whole(node, what, value) for value in values]


def _ranks(what: str, ranks: object) -> list[int]:
    given = list(ranks) if isinstance(ranks, Iterable) and not isinstance(ranks, str | bytes) else None
    if given is None or any(isinstance(x, bool) or not isinstance(x, int | np.integer) for x in given):
        raise WorkloadError(f"{what} must be a list of ranks, not {shown(ranks)}")
    return [int(rank) for rank in given]


def _whole(name: str, what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TraceError(f"node {name!r}: {what} must be a whole number, not {shown(value)}")
    if not 0 <= value < 2**63:
        raise TraceError(f"node {name!r}: {what} must be from 0 to 2^63 - 1, not {shown(value)}")
    return int(value)


def _duration(name: str, micros: object, nanos: int | None) -> int:
    """Duration in nanoseconds from either of the two options."""
    if micros is not None and nanos is not None:
        raise TraceError(f"node {name!r}: give duration_micros or duration_ns, not both")
    if nanos is not None:
        return _whole(name, "duration_ns", nanos)
    if micros is None:
        return 0
    if isinstance(micros, bool) or not isinstance(micros, int | float | np.integer | np.floating):
        raise TraceError(f"node {name!r}: duration_micros must be a number, not {micros!r}")
    if not 0 <= micros < 2**63:
        raise TraceError(
            f"node {name!r}: duration_micros must be 0 or more, and less than 2^63, not {shown(micros)}"
        )
    exact = int(micros) * 1000 if micros == int(micros) else round(micros * 1000)
    return _whole(name, "duration_micros", exact)


def _csr(lists: list[tuple[int, ...]]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], list[int]]:
    offsets = bounds([len(items) for items in lists])
    return offsets, [item for items in lists for item in items]
