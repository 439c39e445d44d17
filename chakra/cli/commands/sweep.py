"""`chakra sweep`: run a study over workload and machine parameters."""

import os
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.compiling import tell_of_workers
from chakra.cli.support.numbers import WholeRange
from chakra.cli.support.options import format_option
from chakra.cli.support.progress import ProgressBar
from chakra.errors import UsageError
from chakra.io.documents import document_text
from chakra.io.readable import counted, counted_text, verb
from chakra.io.streams import output_width

if TYPE_CHECKING:
    from chakra.sweep.executors import Runner
    from chakra.sweep.store import Outcome, Store
    from chakra.sweep.study import Study


@click.command(cls=ChakraCommand)
@click.argument("study_file", metavar="STUDY.yml", type=click.Path())
@click.option("-o", "--output", metavar="DIR", help="Folder of results.  [default: STUDY.results]")
@click.option("--workers", type=WholeRange(min=1), help="Parallel runs.  [default: all cores]")
@click.option("--threads", is_flag=True, help="Threads instead of processes.")
@click.option(
    "--scheduler", metavar="ADDRESS", help="Dask scheduler, such as tcp://host:8786 (cluster extra)."
)
@click.option("--shard", metavar="I/N", help="Run only every N-th point, from the I-th (for batch arrays).")
@click.option(
    "--seed",
    type=WholeRange(min=0),
    metavar="N",
    help="Seed of a random or optuna study, in place of the study's own.",
)
@click.option("--retry-failed", is_flag=True, help="Run points again that failed before.")
@click.option(
    "--top", type=WholeRange(min=0), default=10, show_default=True, help="Rows of the ranked table."
)
@click.option(
    "--report/--no-report",
    default=True,
    help="Write study.html, and best.json and best.html of the best point, replayed again if it was quick.",
)
@click.option(
    "--reports",
    type=WholeRange(min=0),
    default=4,
    show_default=True,
    metavar="N",
    help="Reports of other designs that the study's page links to: first those of the front, then the next best.",
)
@format_option()
def command(study_file: str, **options: Any) -> None:
    """Run a study: what is in the results folder already is not run again."""
    from chakra.sweep import Shard, Store, load_study, ranked, run_study, runner
    from chakra.sweep.table import nothing_fits

    study = load_study(study_file)
    if options["seed"] is not None:
        study = replace(study, method=replace(study.method, seed=options["seed"]))
    store = Store(options["output"] or Path(study_file).with_suffix(".results"))
    shard = Shard.parse(options["shard"]) if options["shard"] else None
    place = _place(options["workers"], options["threads"], options["scheduler"])
    with (
        runner(workers=options["workers"], threads=options["threads"], scheduler=options["scheduler"]) as run,
        _Progress(study.name, place) as progress,
    ):
        outcomes = run_study(
            study,
            store,
            run,
            shard=shard,
            retry_failed=options["retry_failed"],
            progress=progress,
            begin=progress.begin,
            documents=options["report"],
        )
        if not outcomes:
            raise UsageError(f"{study_file}: no point meets the constraints")
        best = ranked(study, outcomes)
        whole = shard is None or shard.count == 1
        reports = options["reports"] if options["report"] else None
        written = _write(study, store, outcomes, best, run, reports, progress) if whole else []
    if options["output_format"] == "json":
        click.echo(document_text(_document(study, outcomes, best), indent=1))
    else:
        click.echo(_text(study, outcomes, best, options["top"]))
    for path in written:
        click.echo(f"wrote {path}", err=True)
    if not best:
        ran = sum(outcome.ok for outcome in outcomes)
        if ran:
            raise UsageError(
                f"{study_file}: objective: none of {_points(ran)} that ran has {study.objective}"
            )
        why = "; ".join(nothing_fits(study, outcomes)) or f"the first: {outcomes[0].reason}"
        raise UsageError(f"{study_file}: none of {counted(len(outcomes), 'point')} gave a result; {why}")


def _place(workers: int | None, threads: bool, scheduler: str | None) -> str:
    """Where points run, in words."""
    if scheduler:
        return f"the workers of {scheduler}"
    count = workers or os.cpu_count() or 1
    return counted(count, "thread" if threads else "worker")


class _Progress(AbstractContextManager["_Progress"]):
    """A bar where standard error is a terminal, else a line at the start, one at the end and some between."""

    def __init__(self, name: str, place: str) -> None:
        self.name = name
        self.place = place
        self._bar = ProgressBar(name, counts=True)
        self._begun = 0.0
        self._done = 0
        self._cached = 0

    def begin(self, total: int) -> None:
        """Told before the first point is run."""
        self._begun = time.monotonic()
        tell_of_workers()
        self._bar.show(completed=0, total=total)
        if not self._bar.on_terminal:
            click.echo(f"{self.name}: {_points(total)} on {self.place}", err=True)

    def __call__(self, done: int, total: int, outcome: "Outcome") -> None:
        self._done = done
        self._cached += outcome.cached
        self._bar.show(completed=done, total=total)

    def pages(self, done: int, total: int) -> None:
        """Told before each report page."""
        self._bar.show(what=f"{self.name}: report pages", completed=done, total=total)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)
        if kind is None and not self._bar.on_terminal:
            seconds = time.monotonic() - self._begun
            earlier = f", {self._cached} of them in earlier runs" if self._cached else ""
            click.echo(f"{self.name}: {_points(self._done)} done in {seconds:.1f} s{earlier}", err=True)


def _points(count: int) -> str:
    return f"{counted_text(count, 'point')}"


