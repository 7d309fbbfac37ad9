"""Commands that train and measure: demo, fit, train, evaluate, reproduce."""

import shlex
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from inphase.cli.options import (
    DEFAULT_LIMITS,
    LINE_INTERVAL,
    CacheFolder,
    Changes,
    Details,
    Device,
    Limits,
    Modality,
    Out,
    Workers,
    print_line,
    run,
    warn_line,
)

if TYPE_CHECKING:
    from inphase.training import Status

Root = Annotated[Path | None, arg(metavar="DIR", help="the folder of the data set")]
Store = Annotated[Path | None, arg(metavar="STORE", help="a store of its frames or poses")]
FOLDER_HELP = "videos of one action, or a sub-folder of them for each action; or one session"
RunArgument = Annotated[Positional[Path], arg(metavar="RUN", help="a run folder, an encoder file, or `shipped`")]

REPORTED = "{out}/report.html, and as report.md and report.json"
FIGURE_NAMES = ("minima", "alignment", "order")
NAMES = ("ablation", "recognition", "events", "few-shot", "synchronization", "per-class", *FIGURE_NAMES)
Name = Annotated[Positional[str], arg(metavar="NAME", help=f"one of {', '.join(NAMES)}")]


def evaluate(
    model: RunArgument,
    *,
    tasks: tuple[str, ...] = (),
    modality: Annotated[Modality, arg(help="one part of a run that trained both, or a shipped encoder")] = "auto",
    data: str | None = None,
    root: Root = None,
    store: Store = None,
    split: str = "test",
    out: Path | None = None,
    setting: str = "released",
    stride: int | None = None,
    distance: Literal["squared_euclidean", "cosine"] | None = None,
    events: tuple[str, ...] = (),
    pairs: int = 10_000,
    neighbors: int = 0,
    controls: bool = True,
    details: Details = False,
    device: Device = "auto",
) -> None:
    """Evaluate a run: embed its videos once, run tasks on them, print tables, write a report.

    Args:
        tasks: the tasks to run; by default all that the labels allow.
        data: another data set than the recipe's.
        split: the split to test on; classifiers are fitted on "train".
        out: the folder of the report; by default evaluation/ in the run folder, or here for an encoder file.
        setting: the setting of Kendall's tau: released, tcc, tcc_pouring or every_frame.
        stride: use every n-th frame in Kendall's tau; overrides the setting.
        distance: the distance of neighbors in Kendall's tau; overrides the setting.
        events: transfer only these events.
        pairs: at most this many pairs of videos of an action for the errors.
        neighbors: let this many videos of the action vote on each transferred event as well.
        controls: leave out the controls: an untrained network, position alone, clamping alone.
    """
    options = dict(locals())
    from inphase.evaluation.embedded_videos import CONTROLS
    from inphase.evaluation.evaluate import evaluate as evaluate_run
    from inphase.models.encoder import choose_device
    from inphase.runs import Run

    of_tasks: dict[str, dict[str, Any]] = {
        "kendall_tau": {name: options.pop(name) for name in ("setting", "stride", "distance")},
        "event_error": {name: options.pop(name) for name in ("pairs", "neighbors")} | {"events": events or None},
        **{task: {"pairs": pairs} for task in ("alignment_error", "cycle_error")},
    }
    del options["events"]
    options |= {"compare": CONTROLS if options.pop("controls") else (), "device": choose_device(device)}
    options["out"] = out or Run(model if model.is_dir() else Path()).evaluation
    run(evaluate_run, options.pop("model"), **options, options=of_tasks, done=REPORTED)


def reproduce(
    name: Name,
    *,
    data: str = "stage",
    root: Root = None,
    store: Store = None,
    modality: Annotated[Modality, arg(help="auto: image for FineGym and LSA64's signs, pose otherwise")] = "auto",
    seeds: int = 3,
    budget: str = "small",
    out: Path | None = None,
    methods: tuple[str, ...] = (),
    tasks: tuple[str, ...] = (),
    workers: int | None = None,
    set: Changes = (),
) -> None:
    """Train and measure the networks of a table or figure of the paper; report the results beside the paper's.

    Stopped at any moment, the same command resumes. Studies share runs.

    Args:
        data: stage, penn_action, golfdb, lsa64_signs or finegym.
        seeds: how many times each network is trained.
        budget: small, medium or full; for images full is the paper's network and its 150,000 steps.
        out: the folder of runs and reports; by default out/reproduce/DATA_MODALITY.
        methods: the methods to train, such as gta tcc; by default all.
        tasks: the tasks to measure, such as kendall_tau event_error; by default all.
        workers: how many runs are trained at a time; by default one per core for pose, one per GPU for images.
    """
    options = dict(locals())
    from inphase import reproduction

    if modality == "auto" and data in reproduction.STUDY_DATA:
        options["modality"] = reproduction.STUDY_DATA[data].modality
    folder = out or Path("out/reproduce") / f"{data}_{options['modality']}"
    options |= {"out": folder / name, "changes": options.pop("set")}
    run(reproduction.reproduce, options.pop("name"), folder, **options, done=REPORTED)


