"""`chakra accuracy`: predicted beside measured training times."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.numbers import DecimalRange, WholeRange
from chakra.cli.support.options import format_option
from chakra.cli.support.progress import ProgressBar
from chakra.io.digits import whole_number
from chakra.io.documents import document_text
from chakra.io.readable import count_text, counted, verb

if TYPE_CHECKING:
    from chakra.accuracy import Case, FamilyScore, Prediction, RangePrediction, Unread

#: places of rows that one line of text names
MAX_PLACES = 3


@click.command(cls=ChakraCommand)
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="CSV",
    help="Rows of your own in the columns of the package's tables, instead of those. May be given several times.",
)
@click.option("--family", "families", multiple=True, help="Only families whose name contains this text.")
@click.option(
    "--every",
    type=WholeRange(min=1),
    default=1,
    show_default=True,
    help="Only every N-th row of each family.",
)
@click.option("--framework", help="Profile for all rows, instead of the one that each names.")
@click.option("--rows", "with_rows", is_flag=True, help="List every row, and why the others cannot be read.")
@click.option("--picture", metavar="SVG", help="Draw predicted over measured into this file.")
@click.option(
    "--max-error",
    type=DecimalRange(min=0),
    help="End with code 4 if a family's mean error is above this, %.",
)
@click.option(
    "--intervals",
    is_flag=True,
    help="Print instead how many measured times 90 % intervals hold, each family by the rows of the others.",
)
@click.option(
    "--surfaces",
    metavar="PRESET",
    help="Print instead what rows on other machines are off by with this preset's operator times at the peaks of the "
    "machine's data sheet, beside those with its own: what to expect of an accelerator that nobody measured.",
)
@format_option()
def command(
    files: tuple[str, ...],
    families: tuple[str, ...],
    every: int,
    framework: str | None,
    with_rows: bool,
    picture: str | None,
    max_error: float | None,
    intervals: bool,
    surfaces: str | None,
    output_format: str,
) -> None:
    """Predict measured training steps, and say how far the predictions are off.

    Rows that ship with the package, or those of --file: each is generated and replayed on its machine's preset with its
    framework's profile. Errors are shares of the measured value; rows that constants were tuned on are counted apart.
    """
    from chakra.accuracy import (
        Case,
        Unread,
        measured_rows,
        predict,
        predict_range,
        range_cases,
        read_case,
        scores,
    )
    from chakra.accuracy.picture import picture_text
    from chakra.accuracy.table import read_whole_table
    from chakra.errors import EXIT_BELOW_THRESHOLD, UsageError
    from chakra.io.files import atomic_text

    if intervals:
        if (
            files
            or families
            or every > 1
            or framework
            or with_rows
            or picture
            or max_error is not None
            or surfaces
        ):
            raise UsageError(
                "--intervals is about the table that ships: it goes with --format and --quiet only"
            )
        _intervals(output_format)
        return
    rows = [] if files else measured_rows()
    for path in files:
        read, others = read_whole_table(path)
        rows += read
        if others:
            click.echo(f"chakra: note: {path}: columns that are not read: {', '.join(others)}", err=True)
    if twice := len(rows) - len(set(rows)):
        click.echo(
            f"chakra: note: {counted(twice, 'row')} {verb(twice, 'is', 'are')} equal to others, and count as often "
            "as they stand",
            err=True,
        )
    found = [read_case(row, framework=framework) for row in rows]
    found = [
        item
        for item in found
        if not families or any(text.lower() in item.family.lower() for text in families)
    ]
    if not found:
        raise UsageError("no row is left: --family names none of the families, or the file has no rows")
    seen: dict[str, int] = {}
    chosen: list[Case] = []
    for item in found:
        if isinstance(item, Case):
            number = seen[item.family] = seen.get(item.family, -1) + 1
            if number % every == 0:
                chosen.append(item)
    if surfaces is not None:
        if with_rows or picture or max_error is not None:
            raise UsageError("--surfaces goes with options that choose rows, --format and --quiet only")
        _ahead(chosen, surfaces, output_format)
        return
    unread: list[Unread] = []
    several: list[tuple[Case, ...]] = []
    for item in found:
        if isinstance(item, Unread):
            cases = range_cases(item.row, framework=framework)
            if cases:
                several.append(cases)
            else:
                unread.append(item)
    predictions: list[Prediction] = []
    ranges: list[RangePrediction] = []
    with ProgressBar("predicting rows", len(chosen) + len(several), counts=True) as bar:
        for prediction in predict(chosen):
            predictions.append(prediction)
            bar.show(advance=1)
        for cases in several:
            made = predict_range(cases)
            if made is None:
                unread.append(Unread(cases[0].row, cases[0].family, "no micro-batch makes a step of it"))
            else:
                ranges.append(made)
            bar.show(advance=1)
    tuned = [item for item in predictions if item.case.row.tuned]
    held = [item for item in predictions if not item.case.row.tuned]
    held_scores, tuned_scores = scores(held), scores(tuned)
    if picture:
        with atomic_text(picture) as file:
            file.write(picture_text(predictions))
    if output_format == "json":
        document = _document(held_scores, tuned_scores, predictions, unread, ranges, with_rows=with_rows)
        click.echo(document_text(document, indent=1))
    else:
        click.echo(
            "\n".join(_lines(held_scores, tuned_scores, predictions, unread, ranges, with_rows=with_rows))
        )
    if max_error is not None and not held_scores:
        raise UsageError("--max-error has nothing to hold: no row was predicted that nothing was tuned on")
    if max_error is not None and any(100 * score.mean > max_error for score in held_scores):
        raise SystemExit(EXIT_BELOW_THRESHOLD)


def _intervals(output_format: str) -> None:
    """Print how intervals fared for families that they had not seen."""
    from chakra.accuracy import coverage, pair_coverage
    from chakra.alignment import aligned

    found, pairs = coverage(), pair_coverage()
    if output_format == "json":
        rows = [
            {
                "family": one.family or None, "rows": one.rows, "inside": one.inside, "below": one.below,
                "above": one.above, "width": one.width,
            }
            for one in found
        ]  # fmt: skip
        ratios = [
            {
                "family": pair.family or None, "differing": pair.words or None, "pairs": pair.pairs,
                "inside": pair.inside, "factor": pair.factor,
            }
            for pair in pairs
        ]  # fmt: skip
        document = {**_document([], [], [], [], [], with_rows=False), "intervals": rows, "pairs": ratios}
        click.echo(document_text(document, indent=1))
        return
    header = ("family", "rows", "inside %", "below %", "above %", "width")
    table = [
        (
            one.family or "all rows", str(one.rows), _figure(100 * one.inside), _figure(100 * one.below),
            _figure(100 * one.above), f"{one.width:.2f}x",
        )
        for one in found
    ]  # fmt: skip
    click.echo(
        "90 % intervals, each family by the rows of the others; width: upper over lower end, geometric mean"
    )
    click.echo("\n".join(aligned(header, table, left=1).splitlines()))
    columns = ("family", "differing in", "pairs", "inside %", "factor")
    ratio_rows = [
        (
            pair.family or "all pairs", pair.words or "any of these", count_text(pair.pairs),
            _figure(100 * pair.inside), "" if pair.factor is None else f"{pair.factor:.2f}x",
        )
        for pair in pairs
    ]  # fmt: skip
    click.echo("\nratios of two steps of one model on one machine, each family by the pairs of the others")
    click.echo("\n".join(aligned(columns, ratio_rows, left=2).splitlines()))


def _ahead(cases: "Sequence[Case]", base: str, output_format: str) -> None:
    """Print what rows are off by with another machine's operator times, and with their own."""
    from chakra.accuracy import ahead_cases, ahead_scores, predict, with_surfaces
    from chakra.alignment import aligned
    from chakra.errors import UsageError

    chosen = ahead_cases(cases, base)
    if not chosen:
        raise UsageError(
            f"no row is left that is of another machine than {base} and that nothing was tuned on"
        )
    both = [*chosen, *(with_surfaces(case, base) for case in chosen)]
    predictions: list[Prediction] = []
    with ProgressBar("predicting rows", len(both), counts=True) as bar:
        for prediction in predict(both):
            predictions.append(prediction)
            bar.show(advance=1)
    found = ahead_scores(predictions[: len(chosen)], predictions[len(chosen) :])
    if output_format == "json":
        rows = [
            {
                "family": one.family, "machine": one.machine, "rows": one.rows, "mean": one.mean, "signed": one.signed,
                "own_mean": one.own_mean, "own_signed": one.own_signed,
            }
            for one in found
        ]  # fmt: skip
        document = {**_document([], [], [], [], [], with_rows=False), "surfaces": base, "ahead": rows}
        click.echo(document_text(document, indent=1))
        return
    header = ("family", "machine", "rows", "mean %", "signed %", "own mean %", "own signed %")
    table = [
        (
            one.family, one.machine, str(one.rows), _figure(100 * one.mean), _figure(100 * one.signed, sign=True),
            _figure(100 * one.own_mean), _figure(100 * one.own_signed, sign=True),
        )
        for one in found
    ]  # fmt: skip
    click.echo(
        f"operator times of {base} at the data sheets' peaks and bandwidths; own: those of the machine itself"
    )
    click.echo("\n".join(aligned(header, table, left=2).splitlines()))


