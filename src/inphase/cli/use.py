"""Commands for one's own videos: align, cut, transfer, compare, search, retrieve, activations, pose3d, view, export."""

import contextlib
from glob import has_magic
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from inphase.cli.options import (
    DEFAULT_EMBEDDING,
    IMAGE_EMBEDDING,
    OUTPUT,
    At,
    CacheFolder,
    Embedding,
    Fps,
    Modality,
    Model,
    Out,
    RequiredModel,
    Session,
    Top,
    Video,
    Videos,
    print_json,
    print_line,
    run,
    warn_line,
)

CORPUS_HELP = "folders of videos, video files"
STUDENTS_HELP = "videos, folders or patterns of students, then the video of the pro"
Folder = Annotated[Positional[Path], arg(metavar="DIR", help="a folder with a playback.json")]


def align(
    videos: Videos,
    *,
    out: Out = Path("out/align"),
    embedding: Embedding = DEFAULT_EMBEDDING,
    reference: str = "",
    subsequence: bool = False,
    session: Session = False,
    drop: Annotated[float | None, arg(metavar="SHARE")] = None,
    smooth: Annotated[float, arg(metavar="SECONDS")] = 0.0,
    cost: Literal["contrastive", "cosine"] = "contrastive",
    labels: Path | None = None,
    joints: bool = False,
    freeze: bool = False,
    slow: float = 1.0,
    height: int | None = None,
    max_mb: float | None = None,
) -> None:
    """Align videos of the same action and write the first nine side by side, synchronized.

    Writes alignment.csv, a row for each video with the verdict, path.csv, the matched seconds, aligned.mp4,
    alignment.png and playback.json (see `inphase view`).

    Args:
        reference: the video that the others follow: its number, its name, or `medoid` for the one nearest to all
            others; by default the first, with --subsequence or --session the shortest.
        subsequence: locate the reference, a short action, inside the others.
        drop: leave out frames without a counterpart: a drop costs the quantile SHARE of all costs; begin with 0.03.
        smooth: smooth changes of speed shorter than this; 0 keeps every step of the alignment.
        cost: the cost of matching two frames.
        labels: a table of the reference's labels, whose names aligned.mp4 shows.
        joints: draw the joints of the people in aligned.mp4.
        freeze: freeze the image for a second at each label in aligned.mp4.
        slow: slow-motion factor of aligned.mp4.
        height: height of each video in aligned.mp4, in pixels; by default 720 for upright videos, 360 for others.
        max_mb: largest size of aligned.mp4 in megabytes, e.g. 16 for messengers.
    """
    options = dict(locals())
    from inphase.media.listing import videos_in

    options["videos"] = options["embeds"] = found = videos_in(videos, as_named=len(videos) > 1)
    if len(found) < 2:
        raise ValueError(f"name two or more videos, folders or patterns, got {len(found)}: inphase align a.mp4 b.mp4")
    run("align_videos", **options, done="watch {out}/aligned.mp4, or: {view}")


def cut(
    session: Video,
    *,
    like: Annotated[Path | None, arg(metavar="CLIP", help="a clip of one repetition; default: none")] = None,
    out: Out = Path("out/cut"),
    min_score: Annotated[float, arg(help="leave out repetitions of a lower score (0 to 1)")] = 0.2,
    embedding: Embedding = IMAGE_EMBEDDING,
) -> None:
    """Find every repetition of an action in a long recording; write repetitions.csv, clips and playbacks."""
    options = dict(locals())
    options["embeds"] = [session, *([like] if like else [])]
    run("find_repetitions", options.pop("session"), **options, done="clips are in {out}/clips: {view}")


def activations(video: Video, *, model: RequiredModel, out: Out = Path("out/activations"), height: int = 360) -> None:
    """Show which parts of the frames an image encoder responds to.

    Writes activations.mp4, the activation maps laid over the frames, and a playback in which they can be faded.

    Args:
        height: height of the video in pixels.
    """
    run("activation_maps", video, model, height=height, out=out, done="watch {out}/activations.mp4, or: {view}")


