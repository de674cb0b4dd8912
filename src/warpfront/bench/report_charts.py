"""Pictures of the report page as SVG text: roofline, scaling, bars against peers, history.

Colours are CSS classes (``s0``, ``s1``, …), so that light and dark follow the page. Every picture has a title that says
what it shows, every point a title with its figures and a link to its row of the table, which holds the same as text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Bar", "Point", "Series", "bars", "curves", "duration", "roofline"]

WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 74, 18, 14, 46
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True)
class Point:
    """One measured point: where it lies, what it says, and the table row it comes from."""

    x: float
    y: float
    text: str
    link: str


@dataclass(frozen=True)
class Series:
    """Points of one contender."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Bar:
    """How many times faster we are than one peer in one row."""

    label: str
    factor: float
    text: str
    link: str


def duration(seconds: float) -> str:
    """Return a time with three digits and a unit."""
    scale, unit = next((u for u in UNITS if seconds >= u[0]), UNITS[-1])
    return f"{seconds / scale:.3g} {unit}"


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten from ``low`` to ``high``, or 1, 2 and 5 times them where that gives few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    tens = [10.0**k for k in range(first, last + 1) if low <= 10.0**k <= high]
    if len(tens) >= 3:
        return tens[:: max(1, len(tens) // 7)]
    return [f * 10.0**k for k in range(first, last + 1) for f in (1, 2, 5) if low <= f * 10.0**k <= high]


def _number(value: float) -> str:
    for scale, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:g}{letter}"
    return f"{value:g}"


class _Frame:
    """Logarithmic axes and what is drawn in them."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], x_label: str, y_label: str) -> None:
        self.x_low, self.x_high = min(xs) / 1.3, max(xs) * 1.3
        self.y_low, self.y_high = min(ys) / 1.5, max(ys) * 1.5
        self.x_label, self.y_label = x_label, y_label
        self.parts: list[str] = []

    def x(self, value: float) -> float:
        share = math.log(value / self.x_low) / math.log(self.x_high / self.x_low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = math.log(value / self.y_low) / math.log(self.y_high / self.y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def axes(self, y_text: str = "number") -> None:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        for tick in _ticks(self.x_low, self.x_high):
            at = self.x(tick)
            self.parts.append(f'<path class="grid" d="M{at:.1f} {TOP}V{bottom}"/>')
            self.parts.append(
                f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{_number(tick)}</text>'
            )
        for tick in _ticks(self.y_low, self.y_high):
            at = self.y(tick)
            label = duration(tick) if y_text == "time" else _number(tick)
            self.parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{right}"/>')
            self.parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
        self.parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>')
        middle = (LEFT + right) / 2
        self.parts.append(
            f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(self.x_label)}</text>'
        )
        self.parts.append(
            f'<text transform="translate(14 {(TOP + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.y_label)}</text>"
        )

    def point(self, at: Point, color: int) -> None:
        self.parts.append(
            f'<a href="#{at.link}"><circle class="s{color}" cx="{self.x(at.x):.1f}" cy="{self.y(at.y):.1f}" r="5">'
            f"<title>{escape(at.text)}</title></circle></a>"
        )

    def line(self, points: Sequence[tuple[float, float]], style: str) -> None:
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline class="{style}" points="{path}"/>')

    def svg(self, title: str) -> str:
        return _svg(title, WIDTH, HEIGHT, self.parts)


def _svg(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        + "".join(parts)
        + "</svg>"
    )


def _legend(names: Sequence[str]) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true"><circle class="s{k % 8}" cx="6" cy="6" '
        f'r="5"/></svg> {escape(name)}</li>'
        for k, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def roofline(
    title: str,
    series: Sequence[Series],
    bandwidth: tuple[float, str] | None,
    peaks: Sequence[tuple[float, str]],
) -> str:
    """Draw operations a second over operations a byte, under the ceilings that were measured.

    Parameters
    ----------
    title : str
    series : sequence of Series
        x operations per byte, y operations per second.
    bandwidth : (bytes per second, label) or None
        Of a copy.
    peaks : sequence of (operations per second, label)
        Of matrix products.
    """
    xs = [p.x for s in series for p in s.points]
    ys = [p.y for s in series for p in s.points] + [peak for peak, _ in peaks]
    if bandwidth is not None:
        ys += [bandwidth[0] * min(xs)]
        xs += [peak / bandwidth[0] for peak, _ in peaks]
    frame = _Frame(xs, ys, "operations per byte", "operations per second")
    frame.axes()
    top = max((peak for peak, _ in peaks), default=max(ys))
    if bandwidth is not None:
        speed, label = bandwidth
        knee = min(top / speed, frame.x_high)
        low = max(frame.x_low, frame.y_low / speed)
        frame.line([(low, speed * low), (knee, speed * knee)], "roof")
        frame.parts.append(
            f'<text class="note" x="{frame.x(low) + 8:.0f}" y="{frame.y(speed * low) - 14:.0f}">{escape(label)}</text>'
        )
    for peak, label in peaks:
        start = frame.x_low if bandwidth is None else max(frame.x_low, min(peak / bandwidth[0], frame.x_high))
        frame.line([(start, peak), (frame.x_high, peak)], "roof")
        frame.parts.append(
            f'<text class="note" x="{WIDTH - RIGHT}" y="{frame.y(peak) - 5:.0f}" text-anchor="end">{escape(label)}</text>'
        )
    for k, one in enumerate(series):
        for at in one.points:
            frame.point(at, k % 8)
    return frame.svg(title) + _legend([one.name for one in series])


def curves(title: str, series: Sequence[Series], x_label: str, labels: Sequence[str] = ()) -> str:
    """Draw times over a size, or (with ``labels``, x counting from 1) over records in their order."""
    xs = [p.x for s in series for p in s.points]
    ys = [p.y for s in series for p in s.points]
    frame = _Frame(xs, ys, x_label, "time of a call")
    frame.axes("time")
    for k, one in enumerate(series):
        ordered = sorted(one.points, key=lambda p: p.x)
        frame.line([(p.x, p.y) for p in ordered], f"line l{k % 8}")
        for at in ordered:
            frame.point(at, k % 8)
    notes = f'<p class="note">{"; ".join(map(escape, labels))}</p>' if labels else ""
    return frame.svg(title) + _legend([one.name for one in series]) + notes


def bars(title: str, found: Sequence[Bar]) -> str:
    """Draw how many times faster we are, on a logarithmic scale around 1."""
    line, left = 22, 250
    height = TOP + line * len(found) + 30
    reach = max(1.5, *(max(bar.factor, 1 / bar.factor) for bar in found)) * 1.1
    width = WIDTH - left - 90

    def at(value: float) -> float:
        return left + 40 + width * (math.log(value) / math.log(reach) + 1) / 2

    parts = [f'<path class="axis" d="M{at(1):.1f} {TOP}V{height - 24}"/>']
    for k, bar in enumerate(found):
        y, one, end = TOP + k * line, at(1), at(bar.factor)
        style = "faster" if bar.factor >= 1 else "slower"
        parts.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(bar.label[:42])}</text>')
        parts.append(
            f'<a href="#{bar.link}"><rect class="{style}" x="{min(one, end):.1f}" y="{y + 3}" '
            f'width="{abs(end - one):.1f}" height="{line - 8}"><title>{escape(bar.text)}</title></rect></a>'
        )
        side, anchor = (end + 5, "start") if bar.factor >= 1 else (end - 5, "end")
        parts.append(f'<text x="{side:.1f}" y="{y + 14}" text-anchor="{anchor}">{bar.factor:.2f}</text>')
    parts.append(
        f'<text x="{at(1):.0f}" y="{height - 6}" text-anchor="middle">times the speed of the fastest right peer</text>'
    )
    return _svg(title, WIDTH, height, parts)