def _write(
    study: "Study",
    store: "Store",
    outcomes: "list[Outcome]",
    best: "list[Outcome]",
    run: "Runner",
    reports: int | None,
    progress: "_Progress",
) -> list[Path]:
    """Table, picture and pages in the study's folder; no pages where `reports` is None."""
    from chakra.sweep import plot, write_table

    table = write_table(outcomes, store.folder)
    if table.suffix == ".csv":
        click.echo("note: pyarrow is not installed (parquet extra): results are CSV", err=True)
    written = [table]
    try:
        if best:
            written.append(plot(study, outcomes, store.folder / "pareto.svg"))
    except UsageError as error:
        click.echo(f"note: {error}", err=True)
    if reports is not None:
        written += _pages(study, store, outcomes, best, run, reports, progress)
    return written


def _pages(
    study: "Study",
    store: "Store",
    outcomes: "list[Outcome]",
    best: "list[Outcome]",
    run: "Runner",
    reports: int,
    progress: "_Progress",
) -> list[Path]:
    """The best design's replay, its report and those of others, and the page of the study, which leads to them."""
    from chakra.io.files import atomic_text
    from chakra.report import report_html, run_of
    from chakra.sweep import front, run_point, study_html

    wanted = {outcome.key: outcome for outcome in [*best[:1], *front(study, outcomes), *best]}
    chosen = list(wanted.values())[: 1 + reports]
    stored = [(outcome, store.document(outcome.key)) for outcome in chosen]
    kept = (pair for pair in stored if pair[1] is not None)
    waiting = [outcome for outcome, document in stored if document is None]
    tasks = [
        {"merged": study.merged(outcome.point), "needs_memory": study.needs_memory, "document_from_s": 0.0}
        for outcome in waiting
    ]
    again = ((waiting[index], result.get("document")) for index, result in run(run_point, tasks))
    pages: dict[str, str] = {}
    for done, (outcome, document) in enumerate(chain(kept, again)):
        progress.pages(done, len(chosen))
        if document is None:
            continue
        words = ", ".join(f"{name} {value}" for name, value in outcome.point.items())
        page = report_html([run_of(document, words or study.name)])
        first = outcome is chosen[0]
        if first:
            with atomic_text(store.folder / "best.json") as file:
                file.write(document_text(document))
            with atomic_text(store.folder / "best.html") as file:
                file.write(page)
        else:
            (store.folder / "reports").mkdir(exist_ok=True)
            with atomic_text(store.folder / "reports" / f"{outcome.key}.html") as file:
                file.write(page)
        pages[outcome.key] = "best.html" if first else f"reports/{outcome.key}.html"
    store.drop_documents(but={outcome.key for outcome in chosen})
    with atomic_text(store.folder / "study.html") as file:
        file.write(study_html(study, outcomes, pages))
    made = ["best.json", "best.html"] if best and best[0].key in pages else []
    return [store.folder / name for name in [*made, "study.html"]]


def _counts(outcomes: "list[Outcome]") -> dict[str, int]:
    counts = {status: sum(o.status == status for o in outcomes) for status in ("ok", "infeasible", "failed")}
    counts["cached"] = sum(o.cached for o in outcomes)
    return counts


def _text(study: "Study", outcomes: "list[Outcome]", best: "list[Outcome]", top: int) -> str:
    from chakra.sweep.doubt import doubt_notes, doubt_of
    from chakra.sweep.printed import ranked_table
    from chakra.sweep.reasons import reasons
    from chakra.sweep.table import named_values, result_notes

    counts = _counts(outcomes)
    ran = f"{counts['ok']} ran, {counts['infeasible']} infeasible, {counts['failed']} failed"
    lines = [f"{study.name}: {_points(len(outcomes))}: {ran} ({counts['cached']} from earlier runs)"]
    table = ranked_table(study, outcomes, best, top, output_width())
    if table:
        lines += ["", table]
    if best:
        lines += [
            f"note: {note}"
            for note in [*result_notes(study, outcomes, best), *doubt_notes(doubt_of(study, best), best)]
        ]
    without = reasons(outcomes)
    for row in without[:5]:
        design = named_values(study, row.first)
        which = "" if not design else f" ({design})" if row.count == 1 else f" (the first: {design})"
        lines.append(f"{row.status} {row.count}x{which}: {row.first.reason}")
    if len(without) > 5:
        more = len(without) - 5
        lines.append(f"{counted(more, 'more reason')} {verb(more, 'is', 'are')} in the table of results")
    return "\n".join(lines)


def _document(study: "Study", outcomes: "list[Outcome]", best: "list[Outcome]") -> dict[str, object]:
    from chakra.sweep import front, sensitivity
    from chakra.sweep.doubt import doubt_notes, doubt_of
    from chakra.sweep.table import result_notes
    from chakra.sweep.ties import tied

    def entry(o: "Outcome") -> dict[str, object]:
        return {"point": o.point, "status": o.status, "metrics": o.metrics, "reason": o.reason, "key": o.key}

    doubt = doubt_of(study, best)
    return {
        "schema": "chakra.sweep/1",
        "study": study.name,
        "objective": study.objective,
        "counts": _counts(outcomes),
        "notes": [*result_notes(study, outcomes, best), *doubt_notes(doubt, best)],
        "tied": [o.key for o in tied(study, best)],
        "near": [o.key for o in doubt.near],
        "ranked": [entry(o) for o in best],
        "pareto": [entry(o) for o in front(study, outcomes)],
        "sensitivity": [cost.to_dict() for cost in sensitivity(study, outcomes)],
        "points": [entry(o) for o in outcomes],
    }
