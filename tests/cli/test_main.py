"""What all commands share: one library function each, JSON on standard output, progress on standard error."""

import inspect
import io
import json
import os
import shlex
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError
from rich.console import Console

import inphase
from inphase.cli import COMMANDS, load_command, options
from inphase.cli.corpora import DATASET_NAMES
from inphase.cli.options import DEFAULT_EMBEDDING, view_command
from inphase.data import DATASETS
from inphase.playback import Playback, PlaybackMoment, Result, write_playback
from inphase.pose.estimator import DEFAULT_ESTIMATOR
from inphase.progress import share_cores
from tests.commands import SCHEMA, check_output, validator_of
from tests.commands import type_command as run
from tests.media.recordings import write_video

# Each command, its library function and the result that it returns.
FUNCTIONS = {
    "align": ("align_videos", "Aligned"),
    "cut": ("find_repetitions", "Repetitions"),
    "transfer": ("transfer_labels", "Labeled"),
    "compare": ("compare_videos", "Comparison"),
    "search": ("search", "SearchResult"),
    "retrieve": ("retrieve_sound", "RetrievedSound"),
    "activations": ("activation_maps", "ActivationMaps"),
    "pose3d": ("reconstruct_pose", "ReconstructedPose"),
    "embed": ("embed_corpus", "EmbeddedCorpus"),
    "align-all": ("align_corpus", "AlignedCorpus"),
    "fit": ("fit", "Fitted"),
    "train": ("train", "Trained"),
    "evaluate": ("evaluate", "Evaluation"),
    "reproduce": ("reproduce", "Reproduction"),
    "export": ("export", "Exported"),
}


@pytest.mark.parametrize(("command", "names"), FUNCTIONS.items())
def test_a_command_is_one_documented_function(command: str, names: tuple[str, str]) -> None:
    function, result = (getattr(inphase, name) for name in names)
    assert inspect.getdoc(function)
    assert "progress" in inspect.signature(function).parameters
    assert typing.get_type_hints(function)["return"] is result
    assert callable(result.write)
    assert callable(result.to_dict)
    page = (Path(__file__).parents[2] / "docs" / "engineering" / "api.md").read_text(encoding="utf-8")
    assert f"| `{names[1]}` | `inphase {command}` |" in page