def _figure(value: float, digits: int = 1, *, sign: bool = False) -> str:
    """A figure of a table; what rounds to 0 from below is no -0.0.

    >>> _figure(-0.04, sign=True), _figure(-0.06, sign=True)
    ('+0.0', '-0.1')
    """
    if math.isnan(value):
        return "-"
    return f"{value:{'+' if sign else ''}z.{digits}f}"


def _table(scores: "Sequence[FamilyScore]") -> list[str]:
    from chakra.alignment import aligned

    rows = [
        (
            score.family, score.quantity, str(score.rows), _figure(100 * score.mean), _figure(100 * score.median),
            _figure(100 * score.signed, sign=True), _figure(100 * score.p90), _figure(score.spearman, 2),
        )
        for score in scores
    ]  # fmt: skip
    header = ("family", "quantity", "rows", "mean %", "median %", "signed %", "p90 %", "Spearman")
    return aligned(header, rows, left=2).splitlines()


def _table_of_ranges(ranges: "Sequence[RangePrediction]") -> list[str]:
    """One line a row: its ends, and what was measured."""
    from chakra.alignment import aligned

    header = ("family", "model", "NPUs", "layout", "least s", "most s", "measured s")
    rows = [
        (
            one.cases[0].family, one.cases[0].model, str(one.cases[0].machine.npus), one.cases[0].row.parallelism,
            f"{one.low:.4g}", f"{one.high:.4g}", f"{one.cases[0].measured:.4g}",
        )
        for one in ranges
    ]  # fmt: skip
    return aligned(header, rows, left=4).splitlines()


