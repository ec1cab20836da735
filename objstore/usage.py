"""What calls used and what that cost: sums over `Call` values, in integers throughout.

Money is counted in millionths of a currency unit. A price is that many millionths for a million tokens, so
$2.50 for a million tokens is 2500000. Products are summed exactly; each figure that is read is rounded once,
half up. Figures of groups may therefore differ from their rounded total by a millionth each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, Self

from objstore.jsonvalue import Json
from objstore.records import Call
from refs.errors import InvalidValue

TOKENS_PRICED: Final = 1_000_000
"""A price is for this many tokens."""

MAX_PRICE: Final = 10**15
"""Millionths of a currency unit for a million tokens: a thousand units a token."""


class By(StrEnum):
    """What usage is grouped by."""

    MODEL = "model"
    DAY = "day"
    CONVERSATION = "conversation"


@dataclass(frozen=True, slots=True)
class DetailPrice:
    """The price of a kind of token that a call's `token_details` counts.

    `within` names the count (`input` or `output`) that the provider has them in already: they are taken out
    of it and priced here instead. None: they were counted beside both.
    """

    price: int
    within: str | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """What a model's tokens cost, in millionths of a currency unit for a million tokens."""

    input: int
    output: int
    details: Mapping[str, DetailPrice] = field(default_factory=dict)

    def cost(self, call: Call) -> int:
        """The exact cost of a call in millionths of a millionth of a currency unit."""
        left = {"input": call.input_tokens or 0, "output": call.output_tokens or 0}
        cost = 0
        for path, count in sorted(token_details(call)):
            detail = self.details.get(path) or self.details.get(path.rpartition(".")[2])
            if detail is not None:
                if detail.within is not None:
                    # A count larger than what it should be part of: no price is taken twice, none is negative.
                    count = min(count, left[detail.within])  # noqa: PLW2901
                    left[detail.within] -= count
                cost += count * detail.price
        return cost + left["input"] * self.input + left["output"] * self.output


@dataclass(frozen=True, slots=True)
class Prices:
    """A user's price table: models, or globs over models, and what they cost."""

    table: Mapping[str, Price] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, value: object) -> Self:
        """From parsed JSON, or `InvalidValue`.

        `{model or glob: {"input": n, "output": n, "details"?: {name: n or {"price": n, "within": "input"}}}}`
        """
        if not isinstance(value, Mapping):
            raise InvalidValue("", "a price table is an object")
        return cls({str(model): _price(price, str(model)) for model, price in value.items()})

    def of(self, call: Call) -> Price | None:
        """By the model that answered, else by the one that was asked for; an exact name before any glob.

        Of several globs the longest is taken, of equally long ones the first by alphabet.
        """
        names = [name for name in (call.resolved_model, call.model) if name is not None]
        for name in names:
            if name in self.table:
                return self.table[name]
        for name in names:
            found = [glob for glob in self.table if fnmatchcase(name, glob)]
            if found:
                return self.table[min(found, key=lambda glob: (-len(glob), glob))]
        return None


@dataclass(frozen=True, slots=True)
class Usage:
    """The sum of some calls. `exact_cost` is in millionths of a millionth, `unpriced` counts calls."""

    calls: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    details: Mapping[str, int] = field(default_factory=dict)
    exact_cost: int = 0
    unpriced: int = 0

    @property
    def cost(self) -> int:
        """In millionths of the currency unit, rounded half up. What is unpriced is not in it."""
        return (self.exact_cost + TOKENS_PRICED // 2) // TOKENS_PRICED


@dataclass(frozen=True, slots=True)
class Report:
    """Usage by group, sorted by name, and of all. `unpriced` names the models without a price.

    Calls that name no conversation are grouped under the empty name.
    """

    groups: Mapping[str, Usage]
    total: Usage
    unpriced: tuple[str, ...]


def usage(calls: Iterable[Call], by: By = By.MODEL, prices: Prices | None = None) -> Report:
    """The sums of `calls`, each counted once by its id, however often it is given.

    Without `prices` nothing is priced. A call that used no tokens needs no price.
    """
    groups: defaultdict[str, _Sum] = defaultdict(_Sum)
    total = _Sum()
    seen: set[str] = set()
    unpriced: set[str] = set()
    for call in calls:
        if call.call in seen:
            continue
        seen.add(call.call)
        price = prices.of(call) if prices is not None else None
        missing = price is None and _used_tokens(call)
        if missing:
            unpriced.add(_model(call))
        for each in (groups[_group(call, by)], total):
            each.add(call, price.cost(call) if price is not None else 0, missing)
    return Report({name: groups[name].usage() for name in sorted(groups)}, total.usage(), tuple(sorted(unpriced)))


def token_details(call: Call) -> Iterator[tuple[str, int]]:
    """The counts in a call's `token_details`, by dotted path; what isn't a count is passed over."""
    stack: list[tuple[str, Json]] = [("", call.token_details or {})]
    while stack:
        path, value = stack.pop()
        if isinstance(value, Mapping):
            stack += [(f"{path}.{key}" if path else key, item) for key, item in value.items()]
        elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            yield path, value


@dataclass(slots=True)
class _Sum:
    calls: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    exact_cost: int = 0
    unpriced: int = 0
    details: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, call: Call, cost: int, unpriced: bool) -> None:
        self.calls += 1
        self.failed += call.error is not None
        self.input_tokens += call.input_tokens or 0
        self.output_tokens += call.output_tokens or 0
        self.exact_cost += cost
        self.unpriced += unpriced
        for path, count in token_details(call):
            self.details[path] += count

    def usage(self) -> Usage:
        return Usage(
            calls=self.calls,
            failed=self.failed,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            details=dict(sorted(self.details.items())),
            exact_cost=self.exact_cost,
            unpriced=self.unpriced,
        )


def _model(call: Call) -> str:
    return call.resolved_model or call.model


def _group(call: Call, by: By) -> str:
    if by is By.MODEL:
        return _model(call)
    if by is By.DAY:
        return call.started_at[:10]  # UTC, as the call has it
    return call.conversation or ""


def _used_tokens(call: Call) -> bool:
    return bool(call.input_tokens or call.output_tokens or any(count for _, count in token_details(call)))


def _price(value: object, path: str) -> Price:
    members = _members(value, path, {"input", "output"}, {"details"})
    given = members.get("details", {})
    if not isinstance(given, Mapping):
        raise InvalidValue(f"{path}.details", "an object is needed")
    details = {str(name): _detail(detail, f"{path}.details.{name}") for name, detail in given.items()}
    return Price(_amount(members["input"], f"{path}.input"), _amount(members["output"], f"{path}.output"), details)


def _detail(value: object, path: str) -> DetailPrice:
    if not isinstance(value, Mapping):
        return DetailPrice(_amount(value, path))
    members = _members(value, path, {"price"}, {"within"})
    within = members.get("within")
    if within not in (None, "input", "output"):
        raise InvalidValue(f"{path}.within", "'input' or 'output' is needed")
    return DetailPrice(_amount(members["price"], f"{path}.price"), within)


def _members(value: object, path: str, needed: set[str], optional: set[str]) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise InvalidValue(path, "an object is needed")
    for key in sorted(needed - value.keys()):
        raise InvalidValue(f"{path}.{key}", "missing")
    for key in sorted(value.keys() - needed - optional):
        raise InvalidValue(f"{path}.{key}", "no such key in a price")
    return value


def _amount(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_PRICE:
        raise InvalidValue(path, f"an integer from 0 to {MAX_PRICE} is needed: millionths for a million tokens")
    return value
