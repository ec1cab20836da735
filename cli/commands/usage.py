"""dag usage: tokens, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cli.context import App, pass_app
from cli.render import SCHEMA, count, one_line, width_of
from objstore.jsonvalue import loads
from objstore.limits import MIB
from objstore.usage import By, Prices
from refs.errors import InvalidValue, LimitExceeded

if TYPE_CHECKING:
    from objstore.usage import Report, Usage

MAX_PRICES_BYTES: Final = MIB


@click.command()
@click.option("--by", type=click.Choice([each.value for each in By]), default="model", help="Group by (model).")
@click.option("--prices", metavar="FILE", type=click.Path(), help="A price table, to tell costs.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a group, and one of all.")
@pass_app
def command(app: App, by: str, prices: str | None, as_json: bool) -> None:
    """Sum up what all LLM calls used. Each is counted once, however many conversations share it.

    Days are UTC's. A price table is a JSON object of models (or globs) and prices in millionths of a currency
    unit for a million tokens: {"gpt-4o*": {"input": 2500000, "output": 10000000}} for $2.50 and $10.

    \b
    Example:
      dag usage --by day --prices prices.json
    """
    report = app.store.usage(By(by), None if prices is None else _prices(prices))
    if as_json:
        app.screen.json(_as_json(report, by, prices is not None))
    else:
        app.screen.lines(_lines(report, by, prices is not None))


def _prices(path: str) -> Prices:
    try:
        with Path(path).open("rb") as stream:
            raw = stream.read(MAX_PRICES_BYTES + 1)
        if len(raw) > MAX_PRICES_BYTES:
            raise LimitExceeded(path, len(raw), MAX_PRICES_BYTES, "bytes or more")
        return Prices.from_dict(loads(raw))
    except InvalidValue as error:
        raise InvalidValue(f"{path}: {error.path}" if error.path else path, error.reason) from error


def _lines(report: Report, by: str, priced: bool) -> Iterator[str]:
    heading = [by, "calls", "failed", "in", "out", *(["cost"] if priced else [])]
    rows = [_row(one_line(name) or "(none)", usage, priced) for name, usage in report.groups.items()]
    table = [heading, *rows, _row("all", report.total, priced)]
    widths = [max(width_of(row[column]) for row in table) for column in range(len(heading))]
    for row in table:
        first = row[0] + " " * (widths[0] - width_of(row[0]))
        yield "  ".join([first, *(each.rjust(width) for each, width in zip(row[1:], widths[1:], strict=True))])
    if priced and report.unpriced:
        yield ""
        calls = count(report.total.unpriced, "call")
        yield one_line(f"{calls} without a price, not in the cost: {', '.join(report.unpriced)}")


def _row(name: str, usage: Usage, priced: bool) -> list[str]:
    counts = (usage.calls, usage.failed, usage.input_tokens, usage.output_tokens)
    return [name, *(f"{each:,}" for each in counts), *([_money(usage.cost)] if priced else [])]


def _money(millionths: int) -> str:
    units, rest = divmod(millionths, 1_000_000)
    return f"{units:,}.{rest:06}"


def _as_json(report: Report, by: str, priced: bool) -> Iterator[dict[str, object]]:
    for name, usage in report.groups.items():
        yield {"schema": SCHEMA, "by": by, "group": name, **_members(usage, priced)}
    all_of_it: dict[str, object] = {"schema": SCHEMA, "by": None, "group": None, **_members(report.total, priced)}
    if priced:
        all_of_it["unpriced_models"] = list(report.unpriced)
    yield all_of_it


def _members(usage: Usage, priced: bool) -> dict[str, object]:
    made: dict[str, object] = {
        "calls": usage.calls,
        "failed": usage.failed,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "token_details": dict(usage.details),
    }
    if priced:
        made |= {"cost_millionths": usage.cost, "unpriced_calls": usage.unpriced}
    return made
