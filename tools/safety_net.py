"""Record what a restructuring must not change, and compare two recordings.

    python -m tools.safety_net record AFTER.json [--only STEP …] [--work FOLDER [--reread]]
    python -m tools.safety_net compare BEFORE.json AFTER.json

`record` runs the command line in subprocesses on one thread, with a cache of its own, and writes one JSON file of
weights, paths, time maps, metrics and playback documents. Steps on real videos need INPHASE_DATA, the folder that holds
golfdb/videos and knot_tying/videos. `--reread` reads the work folder of an earlier recording again without running
anything. `compare` prints every difference and exits with 1 if it found one.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.written_values import Values, read


@dataclass(frozen=True)
class Step:
    """One command of `python -m inphase`, run in the work folder, and the files to record afterward.

    A step writes into the folder of its own name. `files` maps the name in the recording to a pattern in that folder:
    after a rename change the pattern and keep the name. `needs` lists the steps that must run first.
    """

    command: str
    files: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    real: bool = False  # needs INPHASE_DATA


RUN = {"encoder": "encoder.safetensors", "metrics": "metrics.jsonl"}
SOUND_RUN = {**RUN, "sound": "audio.safetensors"}
PLAYBACK = {"playback": "playback.json", "files": "*.[mpj][pn]*"}  # mp4, png, jpg
ALIGNED = {**PLAYBACK, "path": "path.csv"}
LABELED = {**PLAYBACK, "labels": "*.csv"}
IN_SPACE = {**PLAYBACK, "pose3d": "pose3d.npz"}
REPORT = {"report": "report.json"}

STAGE = "stage/videos/stage-plain-0-test-golf_swing"
GOLF = "{data}/golfdb/videos"
KNOTS = "{data}/knot_tying/videos"

STEPS: dict[str, Step] = {
    "train_pose": Step("train demo_pose --out train_pose --set run.steps=60", RUN),
    "train_pixels": Step("train demo_image --out train_pixels --set run.steps=20 --set data.videos=4", RUN),
    "train_sound": Step("train stage_sound --out train_sound --set run.steps=10 --set data.videos=4", SOUND_RUN),
    "evaluate_pose": Step("evaluate train_pose --out evaluate_pose", REPORT, ("train_pose",)),
    "evaluate_sound": Step("evaluate train_sound --tasks sound_recall --out evaluate_sound", REPORT, ("train_sound",)),
    "ablation": Step(
        "reproduce ablation --data stage --modality pose --seeds 2 --workers 1 --out ablation --set run.steps=4"
        """ --set data.videos=4 --set 'data.actions=["golf_swing","kick","squat"]'""",
        {"report": "ablation/report.json"},
    ),
    "stage": Step(
        "data stage stage --split test --actions golf_swing --videos 4 --level plain",
        {"videos": "videos/*.mp4", "labels": "labels/*.npz"},
    ),
    "align_stage": Step(
        f"align {STAGE}-0000.mp4 {STAGE}-0001.mp4 {STAGE}-0002.mp4 --smooth 0.2 --out align_stage --cache cache",
        ALIGNED,
        ("stage",),
    ),
    "align_stage_pixels": Step(
        f"align {STAGE}-0000.mp4 {STAGE}-0001.mp4 --model train_pixels --out align_stage_pixels --cache cache",
        ALIGNED,
        ("stage", "train_pixels"),
    ),
    "transfer_stage": Step(
        f"transfer {STAGE}-0000.mp4 phases.csv {STAGE}-0001.mp4 {STAGE}-0002.mp4 --out transfer_stage --cache cache",
        LABELED,
        ("stage",),
    ),
    "search_moment": Step(
        f"search {STAGE}-0000.mp4 --at 0.8 --in stage/videos --top 5 --out search_moment --cache cache",
        PLAYBACK,
        ("stage",),
    ),
    "search_video": Step(
        f"search {STAGE}-0000.mp4 --in stage/videos --top 3 --out search_video --cache cache", PLAYBACK, ("stage",)
    ),
    "pose3d_files": Step(
        f"pose3d {STAGE}-0000.mp4 {STAGE}-0001.mp4 {STAGE}-0002.mp4 {STAGE}-0003.mp4 --out pose3d_files --cache cache",
        IN_SPACE,
        ("stage",),
    ),
    "pose3d_stage": Step(
        "pose3d --data stage --action golf_swing --views 6 --out pose3d_stage --cache cache", IN_SPACE
    ),
    "align_golf_pose": Step(
        f"align {GOLF}/0000.mp4 {GOLF}/0002.mp4 --out align_golf_pose --cache cache", ALIGNED, real=True
    ),
    "align_golf_pixels": Step(
        f"align {GOLF}/0000.mp4 {GOLF}/0002.mp4 --model train_pixels --out align_golf_pixels --cache cache",
        ALIGNED,
        ("train_pixels",),
        real=True,
    ),
    "align_knots": Step(  # nobody in view, so the image encoder is chosen without a flag
        f"align {KNOTS}/Knot_Tying_S02_T01.mp4 {KNOTS}/Knot_Tying_S02_T02.mp4 --fps 2 --out align_knots --cache cache",
        ALIGNED,
        real=True,
    ),
    "transfer_golf": Step(
        f"transfer {GOLF}/0000.mp4 events.csv {GOLF}/0002.mp4 --out transfer_golf --cache cache", LABELED, real=True
    ),
    "pose3d_golf": Step(
        f"pose3d {GOLF}/0000.mp4 {GOLF}/0002.mp4 {GOLF}/0004.mp4 {GOLF}/0006.mp4 --out pose3d_golf --cache cache",
        IN_SPACE,
        real=True,
    ),
}

INPUTS = {  # files written into the work folder before the first step
    "phases.csv": "start,end,label\n0.2,0.8,backswing\n0.8,1.2,downswing\n1.2,1.6,follow_through\n",
    "events.csv": "frame,label\n39,address\n74,top\n82,impact\n",
}

# The correctness gate of `make bench`, without peers, and hashes of the tables and gradients it checks. It prints one
# "name<TAB>value" per line.
GATE = """
import hashlib
import torch
from benchmarks.correctness import random_cost, require_correct
from benchmarks.on_cpu import SHAPES
from inphase.align import accumulate

