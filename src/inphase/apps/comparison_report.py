"""The HTML report of a comparison: one page that holds its style, charts and images, from a Jinja2 template."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from inphase.pose.body import ANGLES
from inphase.storage.errors import import_extra

if TYPE_CHECKING:
    from inphase.apps.comparison import AngleDifference, Comparison

TEMPLATE = "comparison.html.j2"


def require_templates() -> None:
    """Raise `MissingExtraError` if the library that fills HTML templates is not installed."""
    import_extra("jinja2", extra="compare")


def describe_comparison(comparison: "Comparison", stills: Sequence[tuple[Image.Image, Image.Image]]) -> dict[str, Any]:
    """Prepare everything that the template shows."""
    totals = [sum(each.seconds[side] for each in comparison.phases) for side in (0, 1)]
    differences = comparison.angles()
    return {
        "title": f"{comparison.student.name} beside {comparison.pro.name}",
        "comparison": comparison,
        "totals": totals,
        "ratio": totals[1] / totals[0] if totals[0] else float("nan"),
        "bars": _tempo_bars(comparison),
        "speed": _speed_chart(comparison),
        "angles": [{"summary": each, "chart": _angle_chart(comparison, each)} for each in differences],
        "positions": [
            {
                "position": position,
                "stills": [_data_url(still) for still in pair],
                "angles": sorted(
                    ((name, *values) for name, values in comparison.angles_at(position).items()),
                    key=lambda row: -abs(row[3]) if np.isfinite(row[3]) else 1.0,
                ),
            }
            for position, pair in zip(comparison.positions, stills, strict=True)
        ],
    }


def _tempo_bars(comparison: "Comparison") -> list[dict[str, Any]]:
    """Lay out the phases of both videos as bars on one scale of seconds."""
    sides = [[each.seconds[side] for each in comparison.phases] for side in (0, 1)]
    longest = max(*map(sum, sides), 1e-9)
    names = (comparison.pro.name, comparison.student.name)
    return [
        {
            "name": name,
            "seconds": sum(lengths),
            "parts": [
                {"label": phase.label, "seconds": length, "width": 100 * length / longest}
                for phase, length in zip(comparison.phases, lengths, strict=True)
            ],
        }
        for name, lengths in zip(names, sides, strict=True)
    ]


def _speed_chart(comparison: "Comparison") -> dict[str, Any]:
    """Draw the student's speed relative to the pro's on a logarithmic scale, at least from a half to double."""
    inside = _inside_span(comparison)
    values = np.log2(np.where(inside, comparison.speed, np.nan))
    reach = int(np.ceil(max(1.0, float(np.nanmax(np.abs(values), initial=1.0)))))
    steps = range(-reach, reach + 1)
    ticks = [(float(k), f"{2**k}×" if k >= 0 else f"1/{2**-k}×") for k in steps]
    return _chart(comparison, {"student": values}, low=-reach, high=reach, ticks=ticks, base=0.0)


def _angle_chart(comparison: "Comparison", summary: "AngleDifference") -> dict[str, Any]:
    """Draw one angle of both videos at equal phase, and mark where the difference is largest."""
    number, inside = ANGLES.index(summary.name), _inside_span(comparison)
    student = np.where(inside, comparison.student_angles[:, number], np.nan)
    # A slope that passes 90 degrees returns at −90: the student's is drawn beside the pro's, which may leave a gap.
    pro = np.where(inside, comparison.pro_angles[:, number], np.nan)
    known = np.concatenate([pro, student])
    known = known[np.isfinite(known)]
    step = next(step for step in (5, 10, 15, 30, 45, 60, 90) if np.ptp(known) <= 4 * step or step == 90)
    low, high = step * np.floor(known.min() / step), step * np.ceil(known.max() / step)
    high = max(high, low + step)
    ticks = [(float(value), f"{value:.0f}°".replace("-", "−")) for value in np.arange(low, high + 1, step)]
    dots = [(summary.pro_second, angle) for angle in (summary.pro_angle, summary.student_angle)]
    return _chart(comparison, {"pro": pro, "student": student}, low=low, high=high, ticks=ticks, dots=dots)


def _inside_span(comparison: "Comparison") -> NDArray[np.bool_]:
    start, end = comparison.span
    return np.asarray((comparison.clock >= start - 1e-6) & (comparison.clock <= end + 1e-6))


def _chart(
    comparison: "Comparison",
    lines: dict[str, NDArray[np.float64]],
    *,
    low: float,
    high: float,
    ticks: Sequence[tuple[float, str]],
    base: float | None = None,
    dots: Sequence[tuple[float, float]] = (),
) -> dict[str, Any]:
    """Lay out curves over the pro's seconds, in per cent of the width and of the height of a chart."""
    start, end = comparison.span
    across = 100 * (comparison.clock - start) / max(end - start, 1e-9)

    def down(value: Any) -> Any:
        return 100 * (high - value) / (high - low)

    return {
        "lines": {name: _path(across, down(values)) for name, values in lines.items()},
        "ticks": [(down(value), text) for value, text in ticks],
        "marks": [100 * (each.pro - start) / max(end - start, 1e-9) for each in comparison.positions],
        "base": None if base is None else down(base),
        "dots": [(100 * (second - start) / max(end - start, 1e-9), down(value)) for second, value in dots],
    }


def _path(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    """Write a curve as the path of an SVG; a NaN interrupts it, and so does a jump from one edge to the other."""
    known = np.isfinite(y)
    joined = known[1:] & known[:-1] & (np.abs(np.diff(y)) < 60)
    pieces = []
    for k in np.flatnonzero(known):
        pieces.append(f"{'L' if k and joined[k - 1] else 'M'}{x[k]:.2f} {y[k]:.2f}")
    return "".join(pieces)


def fill_template(**content: Any) -> str:
    """Fill the HTML template; names and labels are escaped."""
    jinja2 = import_extra("jinja2", extra="compare")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["degrees"] = lambda value: "–" if not np.isfinite(value) else f"{value:.0f}°".replace("-", "−")
    environment.filters["signed"] = lambda value: "–" if not np.isfinite(value) else f"{value:+.0f}°".replace("-", "−")
    environment.filters["plain"] = lambda name: name.replace("_", " ")
    return str(environment.get_template(TEMPLATE).render(**content))


def _data_url(image: Image.Image) -> str:
    stored = io.BytesIO()
    image.save(stored, format="jpeg", quality=84)
    return f"data:image/jpeg;base64,{base64.b64encode(stored.getvalue()).decode()}"