def transfer(
    source: Annotated[Positional[Path], arg(metavar="LABELED", help="the labeled video")],
    labels: Annotated[Positional[Path], arg(metavar="LABELS.csv", help="its labels")],
    targets: Videos,
    *,
    reference: UseAppendAction[tuple[tuple[Path, Path], ...]] = (),
    neighbors: int = 20,
    session: Session = False,
    out: Out = Path("out/transfer"),
    embedding: Embedding = DEFAULT_EMBEDDING,
) -> None:
    """Transfer the labels of one video to other videos of the same action, each label with a confidence.

    The table of labels begins with the line start,end,label (seconds), second,label or frame,label (from 0). Writes a
    table of the same kind for every target, and a playback of the first eight.

    Args:
        reference: another labeled video and its labels; repeatable.
        neighbors: how many similar targets vote on the labels of each target; 0: only the direct alignment counts.
    """
    if not targets:
        raise ValueError("name the videos to transfer labels to: inphase transfer pro.mp4 labels.csv clips/")
    options = {"references": reference, "neighbors": neighbors, "session": session, "embedding": embedding, "out": out}
    options |= {"embeds": [source, *targets, *(video for video, _ in reference)]}
    run("transfer_labels", source, labels, targets, **options, done="tables and a playback are in {out}: {view}")


def compare(
    videos: Annotated[Positional[tuple[Path, ...]], arg(metavar="STUDENT… PRO", help=STUDENTS_HELP)] = (),
    *,
    out: Out = Path("out/compare"),
    labels: Path | None = None,
    student_labels: Path | None = None,
    phases: int = 4,
    mirror: bool = False,
    session: Session = False,
    embedding: Embedding = DEFAULT_EMBEDDING,
) -> None:
    """Compare students with a pro in tempo and joint angles; write report.html, tables, stills and a playback.

    Args:
        labels: a table of the pro's labels, key positions or phases; they are transferred to the student.
        student_labels: a table of the student's labels with the same names; one student only.
        phases: without labels, the number of phases of equal length.
        mirror: compare the mirror image of the student: one of the two is left-handed.
    """
    options = dict(locals())
    *students, pro = options.pop("videos") or [Path()]
    if not students:
        raise ValueError("name the video of a student, then that of the pro: inphase compare student.mp4 pro.mp4")
    several = session or len(students) != 1 or students[0].is_dir()
    one = not several and (students[0].is_file() or not has_magic(str(students[0])))
    if one:
        del options["session"]
    elif options.pop("student_labels") is not None:
        raise ValueError("--student-labels are those of one student: omit them, and the pro's are transferred")

    from inphase.storage.errors import import_extra

    import_extra("jinja2", extra="compare")
    options |= {"embeds": videos, "done": "open {out}/report.html"}
    run("compare_videos" if one else "compare_students", students[0] if one else students, pro, **options)


def search(
    query: Video,
    *,
    within: Annotated[tuple[Path, ...], arg(name="in", metavar="FOLDER", help=f"{CORPUS_HELP}, or a store")],
    at: At = None,
    window: float = 1.0,
    top: Top = 10,
    subsequence: bool = False,
    action: str | None = None,
    out: Out = Path("out/search"),
    embedding: Embedding = DEFAULT_EMBEDDING,
) -> None:
    """Find the moments most similar to a video's moment --at; without --at, the videos that align best with it.

    Args:
        window: seconds around the moment --at that are compared; 0 compares one frame.
        subsequence: the query is a short action that may be a part of longer videos; without --at only.
        action: search only videos of this action; in a store only.
    """
    options = dict(locals())
    run("search", options.pop("query"), options.pop("within"), **options, embeds=[query, *within], done="watch: {view}")


