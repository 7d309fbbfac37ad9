"""Compare how two people perform the same action: tempo, and joint angles at equal phase.

The professional is the reference: the alignment maps its times to seconds of the student. Every difference
is student minus professional. Angles are measured in the picture plane (`inphase.pose.body`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.align.consensus import medians_of, posterior
from inphase.align.matching import align_with_itself, match
from inphase.align.path import Alignment, smooth_time_map
from inphase.apps.align_videos import Synchronization
from inphase.apps.comparison import ComparedPhase, ComparedStudents, Comparison, KeyPosition
from inphase.apps.labels import Event, Labels, labels_of
from inphase.apps.sessions import cut_sessions
from inphase.apps.transfer_labels import PLACING_TEMPERATURE, carry_labels
from inphase.apps.verdict import UNSURE, Verdict, equalize_tempo, judge
from inphase.media.listing import videos_in
from inphase.media.recording import NamedVideo, open_recordings
from inphase.models.embed_videos import Model, add_poses, embed_each, embed_videos
from inphase.models.embedding import Embedding
from inphase.models.encoder import Encoder, ModalityChoice
from inphase.models.joint_encoder import JointEncoder, add_motion_energy
from inphase.models.modality import embed_pose
from inphase.pose.body import ANGLES, facing, joint_angles, mirror_pose, smooth_points, view_angles
from inphase.pose.estimator import DEFAULT_ESTIMATOR
from inphase.pose.pose import Pose
from inphase.progress import Progress
from inphase.storage.cache import open_cache
from inphase.storage.errors import MediaError

# Changes of tempo shorter than this many seconds are noise of the alignment.
SMOOTH_SECONDS = 0.4
# Speed of a student whose time stands still, as in a video of one frame.
MAX_SPEED = 10.0
# Costs of a pair up to which every frame is placed by the median of all paths; beyond, by the cheapest path.
MAX_POSTERIOR_CELLS = 4_000_000
# Two views differ if the trunk is turned to the camera by this many degrees more in one than in the other.
MAX_VIEW_DEGREES = 30.0
# Hands that move to opposite sides of the picture: their correlation over equal phases.
MIRRORED_CORRELATION = -0.5
# A phase that begins within this many seconds of the end of another follows it without a gap.
SAME_MOMENT_SECONDS = 0.02

Seconds = NDArray[np.float64]
LabelTable = Path | str | Labels | None


def compare_videos(
    student: Path | str,
    pro: Path | str,
    *,
    labels: LabelTable = None,
    student_labels: LabelTable = None,
    phases: int = 4,
    mirror: bool = False,
    model: Model = None,
    modality: ModalityChoice = "auto",
    fps: float | None = None,
    cache: Path | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> Comparison:
    """Compare a student with a professional who perform the same action.

    `labels` are those of the professional (`inphase.apps.labels` describes the tables); events are key positions, and
    the parts between them phases. They are transferred to the student, unless `student_labels` are given, which must
    have the same names. Without labels, the professional's video is cut into `phases` parts of equal length. `mirror`
    compares the mirror image of the student: a left-handed person with a right-handed one. `model`, `modality`, `fps`,
    `cache` and `pose_estimator` mean the same as for `align_videos`.
    """
    recordings = open_recordings([pro, student])
    marks = read_marks(recordings[0], labels, phases=phases)
    theirs = None if student_labels is None else read_marks(recordings[1], student_labels, phases=phases)
    kept = open_cache(cache)
    if mirror and model is None and modality == "auto":
        modality = "pose"  # of images there is no mirror image
    shared: dict[str, Any] = {"fps": fps, "cache": kept, "pose_estimator": pose_estimator, "progress": progress}
    embedded = embed_videos([each.path for each in recordings], model=model, modality=modality, **shared)
    x, y = add_poses(
        [each.path for each in recordings],
        embedded.embeddings,
        cache=kept,
        pose_estimator=pose_estimator,
        progress=progress,
    )
    y = _mirrored(y, embedded.encoder, recordings[1]) if mirror else y
    embedded = equalize_tempo(replace(embedded, embeddings=[x, y]), [each.name for each in recordings], reference=0)
    sides = list(zip(recordings, add_motion_energy(embedded.encoder, embedded.embeddings), strict=True))
    comparison = compare_embeddings(*sides, marks=marks, student_marks=theirs)
    return replace(comparison, why=embedded.why, mirrored=mirror)


def compare_students(
    students: Sequence[Path | str],
    pro: Path | str,
    *,
    session: bool = False,
    labels: LabelTable = None,
    phases: int = 4,
    mirror: bool = False,
    model: Model = None,
    modality: ModalityChoice = "auto",
    fps: float | None = None,
    cache: Path | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> ComparedStudents:
    """Compare students, given as video files or folders of them, with one professional, like `compare_videos`.

    With `session`, recordings that are longer than the pro's are cut into their repetitions, each a student of its own
    (`cut_sessions`). A video that cannot be used is left out with the reason, and does not affect the others. Labels
    are always carried over to the students.
    """
    paths = [path for path in videos_in([Path(each) for each in students]) if path.resolve() != Path(pro).resolve()]
    if not paths:
        where = f"in {', '.join(map(str, students))} " if students else ""
        raise ValueError(f"no video of a student {where}to compare: name video files or folders of them")
    (reference,) = open_recordings([pro])
    marks = read_marks(reference, labels, phases=phases)
    kept = open_cache(cache)
    if mirror and model is None and modality == "auto":
        modality = "pose"  # of images there is no mirror image
    shared: dict[str, Any] = {"fps": fps, "cache": kept, "pose_estimator": pose_estimator, "progress": progress}
    embedded = embed_videos([reference.path], model=model, modality=modality, **shared)
    others, failed = embed_each(paths, encoder=embedded.encoder, **shared)
    both = add_poses(
        [reference.path, *others],
        [embedded.embeddings[0], *others.values()],
        cache=kept,
        pose_estimator=pose_estimator,
        progress=progress,
    )
    left_out = {str(path): reason for path, reason in failed.items()}
    recordings = [reference, *open_recordings(list(others))]
    if session:
        recordings, both = cut_sessions(recordings, both, left_out)
    comparisons = []
    for recording, embedding in zip(recordings[1:], both[1:], strict=True):
        try:
            y = _mirrored(embedding, embedded.encoder, recording) if mirror else embedding
            pair = replace(embedded, embeddings=[both[0], y])
            if not session:
                pair = equalize_tempo(pair, [reference.name, recording.name], reference=0)
            x, y = add_motion_energy(embedded.encoder, pair.embeddings)
            made = compare_embeddings((reference, x), (recording, y), marks=marks)
        except (ValueError, MediaError) as error:
            left_out[str(recording.path)] = str(error)
            continue
        comparisons.append(replace(made, why=pair.why, mirrored=mirror))
    if not comparisons:
        raise ValueError(f"none of {len(paths)} students can be compared ({next(iter(left_out.values()))})")
    return ComparedStudents(reference, tuple(comparisons), left_out)


def compare_embeddings(
    pro: tuple[NamedVideo, Embedding],
    student: tuple[NamedVideo, Embedding],
    *,
    marks: "Marks",
    student_marks: "Marks | None" = None,
) -> Comparison:
    """Compare two embedded videos; angles are those of the poses that the embeddings hold."""
    (pro_video, x), (student_video, y) = pro, student
    alignment = match(x, y)
    verdict = judge(x, y, alignment)
    seconds = map_seconds(x, y, alignment)
    speed = np.gradient(x.times) / np.maximum(np.gradient(seconds), 1e-9) if len(x) > 1 else np.ones(len(x))
    if student_marks is None:
        given = Labels(events=marks.moments)
        found = carry_labels(given, x, y, y_end=student_video.end, alignment=alignment, verdict=verdict)
        placed = _place(marks, found)
    else:
        placed = _pair(marks, student_marks)
    poses = x.pose, y.pose
    pro_angles, student_angles = (
        np.full((len(x), len(ANGLES)), np.nan) if pose is None else joint_angles(pose).at(at)
        for pose, at in zip(poses, (x.times, seconds), strict=True)
    )
    phases = [
        ComparedPhase(label, (placed[a].pro, placed[b].pro), (placed[a].student, placed[b].student))
        for label, a, b in marks.phases
    ]
    return Comparison(
        pro_video,
        student_video,
        clock=x.times,
        seconds=seconds,
        speed=np.minimum(speed, MAX_SPEED),
        positions=tuple(placed),
        phases=tuple(phases),
        pro_angles=pro_angles,
        student_angles=student_angles,
        warnings=(*_doubts(verdict), *_warnings(poses, x.times, seconds, placed)),
        verdict=verdict,
        why="",
        poses=poses,
        embeddings=(x, y),
        synchronization=Synchronization(
            0, x.times, np.stack([x.times, seconds], axis=1), (align_with_itself(len(x)), alignment)
        ),
    )


def map_seconds(x: Embedding, y: Embedding, alignment: Alignment) -> Seconds:
    """Map the frames of x to seconds of y by the median of all paths, smoothed; never decreasing."""
    if len(x) * len(y) <= MAX_POSTERIOR_CELLS:
        mass = posterior(x, y, np.arange(len(x)), alignment=alignment, gamma=PLACING_TEMPERATURE)
        seconds = np.maximum.accumulate(medians_of(y.times, mass))
        seconds[0], seconds[-1] = y.times[0], y.times[-1]
    else:
        seconds = alignment.time_map(x.times, y.times)
    return smooth_time_map(x.times, seconds, period=SMOOTH_SECONDS)


@dataclass(frozen=True)
class Marks:
    """Labeled moments of a video, in seconds, and the phases between two of them, by their numbers."""

    moments: tuple[Event, ...]
    phases: tuple[tuple[str, int, int], ...]


def read_marks(video: NamedVideo, labels: LabelTable, *, phases: int) -> Marks:
    """Read key positions and phases from labels; without labels, cut the video into `phases` parts of equal length."""
    end = video.properties.duration
    if labels is None:
        if phases < 1:
            raise ValueError(f"phases must be at least 1, got {phases}")
        last = end - 1 / video.properties.fps
        moments = [Event(last * k / phases, f"{100 * k / phases:.0f} %") for k in range(phases + 1)]
        return _between(moments)
    labels = labels_of(video, labels)
    if not labels.segments:
        given = list(labels.events)
        return _between(given if len(given) > 1 else [Event(0.0, "start"), *given, Event(end, "end")])
    moments, spans = [], []
    for each in labels.segments:
        if not moments or abs(moments[-1].second - each.start) > SAME_MOMENT_SECONDS:
            moments.append(Event(each.start, each.label))
        else:  # the end of one phase is the start of the next, which names it
            moments[-1] = Event(each.start, each.label)
        spans.append((each.label, len(moments) - 1, len(moments)))
        moments.append(Event(each.end, f"end of {each.label}"))
    return Marks(tuple(moments), tuple(spans))


def _between(moments: Sequence[Event]) -> Marks:
    spans = [(f"{a.label} → {b.label}", k, k + 1) for k, (a, b) in enumerate(pairwise(moments))]
    return Marks(tuple(moments), tuple(spans))


def _place(marks: Marks, found: Labels) -> list[KeyPosition]:
    """Pair the key positions with those transferred to the student, which follow each other in the same order."""
    placed = np.maximum.accumulate([each.second for each in found.events])
    return [
        KeyPosition(mark.label, mark.second, float(second), each.confidence)
        for mark, each, second in zip(marks.moments, found.events, placed, strict=True)
    ]


def _pair(marks: Marks, others: Marks) -> list[KeyPosition]:
    """Pair the labels of both videos by name and order."""
    names, theirs = ([each.label for each in side.moments] for side in (marks, others))
    if names != theirs:
        lacking = ", ".join((Counter(names) - Counter(theirs)) or names)
        raise ValueError(f"the student's labels ({', '.join(theirs)}) differ from the pro's: check {lacking}")
    pairs = zip(marks.moments, others.moments, strict=True)
    return [KeyPosition(mine.label, mine.second, other.second) for mine, other in pairs]


def _mirrored(embedding: Embedding, encoder: Encoder, video: NamedVideo) -> Embedding:
    """Embed the mirror image of a pose; images, which are not mirrored, have no part in it."""
    if isinstance(encoder, JointEncoder) and embedding.pose is not None:
        pose = mirror_pose(embedding.pose)
        return encoder.join(None, embed_pose(encoder.pose, pose), visible=pose.joints13()[1])
    if embedding.pose is None or encoder.modality != "pose":
        raise ValueError(f"{video.path} was embedded by images, and a mirror image needs body pose: use modality pose")
    return embed_pose(encoder, mirror_pose(embedding.pose))


def _doubts(verdict: Verdict) -> Iterator[str]:
    """Yield the reasons of a doubtful alignment."""
    if verdict.judgment in ("check", "do_not_trust"):
        worth = "Do not trust" if verdict.judgment == "do_not_trust" else "Check"
        reasons = " ".join(verdict.reasons) or "The videos may not show the same action, or not be aligned well."
        for word, role in (("The video ", "The student's video "), ("he reference", "he pro's video")):
            reasons = reasons.replace(word, role)
        yield f"{worth} this comparison. {reasons}"


def _warnings(
    poses: tuple[Pose | None, Pose | None], clock: Seconds, seconds: Seconds, placed: Sequence[KeyPosition]
) -> Iterator[str]:
    """Yield a sentence for each reason to doubt the comparison."""
    inner = [
        each for each in placed if clock[0] < each.pro < clock[-1] - SAME_MOMENT_SECONDS
    ]  # ends are matched as such
    doubtful = [each.label for each in inner if each.confidence is not None and each.confidence < UNSURE]
    if doubtful:
        them = "it" if len(doubtful) == 1 else "them"
        names = ", ".join(doubtful)
        yield f"In the student's video {names} may be misplaced (low confidence): check {them}, or label {them}."
    pro, student = poses
    if pro is None or student is None:
        who = " and ".join(name for name, pose in (("pro", pro), ("student", student)) if pose is None)
        yield f"No person was found in the video of the {who}: only the tempo is compared."
        return
    views = [np.interp(at, pose.times, view_angles(pose)) for pose, at in ((pro, clock), (student, seconds))]
    turned = views[1] - views[0]
    sides = facing(pro), facing(student)
    opposite = set(sides) == {"left", "right"}
    typical = float(np.nanmedian(turned)) if np.isfinite(turned).any() else 0.0
    if opposite or abs(typical) > MAX_VIEW_DEGREES:
        seen = [describe_view(view, side) for view, side in zip(views, sides, strict=True)]
        advice = "use the mirror option if one is left-handed" if opposite else "film both from the same side"
        yield (f"The views differ (pro {seen[0]}, student {seen[1]}), and so do angles in the picture plane: {advice}.")
    elif moves_mirrored(pro, student, clock, seconds):
        yield "The hands move to opposite sides: use the mirror option if one is left-handed, otherwise omit it."


def describe_view(angles: NDArray[np.float64], side: str) -> str:
    """Describe the median view of a video in words."""
    known = angles[np.isfinite(angles)]
    if not len(known):
        return "unknown"
    turned = float(np.median(known))
    words = "from the front" if turned < 40 else "from the side" if turned < 140 else "from behind"
    return f"{words}, facing {side}" if side and 40 <= turned < 140 else words


def moves_mirrored(pro: Pose, student: Pose, clock: Seconds, seconds: Seconds) -> bool:
    """Report whether the hands of two people move to opposite sides of the picture at equal phase."""
    paths = []
    for pose, at in ((pro, clock), (student, seconds)):
        points = smooth_points(pose)
        hands, hips = ((points[f"left_{name}"] + points[f"right_{name}"])[:, 0] / 2 for name in ("wrist", "hip"))
        paths.append(np.interp(at, pose.times, hands - hips))
    known = np.isfinite(paths[0]) & np.isfinite(paths[1])
    if known.sum() < 3 or min(np.std(path[known]) for path in paths) < 1e-6:
        return False
    return bool(np.corrcoef(paths[0][known], paths[1][known])[0, 1] < MIRRORED_CORRELATION)