def digest(tensor):
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()

torch.set_num_threads(1)
for shape in SHAPES:
    require_correct(shape, [], "cpu")
    name = "x".join(map(str, shape))
    print(name, "passed", sep="\\t")
    for kind in ("smooth", "soft", "hard"):
        cost = random_cost(shape, "cpu").requires_grad_()
        table = accumulate(cost, kind=kind, gamma=0.1)
        upstream = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        (gradient,) = torch.autograd.grad(table, cost, upstream)
        print(f"{name}/{kind}/table", digest(table), sep="\\t")
        print(f"{name}/{kind}/gradient", digest(gradient), sep="\\t")
"""

GATE_OUTPUT = "gate.txt"


# ---- Running the commands. -------------------------------------------------------------------------------------------


def record(out: Path, *, only: list[str], work: Path, reread: bool = False) -> bool:
    """Run the steps in an empty work folder and write the recording; return whether every step worked."""
    data = os.environ.get("INPHASE_DATA", "")
    values: Values = {}
    seconds: dict[str, float] = {}
    failed: list[str] = []
    for name, text in INPUTS.items():
        (work / name).write_text(text, encoding="utf-8")
    for name in _chosen(only):
        start = time.perf_counter()
        if name != "gate" and STEPS[name].real and not data:
            print(f"{name}: skipped, INPHASE_DATA is not set", flush=True)
            continue
        try:
            if not reread:
                _run_step(name, work, data=data)
            found = _read_gate(work) if name == "gate" else _read_step(name, work)
        except (RuntimeError, OSError, ValueError, KeyError, TypeError) as error:
            failed.append(name)
            print(f"{name}: FAILED: {error}", flush=True)
            continue
        values |= {f"{name}/{key}": value for key, value in found.items()}
        seconds[name] = round(time.perf_counter() - start, 1)
        print(f"{name}: {len(found)} values, {seconds[name]} s", flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"seconds": seconds, "values": values}, indent=1, ensure_ascii=False, sort_keys=True)
    out.write_text(text + "\n", encoding="utf-8")
    print(f"{out}: {len(values)} values, {sum(seconds.values()):.0f} s", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return not failed


def _chosen(only: list[str]) -> list[str]:
    """List the steps to run in the order of the table, with those they need."""
    if not only:
        return [*STEPS, "gate"]
    wanted = set(only)
    if unknown := wanted - {*STEPS, "gate"}:
        raise SystemExit(f"no step {', '.join(sorted(unknown))}: choose from {', '.join([*STEPS, 'gate'])}")
    for name in only:
        wanted |= set(STEPS[name].needs) if name in STEPS else set()
    return [name for name in [*STEPS, "gate"] if name in wanted]


def _run_step(name: str, work: Path, *, data: str) -> None:
    """Run the command of a step; what the gate prints goes into a file."""
    if name == "gate":
        root = Path(__file__).resolve().parents[1]
        (work / GATE_OUTPUT).write_text(_run([sys.executable, "-c", GATE], work, folder=root), encoding="utf-8")
        return
    words = [word.replace("{data}", str(Path(data).resolve())) for word in shlex.split(STEPS[name].command)]
    _run([sys.executable, "-m", "inphase", *words], work, folder=work)


def _read_step(name: str, work: Path) -> Values:
    """Read the files that a step wrote."""
    found: Values = {}
    for kind, pattern in STEPS[name].files.items():
        paths = sorted((work / name).glob(pattern))
        if not paths:
            raise ValueError(f"no {pattern} in the folder it wrote")
        for path in paths:
            where = f"{kind}/{path.name}" if "*" in pattern else kind
            found |= {f"{where}/{key}".rstrip("/"): value for key, value in read(path).items()}
    return found


def _read_gate(work: Path) -> Values:
    lines = (work / GATE_OUTPUT).read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if "\t" in line)


def _run(command: list[str], work: Path, *, folder: Path) -> str:
    """Run a command on one thread and a CPU, with a cache of its own; return its output."""
    source = Path(__file__).resolve().parents[1] / "src"
    threads = ("OMP", "MKL", "OPENBLAS", "NUMBA", "NUMEXPR", "VECLIB_MAXIMUM")
    environment = os.environ | {f"{name}_NUM_THREADS": "1" for name in threads}
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH", "")])),
        "XDG_CACHE_HOME": str(work / "xdg_cache"),
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONHASHSEED": "0",
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"exit {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
    return done.stdout


# ---- Comparing two recordings. ---------------------------------------------------------------------------------------


def compare(before: Values, after: Values) -> list[str]:
    """List the differences of two recordings: what is missing, extra or unequal."""
    missing = [name for name in before if name not in after]
    extra = [name for name in after if name not in before]
    moved: dict[str, list[str]] = {}
    for name in extra:
        moved.setdefault(json.dumps(after[name]), []).append(name)
    lines = []
    for name in missing:
        same = moved.get(json.dumps(before[name]), [])
        hint = f"  (the same value is now {same[0]})" if len(same) == 1 else ""
        lines.append(f"missing  {name}: {_shorten(before[name])}{hint}")
    lines += [f"extra    {name}: {_shorten(after[name])}" for name in extra]
    for name in before:
        if name in after and not _equal(before[name], after[name]):
            lines.append(f"unequal  {name}: {_difference(before[name], after[name])}")
    return lines


def _equal(before: Any, after: Any) -> bool:
    """Return whether two values are equal, or near where a tolerance is recorded; NaN equals NaN."""
    if isinstance(before, dict) and isinstance(after, dict) and len(before["near"]) == len(after["near"]):
        return _farthest(before, after) <= float(before["within"])
    return bool(before == after) or json.dumps(before) == json.dumps(after)


def _farthest(before: Any, after: Any) -> float:
    return max(abs(float(one) - float(other)) for one, other in zip(before["near"], after["near"], strict=True))


def _difference(before: Any, after: Any) -> str:
    """Describe how two values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        if len(before["near"]) != len(after["near"]):
            return f"{len(before['near'])} entries → {len(after['near'])} entries"
        return f"they differ by up to {_farthest(before, after):g}, more than {before['within']:g}"
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            return f"{len(before)} entries → {len(after)} entries"
        places = [place for place, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
        first = places[0]
        return f"{len(places)} of {len(before)} entries, first [{first}]: {before[first]!r} → {after[first]!r}"
    if isinstance(before, float) and isinstance(after, float):
        relative = abs(after - before) / max(abs(before), abs(after))
        return f"{before!r} → {after!r} ({relative:.1e} of it)"
    return f"{_shorten(before)} → {_shorten(after)}"


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}…"