def _reasons(
    unread: "Sequence[Unread]", predictions: "Sequence[Prediction]"
) -> dict[tuple[str, str], list[str]]:
    """Family and reason -> where the rows stand that were not predicted for it."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for item in unread:
        reasons.setdefault((item.family, item.reason), []).append(item.row.where)
    for prediction in predictions:
        if prediction.predicted is None:
            key = prediction.case.family, prediction.reason
            reasons.setdefault(key, []).append(prediction.case.row.where)
    return reasons


def _places(places: "Sequence[str]") -> str:
    """The first places of rows, for people."""
    more = f" and {len(places) - MAX_PLACES} more" if len(places) > MAX_PLACES else ""
    return f" ({'; '.join(places[:MAX_PLACES])}{more})"


def _lines(
    held: "Sequence[FamilyScore]",
    tuned: "Sequence[FamilyScore]",
    predictions: "Sequence[Prediction]",
    unread: "Sequence[Unread]",
    ranges: "Sequence[RangePrediction]",
    *,
    with_rows: bool,
) -> list[str]:
    lines = ["rows that nothing was tuned on", *_table(held)]
    if tuned:
        lines += ["", "rows that constants were tuned on", *_table(tuned)]
    if ranges:
        from chakra.accuracy.ranges import MICRO_BATCHES

        *others, last = MICRO_BATCHES
        each = f"{', '.join(map(str, others))} and {last}"
        lines += [
            "",
            f"without a printed micro-batch: predicted with each of {each} that fits; counted nowhere",
        ]
        lines += _table_of_ranges(ranges)
    reasons = _reasons(unread, predictions)
    if reasons:
        lines += ["", f"not predicted: {counted(sum(map(len, reasons.values())), 'row')}"]
        lines += [
            f"  {len(places):4d}  {family}: {reason}{_places(places)}"
            for (family, reason), places in reasons.items()
        ]
    if with_rows:
        from chakra.accuracy import Quantity

        lines += ["", "error %  predicted  measured     row"]
        for item in predictions:
            if item.predicted is None:
                continue
            row = item.case.row
            size, unit = (1.0, "s") if item.case.quantity is Quantity.STEP else (1e9, "GB")
            what = ", ".join(
                text
                for text in (
                    item.case.family, item.case.model, item.case.machine.preset, counted(item.case.machine.npus, "NPU"),
                    row.parallelism, f"micro-batch {row.micro_batch}", f"batch {row.global_batch}", row.precision,
                )
                if text
            )  # fmt: skip
            predicted, measured = item.predicted / size, item.case.measured / size
            lines.append(f"{100 * item.error:+7.1f}  {predicted:9.4g} {measured:9.4g} {unit:<2}  {what}")
    return lines


def _document(
    held: "Sequence[FamilyScore]",
    tuned: "Sequence[FamilyScore]",
    predictions: "Sequence[Prediction]",
    unread: "Sequence[Unread]",
    ranges: "Sequence[RangePrediction]",
    *,
    with_rows: bool,
) -> dict[str, object]:
    def table(scores: "Sequence[FamilyScore]") -> list[dict[str, object]]:
        return [
            {
                "family": score.family, "quantity": score.quantity, "rows": score.rows, "mean": score.mean,
                "median": score.median, "signed": score.signed, "p90": score.p90,
                "spearman": None if math.isnan(score.spearman) else score.spearman,
            }
            for score in scores
        ]  # fmt: skip

    document: dict[str, object] = {
        "schema": "chakra.accuracy/1",
        "held_out": table(held),
        "tuned": table(tuned),
        "not_predicted": [
            {"family": family, "reason": reason, "rows": len(places), "where": places}
            for (family, reason), places in _reasons(unread, predictions).items()
        ],
    }
    if ranges:
        document["ranges"] = [
            {
                "family": one.cases[0].family, "model": one.cases[0].model, "framework": one.cases[0].framework,
                "machine": one.cases[0].machine.preset, "npus": one.cases[0].machine.npus,
                "parallelism": one.cases[0].row.parallelism, "where": one.cases[0].row.where,
                "measured": one.cases[0].measured, "low": one.low, "high": one.high,
                "micro_batches": [
                    {"micro_batch": whole_number(case.row.micro_batch), "predicted": predicted}
                    for case, predicted in zip(one.cases, one.predicted, strict=True)
                ],
            }
            for one in ranges
        ]  # fmt: skip
    if with_rows:
        document["rows"] = [
            {
                "family": item.case.family, "model": item.case.model, "framework": item.case.framework,
                "machine": item.case.machine.preset, "npus": item.case.machine.npus,
                "parallelism": item.case.row.parallelism, "micro_batch": item.case.row.micro_batch,
                "global_batch": item.case.row.global_batch, "precision": item.case.row.precision,
                "quantity": item.case.quantity.value, "measured": item.case.measured, "predicted": item.predicted,
                "tuned": bool(item.case.row.tuned),
            }
            for item in predictions
        ]  # fmt: skip
    return document