def fit(
    folder: Annotated[Positional[Path], arg(metavar="FOLDER", help=FOLDER_HELP)],
    *,
    out: Out = Path("out/fit"),
    modality: Annotated[Modality, arg(help="what to train on; auto: images, and pose if people are found")] = "auto",
    steps: int | None = None,
    workers: Workers = 2,
    limits: Limits = DEFAULT_LIMITS,
    seed: int = 0,
    set: Changes = (),
    cache: CacheFolder = None,
    session: Annotated[bool, arg(help="the videos are sessions: train on their repetitions")] = False,
    details: Details = False,
) -> None:
    """Train an encoder on your own videos, without labels: a folder, or a sub-folder for each action.

    Extracts poses or images, trains, and evaluates on a fifth of the videos, which it holds out. The folder written is
    a run, which other commands take as --model. The same command resumes an interrupted run.

    Args:
        steps: training steps; by default those of the recipe.
        seed: the seed of the random numbers.
    """
    if (steps is not None and steps < 1) or workers < 0:
        raise ValueError(f"--steps must be at least 1 and --workers 0, got {steps} and {workers}")
    changes = [f"run.seed={seed}", *([] if steps is None else [f"run.steps={steps}"]), *set]

    def fit_folder(**how: Any) -> Any:
        from inphase.apps.repetitions import list_repetitions
        from inphase.evaluation.evaluate import measure_fit
        from inphase.training import fit as fit_videos

        cut = partial(list_repetitions, cache=cache, progress=how["progress"]) if session or folder.is_file() else None
        return fit_videos(folder, out, changes=changes, cut=cut, measure=measure_fit, on_status=print_status(), **how)

    how = {"modality": modality, "workers": workers, "limits": limits, "cache": cache, "details": details}
    run(fit_folder, **how, embeds=[folder], done=f"Use it: inphase align A.mp4 B.mp4 --model {shlex.quote(str(out))}")


def train(
    recipe: Annotated[Positional[str], arg(metavar="RECIPE", help="a TOML file, or the name of a shipped recipe")],
    *,
    out: Out = Path("out/train"),
    set: Changes = (),
) -> None:
    """Train the encoder of a recipe into a run folder; the same command resumes an interrupted run."""
    from inphase import training
    from inphase.evaluation.evaluate import validate

    settings = training.read_recipe(recipe, changes=set)
    run(training.train, settings, out, validate=validate, on_status=print_status())


def print_status() -> Callable[["Status"], None]:
    """Return a callback that prints messages, and the metrics of a run now and then."""
    printed = 0.0

    def on_status(status: "Status") -> None:
        nonlocal printed
        for message in status.messages:
            warn_line(message)
        if status.terms and (status.step == status.steps or time.monotonic() - printed > LINE_INTERVAL):
            printed = time.monotonic()
            print_line(str(status), stderr=True)

    return on_status


def demo(
    *,
    out: Out = Path("out/demo"),
    modalities: Annotated[tuple[str, ...], arg(metavar="MODALITY", help="pose or image; default: both")] = (),
) -> None:
    """Train on drawn people, evaluate on people not in the training data, and show the result on one page.

    Takes a few minutes on two cores; the same command resumes. Writes a run folder for each modality, and tour.html.
    """
    from inphase.reproduction.demo import run_demo

    options = {"modalities": modalities or ("pose", "image"), "on_status": print_status(), "out": out}
    run(partial(run_demo, out), done="open {out}/tour.html in a browser; the two golfers: {view}/aligned", **options)


def models() -> None:
    """List the model files that inphase uses, and verify their SHA-256. Exits with 1 if one has changed."""
    from inphase.models.cards import list_models

    run(list_models)