def test_the_help_lists_every_command_in_groups(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    for title in ("Use", "Learn", "Measure", "Research"):
        assert title in lines
    for name, command in COMMANDS.items():
        assert f"  {name:<13} {command.purpose}" in lines
    assert run(monkeypatch) == 2
    assert capsys.readouterr().err.splitlines() == lines
    assert run(monkeypatch, "data", "--help") == 0
    family = capsys.readouterr().out
    assert "  data verify" in family
    assert "  align" not in family


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example_that_it_can_parse(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *name.split(), "--help") == 0
    shown = capsys.readouterr().out
    assert f"  inphase {name} {COMMANDS[name].example}" in shown
    assert "None" not in shown
    assert "(default: False)" not in shown
    for flag in ("--json", "--quiet", "--verbose"):
        assert flag in shown

    class Parsed(Exception):  # noqa: N818
        pass

    def stop(*_: object, **__: object) -> None:
        raise Parsed

    monkeypatch.setattr("inphase.cli.options.OutputOptions.start_logging", stop)
    with pytest.raises(Parsed):
        run(monkeypatch, *name.split(), *shlex.split(COMMANDS[name].example))


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["alin", "a.mp4"], "inphase alin: there is no such command; did you mean align or "),
        (["data", "chek"], "inphase data chek: there is no such command; did you mean data check"),
        (["xyzzy"], "inphase xyzzy: there is no such command; `inphase --help` lists all."),
        (["align", "a.mp4", "b.mp4", "--referense", "a"], "--reference"),
        (["align", "a.mp4", "b.mp4", "--slow", "very"], "--slow"),
    ],
)
def test_a_usage_error_names_what_is_near_and_exits_with_2(
    words: list[str], advice: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert advice in err


@pytest.mark.parametrize("words", [["--help"], ["align", "--help"], ["alin"], ["align", "--referense"]])
def test_help_and_usage_errors_import_nothing_of_the_library(words: list[str]) -> None:
    code = (
        "import sys, inphase\n"
        "from inphase.cli import main\n"
        f"sys.argv = ['inphase', *{words!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'scipy', 'numba', 'numpy', 'av', 'inphase.storage', 'inphase.data'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("training", "policy"), [(False, "passive"), (True, None)])
def test_waiting_threads_sleep_unless_the_user_or_training_wants_otherwise(
    monkeypatch: pytest.MonkeyPatch, training: bool, policy: str | None
) -> None:
    for name in ("OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    share_cores(training=training)
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    assert os.environ.get("OMP_WAIT_POLICY") == policy
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    share_cores(training=training)
    assert os.environ["OPENBLAS_NUM_THREADS"] == "4"


def test_the_completion_script_holds_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--tyro-print-completion", "bash") == 0
    script = capsys.readouterr().out
    assert all(word in script for name in COMMANDS for word in name.split())
    assert "--subsequence" in script


def test_the_data_sets_named_in_the_help_exist() -> None:
    assert tuple(DATASETS) == DATASET_NAMES


# An evaluation is written into its run folder, a reproduction into a folder of its data set.
@pytest.mark.parametrize("command", [command for command in FUNCTIONS if command not in ("evaluate", "reproduce")])
def test_the_output_folder_is_optional(command: str) -> None:
    default = inspect.signature(load_command(command)).parameters["out"].default
    assert default == Path("out") / command


def test_the_help_names_the_values_of_an_optional_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "fit", "--help") == 0
    assert "--steps INT  training steps; by default those of the recipe.  " in capsys.readouterr().out


def test_nothing_is_estimated_for_a_missing_video(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "cut", tmp_path / "gone.mp4", "--out", tmp_path / "out") == 1
    assert capsys.readouterr().err == f"{tmp_path / 'gone.mp4'} does not exist: check the path\n"


def test_a_missing_labels_table_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    videos = [write_video(tmp_path / name, count=4) for name in ("a.mp4", "b.mp4")]
    table = tmp_path / "absent.csv"
    assert run(monkeypatch, "transfer", videos[0], table, videos[1], "--out", tmp_path / "out") == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"{table} does not exist: check the path"


def test_an_unreadable_playback_is_not_said_to_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("starlette")
    (tmp_path / "playback.json").write_text("{}")
    monkeypatch.setattr("inphase.viewer.server.serve", lambda folder, *, on_ready, **_: on_ready("http://here"))
    assert run(monkeypatch, "view", tmp_path, "--no-open") == 0
    found = capsys.readouterr()
    assert f"{tmp_path} cannot be played; the error is shown at http://here" in found.out
    assert "it is not a playback" in found.err


def test_a_log_file_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "LINE_INTERVAL", 0.0)
    with options.show_progress() as progress:
        progress("embedding a [b].mp4", 3, 40)
        progress("listing", 1, 0)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["     3/40  embedding a [b].mp4", "     1/?  listing"]


def test_a_terminal_shows_the_stages_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(options, "_console", lambda **_: Console(file=screen, force_terminal=True, width=100))
    with options.show_progress() as progress:
        progress("embedding a [b].mp4", 40, 40)
        progress("rendering", 3, 7)
    last = screen.getvalue().split("embedding")[-1]
    assert "rendering" in last
    assert "3/7" in last


def test_the_default_pose_estimator_is_the_librarys() -> None:
    assert DEFAULT_EMBEDDING.pose_estimator == DEFAULT_ESTIMATOR


def test_the_viewer_command_survives_a_shell() -> None:
    assert view_command(Path("a b/it's")) == """inphase view 'a b/it'"'"'s'"""


def test_the_estimate_is_printed_before_the_library_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    videos = [write_video(tmp_path / name, count=4) for name in ("a.mp4", "b.mp4")]
    for module in ("apps.align_videos", "apps.compare_videos", "training"):
        monkeypatch.setitem(sys.modules, f"inphase.{module}", None)
    for words in (["align", *videos], ["compare", *videos], ["fit", tmp_path]):
        with pytest.raises(ModuleNotFoundError):
            run(monkeypatch, *words, "--out", tmp_path / "out")
        assert capsys.readouterr().err.startswith("2 videos, 8 frames, about ")


def test_an_unforeseen_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inphase.apps.align_videos", None)
    with pytest.raises(ModuleNotFoundError):
        run(monkeypatch, "align", "a.mp4", "b.mp4")


def test_every_command_has_a_schema_that_can_fail() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    assert set(COMMANDS) <= set(schema["$defs"])
    for name in COMMANDS:
        assert not validator_of(name).is_valid({}), name
    video = {
        "name": "a",
        "path": "a.mp4",
        "duration": 1.0,
        "distance": 0.1,
        "seconds": [0.0],
        "kept": None,
        "span": None,
    }
    sure = {"verdict": "good", "probability": 0.9, "reasons": []}
    aligned = {"reference": 0, "why": "", "cost": "cosine", "videos": [video | sure], "left_out": {}}
    check_output("align", aligned)
    for wrong in ({"verdict": "fine"}, {"probability": 1.5}, {"seconds": ["0"]}):
        with pytest.raises(ValidationError):
            check_output("align", aligned | {"videos": [video | sure | wrong]})


def test_view_prints_its_address_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("starlette")
    write_playback(tmp_path, Playback("nothing", results=(Result(PlaybackMoment("query", 0.0), ()),)))
    url = "http://127.0.0.1:80/?token=secret"
    monkeypatch.setattr("inphase.viewer.server.serve", lambda folder, *, on_ready, **_: on_ready(url))
    assert run(monkeypatch, "view", tmp_path, "--no-open", "--json") == 0
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 1
    check_output("view", json.loads(printed))
    assert json.loads(printed)["token"] == "secret"


def test_the_log_is_printed_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INPHASE_LOG", "loud")
    assert run(monkeypatch, "data", "verify", tmp_path) == 1
    assert "INPHASE_LOG is 'loud': use debug, info, warning or error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("wrong value"), 1), (FileNotFoundError(2, "no", "a.mp4"), 1), (KeyboardInterrupt(), 130)],
)
def test_exit_codes(
    error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("inphase.apps.align_videos.align_videos", fail)
    assert run(monkeypatch, "align", "a.mp4", "b.mp4", "--quiet") == status
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1, "an error is printed even if quiet"


def test_json_is_all_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result(PlaybackMoment("query", 0.0), ())
    write_playback(tmp_path / "playback", Playback("nothing found", results=(result,)))
    assert run(monkeypatch, "export", tmp_path / "playback", "--out", tmp_path / "page", "--json") == 0
    assert json.loads(capsys.readouterr().out)["page"] == str(tmp_path / "page" / "index.html")