def main() -> int:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record", help="run the commands and write one JSON file")
    recording.add_argument("out", type=Path)
    recording.add_argument("--only", nargs="+", default=[], metavar="STEP", help="only these steps and what they need")
    recording.add_argument("--work", type=Path, help="an empty folder to work in and keep; a temporary one by default")
    recording.add_argument("--reread", action="store_true", help="run nothing: read what lies in --work")
    comparing = actions.add_parser("compare", help="print every difference of two recordings")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.action == "compare":
        both = [json.loads(file.read_text(encoding="utf-8"))["values"] for file in (arguments.before, arguments.after)]
        lines = compare(*both)
        print("\n".join([*lines, f"{len(lines)} differences in {len(both[0])} values"]))
        return 1 if lines else 0
    if arguments.reread and arguments.work is None:
        parser.error("--reread needs --work, the folder of an earlier recording")
    if arguments.work is None:
        with tempfile.TemporaryDirectory(prefix="safety_net_") as folder:
            return 0 if record(arguments.out, only=arguments.only, work=Path(folder)) else 1
    arguments.work.mkdir(parents=True, exist_ok=True)
    if not arguments.reread and any(arguments.work.iterdir()):
        parser.error(f"{arguments.work} is not empty: name another --work, or add --reread to run nothing")
    whole = record(arguments.out, only=arguments.only, work=arguments.work.resolve(), reread=arguments.reread)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
