"""The result of comparing two videos: tempo, and joint angles at equal phase, in numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.apps.align_videos import Synchronization
from inphase.apps.comparison_files import write_comparison, write_students
from inphase.apps.verdict import Verdict
from inphase.media.recording import NamedVideo
from inphase.models.embedding import Embedding
from inphase.pose.body import ANGLES, angle_differences, joint_angles
from inphase.pose.pose import Pose
from inphase.progress import Progress, Summary, describe_left_out, ignore_progress

Seconds = NDArray[np.float64]
# Shorter differences are errors of the pose.
SUSTAINED_SECONDS = 0.08


@dataclass(frozen=True)
class KeyPosition:
    """A moment of the action in both videos, in seconds; `confidence` from 0 to 1 of the student's, if transferred."""

    label: str
    pro: float
    student: float
    confidence: float | None = None


@dataclass(frozen=True)
class ComparedPhase:
    """A part of the action in both videos: start and end in seconds."""

    label: str
    pro: tuple[float, float]
    student: tuple[float, float]

    @property
    def seconds(self) -> tuple[float, float]:
        """Return how long it lasts: professional, student."""
        return self.pro[1] - self.pro[0], self.student[1] - self.student[0]

    @property
    def ratio(self) -> float:
        """Return the student's duration divided by the pro's; NaN where that is 0."""
        pro, student = self.seconds
        return student / pro if pro > 0 else np.nan


@dataclass(frozen=True)
class AngleDifference:
    """How an angle differs over the whole action, in degrees, and where it differs most."""

    name: str
    mean: float  # of the absolute difference
    largest: float  # student − professional
    pro_second: float  # where it is largest
    student_second: float
    pro_angle: float
    student_angle: float
    phase: str
    known: float  # fraction of the action in which both angles are known


@dataclass(frozen=True, eq=False)
class Comparison:
    """A student compared with a professional.

    `clock` [R] are the seconds of the pro's frames, `seconds` [R] those of the student at equal phase, and
    `speed` [R] is the student's speed relative to the pro's: 2 is twice as fast. `pro_angles` and
    `student_angles` [R, A] are degrees in the order of `inphase.pose.body.ANGLES`, NaN where joints are not visible.
    With `mirrored`, the student is shown and measured as a mirror image. `embeddings` and `synchronization` are of the
    professional and the student, in this order.
    """

    pro: NamedVideo
    student: NamedVideo
    clock: Seconds
    seconds: Seconds
    speed: NDArray[np.float64]
    positions: tuple[KeyPosition, ...]
    phases: tuple[ComparedPhase, ...]
    pro_angles: NDArray[np.float64]
    student_angles: NDArray[np.float64]
    warnings: tuple[str, ...]
    why: str
    poses: tuple[Pose | None, Pose | None]
    embeddings: tuple[Embedding, Embedding]
    synchronization: Synchronization
    mirrored: bool = False
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def differences(self) -> NDArray[np.float64]:
        """Return student − professional for every angle, [R, A] degrees."""
        return angle_differences(self.student_angles, self.pro_angles)

    @property
    def span(self) -> tuple[float, float]:
        """Return the seconds of the pro from the first key position to the last."""
        return self.positions[0].pro, self.positions[-1].pro

    def angles(self) -> list[AngleDifference]:
        """Summarize every angle that is known in both videos, the largest difference first.

        The largest difference must last for `SUSTAINED_SECONDS`, which excludes a joint misread in one frame.
        """
        inside = (self.clock >= self.span[0] - 1e-6) & (self.clock <= self.span[1] + 1e-6)
        step = float(np.median(np.diff(self.clock))) if len(self.clock) > 1 else 1.0
        steady = _running_median(self.differences, reach=max(1, round(SUSTAINED_SECONDS / 2 / step)))
        found = []
        for number, name in enumerate(ANGLES):
            values = np.where(inside, steady[:, number], np.nan)
            known = np.isfinite(values)
            if known.any():
                at = int(np.nanargmax(np.abs(values)))
                found.append(
                    AngleDifference(
                        name,
                        mean=float(np.abs(values[known]).mean()),
                        largest=float(values[at]),
                        pro_second=float(self.clock[at]),
                        student_second=float(self.seconds[at]),
                        pro_angle=float(self.pro_angles[at, number]),
                        student_angle=float(self.student_angles[at, number]),
                        phase=self.phase_at(float(self.clock[at])),
                        known=float(known.sum() / inside.sum()),
                    )
                )
        return sorted(found, key=lambda each: -abs(each.largest))

    def phase_at(self, second: float) -> str:
        """Name the phase at a second of the pro; "" between phases."""
        inside = (each.label for each in self.phases if each.pro[0] - 1e-6 <= second <= each.pro[1] + 1e-6)
        return next(inside, "")

    def angles_at(self, position: KeyPosition) -> dict[str, tuple[float, float, float]]:
        """Return professional, student and difference of every angle at a key position, NaN where not known."""
        pro, student = (
            np.full((1, len(ANGLES)), np.nan) if pose is None else joint_angles(pose).at(np.array([second]))
            for pose, second in zip(self.poses, (position.pro, position.student), strict=True)
        )
        rows = zip(ANGLES, pro[0], student[0], angle_differences(student, pro)[0], strict=True)
        return {name: (float(a), float(b), float(c)) for name, a, b, c in rows}

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write report.html, comparison.json, comparison.csv, positions.png, aligned.mp4 and a playback."""
        return write_comparison(self, Path(folder), progress or ignore_progress)

    def summary(self) -> Summary:
        """Return the tempo of every phase, and the angles that differ most."""
        rows = [
            (
                each.label,
                *(f"{seconds:.2f}" for seconds in each.seconds),
                f"{each.ratio:.2f}" if each.ratio == each.ratio else "–",
            )
            for each in self.phases
        ]
        most = [
            f"{each.name.replace('_', ' ')} {each.largest:+.0f}° at {each.pro_second:.2f} s"
            for each in self.angles()[:3]
        ]
        about = f"Largest differences in the picture plane, at seconds of {self.pro.name}"
        lines = [self.why, *([f"{about}: {', '.join(most)}."] if most else [])]
        title = f"{self.student.name} beside {self.pro.name}"
        return Summary(lines, self.warnings, title, ("phase", ">pro, s", ">student, s", ">student ÷ pro"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON-ready values: seconds, degrees, and None where an angle is not known."""
        total = [sum(each.seconds[side] for each in self.phases) for side in (0, 1)]
        phases = [
            {
                "label": each.label,
                "pro": {"start": each.pro[0], "end": each.pro[1], "seconds": each.seconds[0]},
                "student": {"start": each.student[0], "end": each.student[1], "seconds": each.seconds[1]},
                "pro_percent": _number(100 * each.seconds[0] / total[0] if total[0] else np.nan),
                "student_percent": _number(100 * each.seconds[1] / total[1] if total[1] else np.nan),
                "ratio": _number(each.ratio),
            }
            for each in self.phases
        ]
        positions = [
            {
                "label": each.label,
                "pro": each.pro,
                "student": each.student,
                "confidence": each.confidence,
                "angles": {
                    name: dict(zip(("pro", "student", "difference"), map(_number, values), strict=True))
                    for name, values in self.angles_at(each).items()
                },
            }
            for each in self.positions
        ]
        return {
            "pro": {"name": self.pro.name, "path": str(self.pro.path)},
            "student": {"name": self.student.name, "path": str(self.student.path), "mirrored": self.mirrored}
            | {"span": self.student.span},
            "why": self.why,
            **self.verdict.to_dict(),
            "warnings": list(self.warnings),
            "angles_are": "in the picture plane, in degrees",
            "phases": phases,
            "positions": positions,
            "largest_differences": [
                {key: _number(value) if isinstance(value, float) else value for key, value in vars(each).items()}
                for each in self.angles()
            ],
            "curves": {
                "pro_seconds": self.clock.tolist(),
                "student_seconds": self.seconds.tolist(),
                "speed": self.speed.tolist(),
                "angles": {
                    name: {"pro": _numbers(self.pro_angles[:, k]), "student": _numbers(self.student_angles[:, k])}
                    for k, name in enumerate(ANGLES)
                },
            },
        }


