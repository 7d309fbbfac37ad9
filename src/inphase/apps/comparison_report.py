"""The report of a comparison: a page that holds its style, charts and images, and a sheet of key positions."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from inphase.media.canvas import choose_font
from inphase.pose.body import ANGLES
from inphase.storage.errors import import_extra

if TYPE_CHECKING:
    from inphase.apps.comparison import AngleDifference, Comparison

TEMPLATE = "comparison.html.j2"
# The sheet of key positions: positions in a row, and pixels around them.
SHEET_COLUMNS, SHEET_GAP, SHEET_TEXT = 5, 12, 18
SHEET_PAPER, SHEET_INK, SHEET_MUTED = (255, 255, 255), (22, 26, 34), (91, 100, 116)


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


def describe_student(comparison: "Comparison") -> dict[str, str]:
    """Summarize a student in one row of a table."""
    pro, student = (sum(each.seconds[side] for each in comparison.phases) for side in (0, 1))
    angles = comparison.angles()
    row = {
        **dict(zip(("student", "file", "start", "end"), comparison.student.row, strict=True)),
        "verdict": comparison.verdict.judgment or "",
        "seconds": f"{student:.3f}",
        "pro_seconds": f"{pro:.3f}",
        "ratio": f"{student / pro:.3f}" if pro else "",
    }
    row |= {f"ratio {each.label}": f"{each.ratio:.3f}" for each in comparison.phases}
    row["mean_difference"] = f"{np.mean([each.mean for each in angles]):.1f}" if angles else ""
    largest = angles[0] if angles else None
    row["largest_difference"] = f"{largest.largest:.1f}" if largest else ""
    row["largest_angle"] = largest.name if largest else ""
    row["largest_at"] = f"{largest.pro_second:.3f}" if largest else ""
    row["warnings"] = " ".join(comparison.warnings)
    return row


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
    environment.filters["ratio"] = lambda text: "–" if text in ("", "nan") else f"{float(text):.2f}"
    environment.filters["plain"] = lambda name: name.replace("_", " ")
    return str(environment.get_template(TEMPLATE).render(**content))


def _data_url(image: Image.Image) -> str:
    stored = io.BytesIO()
    image.save(stored, format="jpeg", quality=84)
    return f"data:image/jpeg;base64,{base64.b64encode(stored.getvalue()).decode()}"


def draw_sheet(comparison: "Comparison", stills: Sequence[tuple[Image.Image, Image.Image]]) -> Image.Image:
    """Draw all key positions on one page: the pro above, the student below."""
    width, height = stills[0][0].size
    columns = min(SHEET_COLUMNS, len(stills))
    bands = -(-len(stills) // columns)
    band = 2 * height + 3 * SHEET_TEXT + 4 * SHEET_GAP
    sheet = Image.new("RGB", (SHEET_GAP + columns * (width + SHEET_GAP), SHEET_GAP + bands * band), SHEET_PAPER)
    pen = ImageDraw.Draw(sheet)
    for number, (position, pair) in enumerate(zip(comparison.positions, stills, strict=True)):
        left = SHEET_GAP + number % columns * (width + SHEET_GAP)
        top = SHEET_GAP + number // columns * band
        _write(pen, position.label, left, top, width, SHEET_INK)
        names = (comparison.pro.name, comparison.student.name)
        for name, second, still in zip(names, (position.pro, position.student), pair, strict=True):
            top += SHEET_TEXT + SHEET_GAP // 2
            sheet.paste(still, (left, top))
            top += height + SHEET_GAP // 2
            _write(pen, f"{second:.2f} s · {name}", left, top, width, SHEET_MUTED)
    return sheet


def _write(pen: ImageDraw.ImageDraw, text: str, left: int, top: int, width: int, color: tuple[int, int, int]) -> None:
    """Write a text, shortened to a width."""
    shown, font = choose_font(text, SHEET_TEXT - 3)
    while len(shown) > 1 and font.getlength(shown) > width:
        shown = shown[:-2] + "…"
    pen.text((left, top), shown, fill=color, font=font)