def retrieve(
    *,
    within: Annotated[tuple[str, ...], arg(name="in", metavar="FOLDER", help=f"{CORPUS_HELP}, or a data set")],
    model: RequiredModel,
    sound: Annotated[str | None, arg(metavar="QUERY")] = None,
    image: Annotated[str | None, arg(metavar="QUERY")] = None,
    at: At = None,
    top: Top = 5,
    split: str = "test",
    out: Out = Path("out/retrieve"),
    fps: Fps = None,
    cache: CacheFolder = None,
) -> None:
    """Find the frames that match a second of sound, or the seconds of sound that match a frame.

    Args:
        sound: the query: the sound of this file at --at, or at its loudest moment; in a data set, a video's id.
        image: the query: the frame of this video at --at; in a data set, a video's id.
        split: the split of a data set.
    """
    options = dict(locals()) | {"embeds": [*map(Path, within)]}
    run("retrieve_sound", options.pop("within"), **options, done="watch them: {view}")


def pose3d(
    videos: Annotated[Positional[tuple[Path, ...]], arg(metavar="QUERY OTHERS…", help="the query, then others")] = (),
    *,
    out: Out = Path("out/pose3d"),
    model: Model = None,
    modality: Modality = "auto",
    data: str = "",
    root: Path | None = None,
    action: str = "",
    query: str = "",
    views: int = 20,
    fps: float = 30.0,
    flips: bool = True,
    cache: CacheFolder = None,
) -> None:
    """Reconstruct the body in 3-D at every frame of a video, from other videos of the same action.

    Give video files, or a data set with keypoints. Writes pose3d.npz, pose3d.png and a playback.

    Args:
        data: a data set with keypoints (penn_action, utd_mhad, stage) instead of files.
        root: the folder of the data set.
        action: the action of the data set.
        query: the id of the query in the data set; its first video by default.
        views: the maximum number of videos, the query included; the best-aligned ones are used.
        fps: frames per second of a data set that does not state it.
        flips: do not mirror left-handed people among right-handed ones, or the reverse.
    """
    options = dict(locals()) | {"embeds": videos}
    run("reconstruct_pose", max_views=options.pop("views"), **options, done="the body is in {out}: {view}")


def view(folder: Folder, *, port: int = 0, edit: bool = False, open: bool = True) -> None:
    """Play a playback in the browser, served to this machine only until Ctrl-C.

    Args:
        port: the port to listen on; 0 selects a free one.
        edit: let the page save marks to labels.csv in the folder, which `inphase transfer` reads.
        open: only print the address of the page, without opening the browser.
    """
    from inphase.playback import INDEX, PlaybackError, read_playback

    plays = "plays"
    try:
        read_playback(folder)
    except PlaybackError as error:  # the page shows the error too, and the playback once it is fixed
        if not (folder / INDEX).is_file():
            raise
        warn_line(str(error))
        plays = "cannot be played; the error is shown"
    try:
        from inphase.viewer.server import serve
    except ModuleNotFoundError as error:
        raise ValueError(f"the viewer needs {error.name}: pip install 'inphase[viewer]'") from error

    def on_ready(url: str) -> None:
        if OUTPUT.get().json:
            return print_json({"folder": str(folder), "url": url, "token": url.partition("token=")[2]}, indent=None)
        return print_line(f"{folder} {plays} at {url} (Ctrl-C to stop)")

    # The server handles Ctrl-C itself; depending on the moment, it also raises KeyboardInterrupt.
    with contextlib.suppress(KeyboardInterrupt):
        serve(folder, port=port, edit=edit, on_ready=on_ready, open_browser=open)
    if not OUTPUT.get().json:
        print_line("Closed.")


def export(folder: Folder, *, out: Out = Path("out/export"), single: bool = False, zip: bool = False) -> None:
    """Export a playback as a web page for any static host; it also opens as a file. The folder must be new or empty.

    Args:
        single: write one file to send, OUT.html, that holds the page and the videos.
        zip: write the page and the videos as an archive, OUT.zip.
    """
    run("export", folder, out, single=single, zipped=zip)
