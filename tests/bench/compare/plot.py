"""Plots as SVG, drawn by hand: bars and lines on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _LEFT, _RIGHT = 760, 190, 110
_BAR, _GAP, _TOP = 20, 8, 44
_OURS, _OTHER = "#1f6f5c", "#b9bec4"
_COLOURS = ("#1f6f5c", "#b5542a", "#4a63a8", "#8a6d1f", "#7a3f83", "#5b6068")


def bars(title: str, values: Mapping[str, float], shown: Mapping[str, str], ours: str) -> str:
    """One bar a name, shortest first; `shown` is what stands behind each."""
    names = sorted(values, key=lambda name: values[name])
    least = min(values.values()) / 2
    span = math.log(max(values.values()) / least)
    height = _TOP + len(names) * (_BAR + _GAP) + _GAP
    drawn = []
    for place, name in enumerate(names):
        y = _TOP + place * (_BAR + _GAP)
        width = (_WIDTH - _LEFT - _RIGHT) * math.log(values[name] / least) / span
        colour = _OURS if name == ours else _OTHER
        drawn.append(_text(_LEFT - 8, y + 15, name, "end"))
        drawn.append(f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>')
        drawn.append(_text(_LEFT + width + 6, y + 15, shown[name]))
    return _svg(height, f"{title} (logarithmic)", drawn)


def lines(title: str, places: Sequence[float], series: Mapping[str, Sequence[float]]) -> str:
    """One line a name over `places`, each relative to its own first value; both scales are logarithmic."""
    height, bottom = 340, 300
    first, last = math.log(places[0]), math.log(places[-1])
    ratios = {name: [value / values[0] for value in values] for name, values in series.items()}
    low = math.log(min(0.5, *(min(each) for each in ratios.values())))
    high = math.log(max(2.0, *(max(each) for each in ratios.values())))

    def x(value: float) -> float:
        return 60 + (_WIDTH - 60 - 170) * (math.log(value) - first) / ((last - first) or 1)

    def y(ratio: float) -> float:
        return bottom - (bottom - _TOP) * (math.log(ratio) - low) / (high - low)

    drawn = [f'<line x1="60" x2="{_WIDTH - 170}" y1="{y(1):.1f}" y2="{y(1):.1f}" stroke="#d5d8db"/>']
    for value in places:
        drawn.append(_text(x(value), bottom + 22, f"{value:,.0f}", "middle"))
    for ratio in (1.0, math.exp(high)):
        drawn.append(_text(52, y(ratio) + 4, f"{ratio:.1f}", "end"))
    for place, (name, each) in enumerate(ratios.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        points = " ".join(f"{x(p):.1f},{y(r):.1f}" for p, r in zip(places, each, strict=True))
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn.append(f'<rect x="{_WIDTH - 155}" y="{_TOP + place * 22}" width="12" height="12" fill="{colour}"/>')
        drawn.append(_text(_WIDTH - 137, _TOP + 11 + place * 22, name))
    return _svg(height, title, drawn)


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(height: int, title: str, drawn: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="13" fill="#222">'
    )
    back = f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>'
    named = f'<text x="12" y="26" font-size="15" font-weight="bold">{escape(title)}</text>'
    return "\n".join([head, back, named, *drawn, "</svg>", ""])
