"""The result of a replay: times, and everything that can be derived from them on demand."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np

from chakra import __version__
from chakra.arguments import checked
from chakra.arrays import I64, AnyArray
from chakra.errors import UsageError
from chakra.et import ABSENT, NodeType, Trace
from chakra.et.families import FAMILIES
from chakra.et.memory_need import (
    MemoryNeed,
    generated_totals,
    need_entry,
    need_of,
    shortage_notes,
)
from chakra.et.node_families import UNSAID, launched_families
from chakra.io.digits import whole_number
from chakra.io.readable import counted_text
from chakra.replay.config.model import Links, Memory, Network, Switches, System
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.scenario import Scenario
from chakra.replay.options import NS3, RunOptions
from chakra.replay.results.books import flat_bytes, link_rows, unsent_bytes
from chakra.replay.results.collectives import collective_rows
from chakra.replay.results.compute_notes import (
    SaidOperators,
    compute_notes,
    framework_entry,
    generated_with,
    peak_notes,
    said_operators,
)
from chakra.replay.results.corrections import find_corrections
from chakra.replay.results.critical_path import CriticalPath, PathNode, PathSums, critical_path
from chakra.replay.results.crossed import Crossed, unequal_entry
from chakra.replay.results.library_notes import library_notes
from chakra.replay.results.meetings_of_some import met_ns
from chakra.replay.results.memory_use import MemoryUse, memory_use
from chakra.replay.results.messages import MessageRow, message_bytes, message_rows
from chakra.replay.results.operator_shares import shares_entry
from chakra.replay.results.pipeline import PipelineBubble, pipeline_bubble, pipeline_entry
from chakra.replay.results.product_notes import product_notes
from chakra.replay.results.recorded_elsewhere import elsewhere_notes
from chakra.replay.results.recorded_meetings import Meetings, recorded_meetings
from chakra.replay.results.recorded_notes import (
    recorded_spans,
    recording_notes,
    turns_notes,
    uncertainty_notes,
)
from chakra.replay.results.serving import half_notes
from chakra.replay.results.sharing_notes import fault_notes, sharing_notes
from chakra.replay.results.stages import stages_of
from chakra.replay.results.time_account import (
    ACCOUNT,
    ActorTimes,
    actor_times,
    come_ns,
    exposed_as_astra,
    roofline_averages,
)
from chakra.replay.results.uneven_notes import uneven_notes
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.kernel_speeds import accelerator_notes, idle_speed_notes
from chakra.replay.workload.model import Engine, Op, Program, Workload
from chakra.replay.workload.recorded import recorded_steps
from chakra.replay.workload.starts import start_notes

T = TypeVar("T")

SCHEMA = "chakra.replay.result/1"
#: types of values that are plain already
_ATOMS = frozenset((str, int, float, bool, type(None)))
_FIELDS: dict[type, tuple[str, ...]] = {}


@dataclass(repr=False)
class ReplayResult:
    """Times of one replay in ns, made by `simulate`. Derived figures are computed when they are first asked for.

    Attributes
    ----------
    raw
        What the engine handed back, per class of equal NPUs; the other members say the same per NPU.
    scenario
        What was run on what: the prepared workload, its groups, the machine and the options.
    warnings
        What the user should know, a line each.
    source
        What the workload was read from, in words.
    """

    raw: RawRun
    scenario: Scenario
    warnings: list[str] = field(default_factory=list)
    source: str = ""

    @property
    def workload(self) -> Workload:
        """The traces, prepared."""
        return self.scenario.workload

    @property
    def membership(self) -> Membership:
        """Which NPU belongs to which groups."""
        return self.scenario.membership

    @property
    def system(self) -> System:
        """The system file's values."""
        return self.scenario.system

    @property
    def network(self) -> Network:
        """The network."""
        return self.scenario.network

    @property
    def memory_config(self) -> Memory:
        """The memory file's values."""
        return self.scenario.memory

    @property
    def options(self) -> RunOptions:
        """How the run was made."""
        return self.scenario.options

    # -- times -------------------------------------------------------------------------------------------------

    @property
    def npus(self) -> int:
        """Number of NPUs."""
        return self.workload.npus

    @property
    def partial(self) -> bool:
        """Whether the run was ended before all NPUs had finished."""
        return self.raw.partial

    @property
    def is_prediction(self) -> bool:
        """Whether a generated workload was timed on a described machine: by operator times, or by its peak."""
        return (
            (self.system.operator_model is not None or self.system.peak_perf_tflops is not None)
            and self.options.compat is None
            and not self.partial
            and any(generated_with(trace) for trace in self.workload.traces[:1])
        )

    @cached_property
    def _programs(self) -> list[Program]:
        return [self.workload.programs[int(p)] for p in self.raw.program_of]

    def _per_npu(self, per_actor: list[Any], dtype: Any = np.int64) -> AnyArray:
        return np.asarray(per_actor, dtype)[self.raw.partition.class_of]

    @cached_property
    def finish_ns(self) -> I64:
        """Finish of every NPU, shape (npus,); -1 for one that a partial run left unfinished."""
        return self.raw.finish_per_npu()

    @cached_property
    def exposed_comm_ns(self) -> I64:
        """Communication that compute does not hide, per NPU, shape (npus,).

        By default the time with a communication node in flight and no work of the accelerator running (C9; of the host
        where the trace has none of the accelerator); under ``compat`` ASTRA-sim's figure.
        """
        if self.options.astra:
            return self.astra_exposed_comm_ns
        return np.asarray(self.account["transfer_ns"] + self.account["waiting_ns"])

    @property
    def astra_exposed_comm_ns(self) -> I64:
        """ASTRA-sim's exposed communication, shape (npus,): finish minus GPU compute; below 0 where its own wraps."""
        replay_only = self.system.replay_only
        values = [
            exposed_as_astra(program, self.raw, actor, replay_only=replay_only)
            for actor, program in enumerate(self._programs)
        ]
        return self._per_npu(values)

    @checked
    def node_ticks(self, npu: int) -> tuple[AnyArray, I64, I64]:
        """Node ids, issue and finish ticks of an NPU, in issue order.

        Raises
        ------
        UsageError
            If there is no such NPU.
        """
        if not 0 <= npu < self.npus:
            raise UsageError(f"npu: {npu} is not one of 0 to {self.npus - 1}")
        actor = self.raw.actor_of(npu)
        first = int(self.raw.node_start[actor])
        order = self.raw.order[first : first + int(self.raw.order_n[actor])]
        where = self.raw.nodes(actor)
        return self._ids(npu)[order], self.raw.issue_ns[where][order], self.raw.finish_ns[where][order]

    def _ids(self, npu: int) -> AnyArray:
        trace = self.workload.traces[int(self.workload.trace_of[npu])]
        return trace.ids[trace.order_by_id()]

    # -- accounts ----------------------------------------------------------------------------------------------

    @cached_property
    def _times(self) -> list[ActorTimes]:
        met = self._met_ns
        return [
            actor_times(self.raw, program, actor, met.get(actor))
            for actor, program in enumerate(self._programs)
        ]

    @cached_property
    def _meetings(self) -> Meetings:
        return recorded_meetings(self.scenario, self.raw, self._programs)

    @cached_property
    def _met_ns(self) -> Mapping[int, I64]:
        """When members met, by actor, where the engine does not say it: recorded collectives, and of some dimensions."""
        return self._of_some_ns | self._meetings.ready_ns

    @cached_property
    def _of_some_ns(self) -> dict[int, I64]:
        return met_ns(self.raw, self._programs, self.membership, self.network)

    @property
    def waits_in_transfer(self) -> bool:
        """Whether ``transfer_ns`` of the account holds waits for peers, which recorded times do not tell apart."""
        return not self._meetings.whole

    def _of_each(self, figure: Callable[[ActorTimes], T]) -> list[T]:
        """A figure of every actor; those that did the same at the same times have it once."""
        known: dict[tuple[int, bytes], T] = {}
        out = []
        for times in self._times:
            key = id(times.program), times.digest
            if key not in known:
                known[key] = figure(times)
            out.append(known[key])
        return out

    @cached_property
    def account(self) -> dict[str, I64]:
        """Time account per NPU in ns: compute, CPU only, transfer, waiting, memory, idle; adds up to the finish."""
        rows = np.stack(self._of_each(ActorTimes.account))
        return {name: self._per_npu(list(rows[:, k])) for k, name in enumerate(ACCOUNT)}

    @cached_property
    def pipeline(self) -> PipelineBubble | None:
        """How long ranks can only wait for other stages of a pipeline; None without messages between stages."""
        return pipeline_bubble(self.workload, self.raw, self._times, self.finish_ns)

    @cached_property
    def statistics(self) -> dict[str, AnyArray]:
        """ASTRA-sim's statistics per NPU: wall, GPU, CPU, communication and remote-memory time, overlap (ns)."""
        figures = self._of_each(ActorTimes.measures)
        out: dict[str, AnyArray] = {name: self._per_npu([f[name] for f in figures]) for name in figures[0]}
        averages = [
            roofline_averages(program, self.system, self.raw.issue_ns[self.raw.nodes(actor)])
            for actor, program in enumerate(self._programs)
        ]
        known = [a for a in averages if a is not None]
        if known and len(known) == len(averages):
            for name in known[0]:
                out[name] = self._per_npu([a[name] for a in known], np.float64)
        return out

    @cached_property
    def corrections(self) -> dict[str, int]:
        """Corrections of ASTRA-sim that changed something, and how often (nodes or collectives, over all NPUs)."""
        total = find_corrections(self.scenario)
        if not self.options.astra and not self.partial:
            total["C13"] += bool(self.raw.relieved)
            total["C9"] += int((self.exposed_comm_ns != self.astra_exposed_comm_ns).sum())
        runs = np.bincount(self.workload.program_of, minlength=len(self.workload.programs))
        for program, count in zip(self.workload.programs, runs.tolist(), strict=True):
            for name, n in program.corrections.items():
                total[name] += n * count
        return {
            name: int(total[name]) for name in sorted(total, key=lambda c: whole_number(c[1:])) if total[name]
        }

    # -- network -----------------------------------------------------------------------------------------------

    @cached_property
    def _said_operators(self) -> SaidOperators:
        return said_operators(self.workload.traces)

    @cached_property
    def _crossed(self) -> Crossed:
        return Crossed(self.network)

    @cached_property
    def collectives(self) -> list[dict[str, Any]]:
        """One row per collective of alike groups of a name: kind, algorithm, bytes, times, bandwidths, bound."""
        library = self.scenario.plans.library
        return collective_rows(
            self.raw, self._programs, self.membership, library, self._crossed, self._of_some_ns
        )

    @cached_property
    def dimensions(self) -> list[dict[str, Any]]:
        """Per network dimension: bytes that an NPU sends on average, share of the links' time that all take."""
        weight = np.bincount(self.raw.partition.class_of, minlength=self.raw.partition.n_classes)
        sent = (self.raw.dim_bytes * weight[:, None]).sum(axis=0)
        if self.raw.messages_counted:
            sent = sent + unsent_bytes(self.scenario, self.raw)
        else:
            crossed, booked = flat_bytes(self.scenario, self.raw)
            sent = sent + message_bytes(self._message_rows, len(sent)) + crossed - booked
        span = int(self.finish_ns.max(initial=0))
        rows = []
        for k, dim in enumerate(self.network.dims):
            capacity = self._crossed.all_bytes_per_ns(k) * span
            rows.append(
                {
                    "dim": k,
                    "topology": dim.topology.value,
                    "npus": dim.npus,
                    "bandwidth_gibps": self._crossed.bandwidth_gibps(k),
                    **unequal_entry(self._crossed.unequal(k)),
                    "latency_ns": self._crossed.latency_ns(k),
                    "bytes_per_npu": float(sent[k]) / self.npus,
                    "utilisation": float(sent[k]) / capacity if capacity else 0.0,
                }
            )
        return rows

    @cached_property
    def _message_rows(self) -> list[MessageRow]:
        return message_rows(self.workload, self.network, self.raw, self._programs)

    @property
    def messages(self) -> list[dict[str, object]]:
        """One row per set of dimensions in which ends of messages differ: count, bytes, times of receives."""
        return [asdict(row) | {"dims": list(row.dims)} for row in self._message_rows]

    @cached_property
    def links(self) -> list[dict[str, Any]]:
        """Per link of a congested network: bytes, busy and queued time; empty where links are not modelled."""
        if self.options.backend == "aware" and not self.raw.messages_counted:
            return link_rows(self.scenario, self.raw)
        return list(self.raw.links)

    @property
    def link_use(self) -> dict[str, Any]:
        """How much of the most used links is used over time, where messages were simulated on links; else empty.

        ``interval_ns``: length of an interval, from 0 on, the last one up to the end; ``mean``: share of the bandwidth of
        all links that carried something, by interval; ``links``: at most 12, those that carry most for their bandwidth
        first, each with ``share`` by interval, and ``alike``, how many links have the same.
        """
        return self.raw.link_use

    @cached_property
    def _path(self) -> CriticalPath:
        return critical_path(self.raw, self._programs, self.scenario)

    @cached_property
    def critical_path(self) -> list[PathNode]:
        """Nodes that lead to the latest finish, first to last; the first 10,000 of a longer path."""
        return self._path.rows()

    @cached_property
    def critical_path_sums(self) -> PathSums:
        """Times of the whole critical path in ns: by operator and kind, and of its gaps; they add up to the finish.

        ``nodes``: how many the path has; ``gaps`` and ``gap_ns``: how often and how long nothing runs on it; ``parts``:
        ``operator``, ``kind``, ``count`` and ``total_ns``, largest first.
        """
        return self._path.sums()

    @cached_property
    def memory(self) -> list[MemoryUse]:
        """Memory over time per class of NPUs, from the tensors that nodes name; empty if none does."""
        if not any({"inputs", "outputs"} & set(_attribute_names(p)) for p in self.workload.programs):
            return []
        return [memory_use(self.raw, program, actor) for actor, program in enumerate(self._programs)]

    @property
    def peak_memory_bytes(self) -> I64:
        """Most bytes in use at once per NPU; zero where nodes name no tensors."""
        uses = self.memory
        if not uses:
            return np.zeros(self.npus, np.int64)
        return self._per_npu([use.peak_bytes for use in uses])

    @cached_property
    def memory_need(self) -> MemoryNeed | None:
        """What a rank needs at its peak, as the generator computed it; None for other workloads and under ``compat``."""
        if self.options.compat is not None:
            return None
        return need_of(generated_totals(self.workload.traces, self.npus))

    # -- for people --------------------------------------------------------------------------------------------

    @cached_property
    def notes(self) -> list[str]:
        """What a reader of the times should know: compute at peak speed, which no machine reaches; late starts."""
        traces = self.workload.traces
        return [
            *shortage_notes(self.memory_need, self.system.local_mem_capacity_bytes),
            *half_notes(traces),
            *compute_notes(traces, self.system, self.scenario.options, lambda: self._said_operators),
            *peak_notes(traces, self.system, self.scenario.options, self.npus),
            *product_notes(self.scenario),
            *idle_speed_notes(traces, self.scenario.options),
            *accelerator_notes(traces, self.scenario.options),
            *start_notes(traces, self.scenario.options, self.system),
            *([] if self.partial else recording_notes(traces, self.npus, int(self.finish_ns.max()))),
            *library_notes(self.scenario),
            *fault_notes(self.network),
            *sharing_notes(self.scenario),
            *uneven_notes(self.scenario),
            *elsewhere_notes(self.scenario),
            *turns_notes(self.scenario),
            *self._uncertainty(),
            *self.raw.remarks,
        ]

    def _uncertainty(self) -> list[str]:
        """How far off the last NPU of a recorded job may be."""
        if self.partial or not recorded_spans(self.workload.traces):
            return []
        last = int(np.argmax(self.finish_ns))
        account = self.account
        exposed = int(account["transfer_ns"][last] + account["waiting_ns"][last])
        compute = int(account["compute_ns"][last])
        return uncertainty_notes(self.scenario, int(self.finish_ns[last]), exposed, compute)

    def __repr__(self) -> str:
        last = int(self.finish_ns.max(initial=0))
        partial = ", partial" if self.partial else ""
        return (
            f"<ReplayResult: {counted_text(self.npus, 'NPU')}, finished after {last:,} ns, "
            f"{self.options.backend}{partial}>"
        )

    def __str__(self) -> str:
        """The summary that `chakra replay` prints."""
        from chakra.replay.results.formatting import essential, format_summary

        return format_summary(essential(self, summary=True))

    def _repr_html_(self) -> str:
        """The same for a notebook: the summary, and the times of the first NPUs as a table."""
        from chakra.replay.results.formatting import format_html

        return format_html(str(self), self.records())

    @checked
    def records(
        self,
        what: Literal[
            "npus", "nodes", "collectives", "messages", "dimensions", "links", "critical_path"
        ] = "npus",
    ) -> list[dict[str, Any]]:
        """Rows of one kind, for ``pandas.DataFrame(result.records("nodes"))`` and the like.

        Parameters
        ----------
        what
            ``"npus"``: finish, exposed communication and time account of each NPU; ``"nodes"``: name, kind, engine,
            issue and finish of each node of each NPU; ``"collectives"``, ``"messages"``, ``"dimensions"``,
            ``"links"``, ``"critical_path"``: the rows of the attribute of that name. Times in ns.

        Raises
        ------
        UsageError
            For any other word.

        Examples
        --------
        >>> from chakra.builder import TraceBuilder
        >>> from chakra.replay import simulate
        >>> builder = TraceBuilder()
        >>> _ = builder.compute("forward", duration_micros=5)
        >>> ring = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
        >>> [row["finish_ns"] for row in simulate([builder.build()] * 2, {}, ring).records()]
        [5000, 5000]
        """
        from chakra.replay.results.formatting import rows_of

        if what in ("collectives", "messages", "dimensions", "links", "critical_path"):
            return [dict(row) for row in getattr(self, what)]
        if what == "npus":
            return rows_of(
                {
                    "finish_ns": self.finish_ns.tolist(),
                    "exposed_comm_ns": self.exposed_comm_ns.tolist(),
                    "account": {name: values.tolist() for name, values in self.account.items()},
                }
            )
        return rows_of({"nodes": [self._node_document(npu) for npu in range(self.npus)]})

    # -- documents ---------------------------------------------------------------------------------------------

    def explain(self) -> list[str]:
        """How the run was computed: what was folded, in closed form, or simulated, and why."""
        classes = self.raw.partition.n_classes
        lines = [
            f"engine: {self.raw.engine}, backend {self.options.backend}, {counted_text(self.raw.events, 'event')}",
            f"NPUs: {self.npus:,} simulated as {counted_text(classes, 'class')} of equal NPUs",
        ]
        return lines + list(self.raw.notes)

    @checked
    def to_dict(self, *, nodes: bool | Literal["classes"] | Sequence[int] = False) -> dict[str, Any]:
        """The result document (schema `chakra.replay.result/1`, described in docs/formats.md).

        Parameters
        ----------
        nodes
            Whether it has the nodes of all NPUs; or those of some, by number; or with ``"classes"`` of one NPU of each
            class of NPUs that ran as one, whose entry says in ``alike`` for how many it stands.

        Raises
        ------
        UsageError
            If there is no such NPU.
        """
        entries = self._node_documents(nodes)
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "version": __version__,
            "backend": self.options.backend,
            "compat": self.options.compat,
            "npus": self.npus,
            "partial": self.partial,
            "finish_ns": self.finish_ns.tolist(),
            "exposed_comm_ns": self.exposed_comm_ns.tolist(),
            "astra_exposed_comm_ns": self.astra_exposed_comm_ns.tolist(),
            "corrections": self.corrections,
            "warnings": list(self.warnings),
            "notes": self.notes,
            "inputs": self._inputs(),
            "account": {name: values.tolist() for name, values in self.account.items()},
            "statistics": {name: values.tolist() for name, values in self.statistics.items()},
            "collectives": self.collectives,
            "messages": self.messages,
            "dimensions": self.dimensions,
            "links": self.links,
            "link_use": self.link_use,
            "critical_path": self.critical_path,
            "critical_path_sums": self.critical_path_sums,
            "memory": self._memory_document(),
        }
        if self.waits_in_transfer:
            document["waits_in_transfer"] = True
        steps = recorded_steps(self.workload.traces)
        if steps:
            document["recorded_steps"] = steps
        stages = stages_of(self.workload)
        if stages:
            document["stages"] = stages
        document |= need_entry(self.memory_need, self.system.local_mem_capacity_bytes)
        document |= pipeline_entry(self.pipeline)
        if entries:
            if self._operator_codes:
                document["operators"] = list(self._operator_codes)
                document |= shares_entry(self._operator_codes, self.scenario)
            document["nodes"] = entries
        return document

    def _node_documents(self, nodes: bool | Literal["classes"] | Sequence[int]) -> list[dict[str, Any]]:
        if nodes == "classes":
            partition = self.raw.partition
            counts = np.bincount(partition.class_of, minlength=partition.n_classes)
            order = np.argsort(partition.representative)
            return [
                self._node_document(npu) | {"alike": alike}
                for npu, alike in zip(
                    partition.representative[order].tolist(), counts[order].tolist(), strict=True
                )
            ]
        if isinstance(nodes, bool):
            return [self._node_document(npu) for npu in range(self.npus if nodes else 0)]
        chosen = sorted(set(nodes))
        absent = [npu for npu in chosen if not 0 <= npu < self.npus]
        if absent:
            ran = f"0 to {self.npus - 1}" if self.npus > 1 else "0 alone"
            raise UsageError(f"nodes: no NPU {absent[0]} ran; the NPUs are {ran}")
        return [self._node_document(npu) for npu in chosen]

    def _inputs(self) -> dict[str, Any]:
        return {
            "workload": self.source,
            "system": _plain(self.system),
            "network": {
                "source": self.network.source,
                "dims": [
                    {
                        "topology": d.topology.value,
                        "npus": d.npus,
                        "bandwidth_gibps": self._crossed.bandwidth_gibps(k),
                        "latency_ns": self._crossed.latency_ns(k),
                        **unequal_entry(self._crossed.unequal(k)),
                        **({"switches": d.switches.value} if d.switches is not Switches.PLAIN else {}),
                    }
                    for k, d in enumerate(self.network.dims)
                ],
                **_links(self.network.links),
                **({"flow_cap_gibps": self.network.flow_cap_gibps} if self.network.flow_cap_gibps else {}),
                **({"packets": _plain(self.network.packets)} if self.options.backend == NS3 else {}),
            },
            "memory": _plain(self.memory_config),
            "options": _plain(self.options),
            **framework_entry(self.workload.traces, self.system, self.options, lambda: self._said_operators),
        }

    def _memory_document(self) -> dict[str, Any]:
        uses = self.memory
        if not uses:
            return {}
        peaks = self.peak_memory_bytes
        npu = int(np.argmax(peaks))
        use = uses[self.raw.actor_of(npu)]
        return {
            "peak_bytes": peaks.tolist(),
            "npu": npu,
            "time_ns": use.time_ns.tolist(),
            "bytes": use.bytes.tolist(),
        }

    def _node_document(self, npu: int) -> dict[str, Any]:
        actor = self.raw.actor_of(npu)
        program = self._programs[actor]
        ids, issue, finish = self.node_ticks(npu)
        first = int(self.raw.node_start[actor])
        order = self.raw.order[first : first + int(self.raw.order_n[actor])]
        index = program.order[order]
        trace = program.trace
        return {
            "npu": npu,
            "ids": ids.tolist(),
            "names": [trace.name_table[c] for c in trace.name_codes[index].tolist()],
            "kinds": [NodeType(t).name for t in trace.types[index].tolist()],
            "engines": [Engine(e).name for e in program.engine[order].tolist()],
            "issue_ns": issue.tolist(),
            "finish_ns": finish.tolist(),
            **self._partners(npu, program, index, order),
            **self._said_of(trace, index),
            **self._met(actor, order),
        }

    def _met(self, actor: int, order: I64) -> dict[str, list[int | None]]:
        """When the last member of each collective, or the sender of each message, had come; None where that is not known,
        and of other nodes.
        """
        met = come_ns(self.raw, self._programs[actor], actor, self._met_ns.get(actor))[order]
        if not (met >= 0).any():
            return {}
        return {"ready_ns": [None if time < 0 else time for time in met.tolist()]}

    @cached_property
    def _operator_codes(self) -> dict[str, int]:
        """Distinct texts of what nodes compute, over all traces, with their places in the document."""
        texts = dict.fromkeys(text for program in self._programs for text in program.trace.operator_table)
        return {text: code for code, text in enumerate(texts)}

    def _said_of(self, trace: Trace, index: I64) -> dict[str, list[int | None] | list[str | None]]:
        """Streams of nodes, what they compute, and families of kernels by the operators that launched them; None where a
        node does not say; only what some node of a trace says.
        """
        said: dict[str, list[int | None] | list[str | None]] = {}
        if (trace.stream != ABSENT).any():
            said["streams"] = [None if s == ABSENT else s for s in trace.stream[index].tolist()]
        if trace.operator_table:
            places = (*(self._operator_codes[text] for text in trace.operator_table), None)
            said["operators"] = [places[code] for code in trace.operator_codes[index].tolist()]
        families = launched_families(trace)[index]
        if (families != UNSAID).any():
            said["families"] = [None if f == UNSAID else FAMILIES[f] for f in families.tolist()]
        return said

    def _partners(self, npu: int, program: Program, index: I64, order: I64) -> dict[str, Any]:
        """Peer and tag of every message, group of every collective and its number; None for other nodes.

        Communicators that have one name, such as those of a job's tensor-parallel ranks, differ in their numbers.
        """
        trace = program.trace
        peers: list[int | None] = [None] * len(order)
        tags: list[int | None] = [None] * len(order)
        groups: list[str | None] = [None] * len(order)
        comms: list[int | None] = [None] * len(order)
        ranks = self.workload.peers.of(npu) if len(program.p2p_peer) else None
        for k, node in enumerate(order.tolist()):
            op = int(program.op[node])
            if op == Op.COLLECTIVE:
                number = int(self.membership.comm[npu, program.calls[int(program.call[node])].group])
                groups[k], comms[k] = self.membership.comms[number].name, number
            elif op in (Op.SEND, Op.RECV) and ranks is not None:
                message = int(program.call[node])
                peers[k] = int(ranks[int(program.p2p_peer[message])])
                tags[k] = int(trace.comm_tag[int(index[k])])
        return {"peers": peers, "tags": tags, "groups": groups, "communicators": comms}


def _attribute_names(program: Program) -> list[str]:
    """Attribute names of a program's first node that has any; tensors are named on all nodes or on none."""
    trace = program.trace
    for index in range(min(trace.n_nodes, 8)):
        names = list(trace.node(index).attrs)
        if "inputs" in names or "outputs" in names:
            return names
    return []


def _links(links: Links | None) -> dict[str, Any]:
    """What tells two networks of single links apart: dimensions are only names there."""
    if links is None:
        return {}
    digest = hashlib.sha256(repr((links.links, links.vertices, links.routes)).encode()).hexdigest()
    return {
        "links": {"count": len(links.links), "routing": links.routing, "ecmp": links.ecmp, "sha256": digest},
        **links.facts,
    }


def _plain(value: Any) -> Any:
    """A configuration value as plain JSON types."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if names := _field_names(kind):
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(getattr(k, "value", k)): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value


def _field_names(kind: type) -> tuple[str, ...]:
    """Fields of a class of data; none of other classes."""
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(item.name for item in fields(kind)) if is_dataclass(kind) else ()
    return _FIELDS[kind]
