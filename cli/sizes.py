"""Amounts as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from objstore.kinds import Kind

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def size(amount: int) -> str:
    """`812 bytes`, `4.0 KiB`, `1.7 GiB`."""
    value, unit = float(amount), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{amount:,} {_UNITS[0]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def by_kind(counts: Mapping[Kind, int]) -> str:
    """`3 messages, 1 call`; `nothing` where all are 0."""
    told = [f"{number:,} {kind.value}{'' if number == 1 else 's'}" for kind, number in counts.items() if number]
    return ", ".join(told) or "nothing"
