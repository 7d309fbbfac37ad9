"""Reconstruct the 3-D pose of a person at every frame of a video, from other people's videos of the same action."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.align.cost import find_period
from inphase.apps.alignment_files import add_video_file
from inphase.apps.pose3d.reconstruct import MIN_TRUST, reconstruct
from inphase.apps.pose3d.reconstruction_files import (
    draw_reconstruction,
    make_pose_track,
    make_skeleton_playback,
    write_reconstruction,
)
from inphase.apps.pose3d.views import (
    MIN_VIEWS,
    Performance,
    Reconstruction,
    choose_partners,
    embed_performance,
    gather,
)
from inphase.apps.sessions import describe_period
from inphase.data import DATASETS
from inphase.data.frame_source import select_joints
from inphase.data.video import Video
from inphase.media.recording import NamedVideo, open_recordings
from inphase.models import Encoder, load_shipped
from inphase.models.embed_videos import Model, embed_videos, estimate_poses, open_encoder
from inphase.models.embedding import rate_of
from inphase.models.encoder import ModalityChoice
from inphase.models.joint_encoder import JointEncoder
from inphase.playback import write_playback
from inphase.pose.pose import JOINTS13
from inphase.progress import Progress, Summary, describe_left_out, ignore_progress, stage_progress, summarize
from inphase.storage.cache import Cache, default_cache_folder
from inphase.storage.errors import MediaError
from inphase.storage.files import atomic_write, require_folder

# Other videos shown beside the query and the skeleton: six tiles in all.
MAX_SHOWN = 4
# Above this median error, in torso lengths, the views do not agree on one body.
MAX_ERROR = 0.2
# Cameras closer together than this, in degrees, leave depth to the usual proportions of a body.
MIN_SPREAD = 15.0


@dataclass(frozen=True, eq=False)
class PoseSequence:
    """The joints of one video, the (height, width) of its images, and its file where it has one."""

    performance: Performance
    size: tuple[int, int]
    recording: NamedVideo | None = None


@dataclass(frozen=True, eq=False)
class ReconstructedPose:
    """A reconstruction and the videos behind it: the query, the other views, and the seconds of each at its frames.

    `left_out` maps video files in which no person was found to the reason.
    """

    reconstruction: Reconstruction
    query: PoseSequence
    others: tuple[PoseSequence, ...]
    seconds: tuple[NDArray[np.float64], ...]
    left_out: Mapping[Path, str]

    def summary(self) -> Summary:
        """Return a line on the views and how well they agree, and the reasons to distrust them."""
        found = self.reconstruction
        mirrored = [name for name, flipped in zip(found.names, found.flipped, strict=True) if flipped]
        mirrors = f"; used as mirror images: {', '.join(mirrored)}" if mirrored else ""
        line = (
            f"{len(found.times):,} frames of {found.names[0]} from {len(found.names)} views, {found.views.min()} to "
            f"{found.views.max()} of them at each frame; median error {np.nanmedian(found.error):.2f} torso lengths"
            f"{mirrors}"
        )
        return Summary([line], [*describe_left_out(self.left_out), *self.warnings])

    @property
    def period(self) -> float | None:
        """Return the period of the body's motion in seconds, None unless it repeats."""
        found = self.reconstruction
        joints = found.joints3d.reshape(len(found.times), -1)
        return find_period(joints, rate=rate_of(found.times) or 1.0)

    @property
    def warnings(self) -> list[str]:
        """Return one sentence for each reason to distrust the result."""
        found = self.reconstruction
        ignored = [name for name, trust in zip(found.names, found.trust.mean(1), strict=True) if trust < MIN_TRUST]
        sentences = []
        if ignored:
            sentences.append(f"Hardly used, because they disagree with the other views: {summarize(ignored)}.")
        if (period := self.period) is not None:
            sentences.append(f"{describe_period(period)} Check them in the playback.")
        if np.nanmedian(found.error) > MAX_ERROR:
            sentences.append("The videos do not agree on one body: use others of the same action, with larger figures.")
        if found.spread < MIN_SPREAD:
            sentences.append(
                f"The cameras look along nearly the same line ({found.spread:.0f}° apart), so depth rests on the usual "
                "proportions of a body: add videos from other sides."
            )
        if found.views.min() < MIN_VIEWS:
            sentences.append(f"Some frames have fewer than {MIN_VIEWS} views that agree: do not trust their depth.")
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """Return names, times, joints [T, J, 3], errors and warnings as JSON-ready values."""
        found = self.reconstruction
        mirrored = [name for name, flipped in zip(found.names, found.flipped, strict=True) if flipped]
        return {
            "query": found.names[0],
            "views": list(found.names),
            "views_per_frame": found.views.tolist(),
            "mirrored": mirrored,
            "left_out": {str(path): reason for path, reason in self.left_out.items()},
            "median_error": float(np.nanmedian(found.error)),
            "warnings": self.warnings,
            "joint_names": list(found.joints),
            "times": found.times.tolist(),
            "joints": found.joints3d.tolist(),
        }

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write pose3d.npz, pose3d.png and a playback of the skeleton beside the query and the best views."""
        out, report = Path(folder), progress or ignore_progress
        require_folder(out)
        out.mkdir(parents=True, exist_ok=True)
        query = self.query.performance
        tracks = [make_pose_track(query, size=self.query.size, media=_add_media(out, self.query))]
        trusted = np.argsort(-self.reconstruction.trust[1:].mean(1))[:MAX_SHOWN].tolist()
        for done, index in enumerate(trusted):
            other, seconds = self.others[index], self.seconds[index]
            media = _add_media(out, other)
            tracks.append(
                make_pose_track(other.performance, size=other.size, media=media, query=query, seconds=seconds)
            )
            report("writing the playback", done + 1, len(trusted))
        write_reconstruction(out / "pose3d.npz", self.reconstruction)
        with atomic_write(out / "pose3d.png") as part:
            draw_reconstruction(self.reconstruction, query).save(part)
        write_playback(out, make_skeleton_playback(f"{query.name} in space", self.reconstruction, tracks))
        return [out / "pose3d.npz", out / "pose3d.png", out / "playback.json"]


def reconstruct_pose(
    videos: Sequence[Path | str] = (),
    *,
    model: Model = None,
    modality: ModalityChoice = "auto",
    data: str = "",
    root: Path | None = None,
    action: str = "",
    query: str = "",
    max_views: int = 20,
    fps: float = 30.0,
    flips: bool = True,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> ReconstructedPose:
    """Reconstruct the body in 3-D at every frame of the first video, from other videos of the same action.

    The others are aligned with the query, so that every frame of it has one view per video. Give video files, the query
    first, or a data set with keypoints (`data`, `root`, `action`, and the id of the `query` in it). `model` is a run
    folder, an encoder file or an `Encoder`; without one, `modality` chooses a shipped encoder: "auto" is both pose and
    images for files, and pose for a data set, which has no images. The videos vote on each alignment. The `max_views`
    videos that align best are used, the query included. `fps` is the frame rate of a data set that does not state one.
    `flips` tries people of the opposite handedness as mirror images. `cache` is the folder of cached poses and images.
    """
    if bool(videos) == bool(data):
        raise ValueError("name video files (the query, then others) or a data set, one of the two")
    left_out: dict[Path, str] = {}
    if videos:
        poses = Cache(cache or default_cache_folder())
        sequences, left_out = _estimate([Path(video) for video in videos], cache=poses, progress=progress)
        files = [each.recording.path for each in sequences if each.recording is not None]
        found = embed_videos(files, model=model, modality=modality, cache=poses, progress=progress).embeddings
    else:
        encoder = _pose_encoder(model, modality)
        sequences = _select(data, root, action=action, query=query, fps=fps)
        found = [embed_performance(encoder, each.performance) for each in sequences]
    first, others = sequences[0], sequences[1:]
    report = stage_progress(progress, "aligning")
    partners = choose_partners(found, first.performance.times, count=max_views - 1, progress=report)
    chosen = tuple(others[partner.index] for partner in partners)
    seconds = tuple(partner.seconds for partner in partners)
    views = gather(first.performance, [other.performance for other in chosen], seconds)
    body = reconstruct(views, flips=flips, progress=stage_progress(progress, "reconstructing"))
    return ReconstructedPose(body, first, chosen, seconds, left_out)


def _pose_encoder(model: Model, modality: ModalityChoice) -> Encoder:
    """Load the given encoder, its pose part, or the shipped one; raise if it does not embed poses of 13 joints."""
    if modality not in ("auto", "pose"):
        raise ValueError(f"modality {modality!r}: a data set has keypoints and no images; choose pose or auto")
    encoder = load_shipped("pose") if model is None else open_encoder(model)
    encoder = encoder.pose if isinstance(encoder, JointEncoder) else encoder
    if encoder is None or encoder.modality != "pose" or tuple(encoder.config["joints"]) != JOINTS13:
        raise ValueError(f"{model or 'the model'} does not embed poses of PennAction's 13 joints: name a pose encoder")
    return encoder


def _estimate(
    files: Sequence[Path], *, cache: Cache, progress: Progress | None
) -> tuple[list[PoseSequence], dict[Path, str]]:
    """Estimate the pose in each video file; the query must show a person, others without one are left out."""
    if len(files) < MIN_VIEWS:
        raise ValueError(f"depth needs {MIN_VIEWS} videos or more, the query included; got {len(files)}")
    poses, failed = estimate_poses(files, cache=cache, progress=progress)
    if files[0] in failed:
        raise MediaError(failed[files[0]])
    if len(poses) < MIN_VIEWS:
        raise ValueError(f"depth needs {MIN_VIEWS} videos or more that show a person; {len(poses)} of {len(files)} do")
    sequences = []
    for recording, pose in zip(open_recordings(list(poses)), poses.values(), strict=True):
        points, visible = pose.joints13()
        joints = Performance(recording.name, points.astype(np.float64), visible, pose.times, JOINTS13)
        sequences.append(PoseSequence(joints, pose.size, recording))
    return sequences, failed


def _select(data: str, root: Path | None, *, action: str, query: str, fps: float) -> list[PoseSequence]:
    """Select the videos of an action from a data set, the query first."""
    if data not in DATASETS:
        raise ValueError(f"no data set {data!r}: choose one of {', '.join(DATASETS)}")
    if not (action or query):
        raise ValueError("name an --action of the data set, or the id of a --query")
    if root is None and data != "stage":
        raise ValueError(f"{data} is read from a folder: name it with --root")
    load = DATASETS[data]
    # A loader that selects actions itself does not read or render the others.
    options: dict[str, Any] = {"actions": (action,)} if action and "actions" in signature(load).parameters else {}
    found = load(root, split="all", **options)
    videos = [video for video in found if video.keypoints is not None and action in ("", video.action)]
    if not videos:
        raise ValueError(f"{data} has no videos with keypoints of action {action!r}: choose another action")
    chosen = [video for video in videos if query in ("", video.id)]
    if not chosen:
        raise ValueError(f"no video {query!r} in {data}: it has {summarize(sorted(video.id for video in videos))}")
    others = [video for video in videos if video is not chosen[0] and video.action == chosen[0].action]
    return [_labeled(video, fps=fps) for video in (chosen[0], *others)]


def _labeled(video: Video, *, fps: float) -> PoseSequence:
    """Take the joints of a video from its labels."""
    labeled = select_joints(video)
    assert labeled.keypoints is not None
    seen = np.ones(labeled.keypoints.shape[:2], np.bool_) if labeled.visibility is None else labeled.visibility
    times = np.arange(len(labeled.keypoints)) / (labeled.rate or fps)
    size = labeled.size or tuple(int(reach) + 1 for reach in labeled.keypoints[seen].max(0)[::-1])
    joints = Performance(labeled.id, labeled.keypoints.astype(np.float64), seen, times, JOINTS13)
    return PoseSequence(joints, (size[0], size[1]))


def _add_media(out: Path, sequence: PoseSequence) -> str | None:
    """Add the file of a video to the playback's folder, where it has one."""
    return None if sequence.recording is None else add_video_file(out, sequence.recording)