@dataclass(frozen=True, eq=False)
class ComparedStudents:
    """Several students compared with one professional; `left_out` gives the reason for every video without result."""

    pro: NamedVideo
    comparisons: tuple[Comparison, ...]
    left_out: Mapping[str, str]

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write students.csv and report.html, and everything about each student into a folder of its own."""
        return write_students(self, Path(folder), progress or ignore_progress)

    def summary(self) -> Summary:
        """Return one row for each student: the verdict, the duration, and the angle that differs most."""
        rows = []
        for each in self.comparisons:
            pro, student = (sum(phase.seconds[side] for phase in each.phases) for side in (0, 1))
            angles = each.angles()
            most = f"{angles[0].name.replace('_', ' ')} {angles[0].largest:+.0f}°" if angles else ""
            verdict = (each.verdict.judgment or "").replace("_", " ")
            rows.append((each.student.name, verdict, f"{student:.2f}", f"{student / pro:.2f}" if pro else "", most))
        warnings = [f"{each.student.name}: {text}" for each in self.comparisons for text in each.warnings]
        columns = ("student", "verdict", ">seconds", ">student ÷ pro", "largest difference")
        title = f"students beside {self.pro.name}"
        return Summary([], [*describe_left_out(self.left_out), *warnings], title, columns, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return all comparisons as JSON-ready values."""
        students = [each.to_dict() for each in self.comparisons]
        return {"pro": str(self.pro.path), "students": students, "left_out": dict(self.left_out)}


def _running_median(values: NDArray[np.float64], *, reach: int) -> NDArray[np.float64]:
    """Take the median of every value [R, A] and its neighbors, NaN where a neighbor is not known."""
    padded = np.pad(values, ((reach, reach), (0, 0)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1, axis=0)
    return np.asarray(np.median(windows, axis=-1))


def _number(value: float) -> float | None:
    """Convert to a JSON number, or None for NaN."""
    return float(value) if np.isfinite(value) else None


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    return [_number(value) for value in values]
