import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inphase.data import finegym
from inphase.data.finegym import Category, Element, prototype_order, read_categories, read_elements
from inphase.data.frame_source import list_files, open_frame_source, sources
from inphase.data.video import Problem, file_length, read_images
from inphase.media.frame_store import FrameStore, fill_store
from inphase.media.frames import read_spans
from inphase.models.image_encoder import ImageEncoder
from tests.media.recordings import numbers_of, write_video

CATEGORIES = """Clabel:   0; set:  1; Glabel:   1; (VT) round-off, stretched salto forward
Clabel:   6; set: 21; Glabel:  67; (FX) switch leap with 0.5 turn
Clabel:   7; set: 22; Glabel:  99; (FX) 2 turn
Clabel:   8; set: 24; Glabel: 120; (FX) salto forward
"""
# Ranks of the sets: first event 21 → 0, 24 → ½, 22 → 1; second 24 → 0, 24 → ½, 21 → 1; third 22 → ½.
# Means: 24 → 1/3, 21 → 1/2, 22 → 3/4.
TRAIN = """aaaaaaaaaaa_E_000010_000050_A_0020_0021 8
aaaaaaaaaaa_E_000010_000050_A_0010_0012 6
aaaaaaaaaaa_E_000010_000050_A_0030_0033 7
b_b-bbbbbbb_E_000100_000150_A_0005_0006 8
b_b-bbbbbbb_E_000100_000150_A_0015_0016 8
b_b-bbbbbbb_E_000100_000150_A_0025_0026 6
b_b-bbbbbbb_E_000200_000250_A_0003_0004 7
"""
TEST = """ccccccccccc_E_000100_000130_A_0002_0004 7
ccccccccccc_E_000100_000130_A_0006_0007 8
ccccccccccc_E_000100_000130_A_0009_0012 6
ccccccccccc_E_000100_000130_A_0015_0016 8
ddddddddddd_E_000040_000060_A_0001_0006 0
"""


def annotate(*lines: str) -> dict[str, Any]:
    """Build the annotation of listed clips: times relative to the event, three stages for a vault, one otherwise."""
    annotation: dict[str, Any] = {
        "mmmmmmmmmmm": {"E_000001_000009": {"event": 5, "timestamps": [[1, 9]], "segments": None}}
    }
    for line in "".join(lines).splitlines():
        clip, label = line.split()
        head, segment = clip.split("_A_")
        youtube, event = head[:11], head[12:]
        start, end = map(float, segment.split("_"))
        times = [[start, end]] if int(label) else [[start, start + 2], [start + 2, start + 2.5], [start + 2.5, end]]
        info = annotation.setdefault(youtube, {}).setdefault(event, {"event": 2, "segments": {}})
        info["timestamps"] = [[float(event.split("_")[1]) + 0.5, float(event.split("_")[2])]]
        info["segments"][f"A_{segment}"] = {"stages": len(times), "timestamps": times}
    return annotation


def write(root: Path, *, version: str = "v1.0", base: int = 99, evaluation: str = "val") -> Path:
    (root / f"gym{base}_categories.txt").write_text(CATEGORIES.rstrip("\n"))
    (root / f"gym{base}_train_element_{version}.txt").write_text(TRAIN)
    (root / f"gym{base}_{evaluation}_element.txt").write_text(TEST)
    (root / f"finegym_annotation_info_{version}.json").write_text(json.dumps(annotate(TRAIN, TEST)))
    return root


def test_clips_are_laid_end_to_end_in_the_order_of_the_training_data(tmp_path: Path) -> None:
    floor, _ = finegym.load(write(tmp_path), split="test")
    assert (floor.id, floor.action, floor.split) == ("ccccccccccc_E_000100_000130_test", "floor exercise", "test")
    assert floor.notes["sets"] == "24 24 21 22"
    assert floor.spans == ((106.5, 107.5), (115.5, 116.5), (109.5, 112.5), (102.5, 104.5))
    assert floor.intervals == ((0.0, 1.0, 8), (1.0, 2.0, 8), (2.0, 5.0, 6), (5.0, 7.0, 7))
    assert floor.phases_at(np.array([0.0, 1.5, 2.0, 6.9, 7.0])).tolist() == [8, 8, 6, 7, -1]
    assert floor.path == tmp_path / "videos" / "ccccccccccc.mp4"


def elements(*performed: str) -> list[Element]:
    """List the clips of events given as sets in the order performed; the list itself is in another order."""
    parts = [
        (f"{event:011d}", second, int(part))
        for event, sets in enumerate(performed)
        for second, part in enumerate(sets.split())
    ]
    return [
        Element(youtube, "E_1_9", f"A_{second}", second, second + 1, Category(0, part, "floor exercise", ""), "train")
        for youtube, second, part in reversed(parts)
    ]


def test_sets_are_ordered_by_their_mean_rank_and_ties_by_number() -> None:
    assert prototype_order(elements("24 21", "22")) == {"floor exercise": (24, 22, 21)}
    assert prototype_order(elements("24 21", "21 24")) == {"floor exercise": (21, 24)}
    # 21: 0, ½ and 1; 25: ½ and 0; 22: 1.
    assert prototype_order(elements("21 25 22", "25 21 21")) == {"floor exercise": (25, 21, 22)}


def test_every_split_follows_the_training_order(tmp_path: Path) -> None:
    train = finegym.load(write(tmp_path), split="train")
    assert [video.notes["sets"] for video in train] == ["24 21 22", "24 24 21", "22"]
    assert len(finegym.load(tmp_path, split="all")) == 5


def test_an_event_in_both_lists_is_two_videos(tmp_path: Path) -> None:
    with (write(tmp_path) / "gym99_train_element_v1.0.txt").open("a") as file:
        file.write("ccccccccccc_E_000100_000130_A_0018_0020 6\n")
    lines = TRAIN + "ccccccccccc_E_000100_000130_A_0018_0020 6\n" + TEST
    (tmp_path / "finegym_annotation_info_v1.0.json").write_text(json.dumps(annotate(lines)))
    videos = [video for video in finegym.load(tmp_path, split="all") if video.notes["instance"].startswith("c")]
    assert [(video.id[-5:], video.notes["sets"]) for video in videos] == [("train", "21"), ("_test", "24 24 21 22")]
    assert videos[0].notes["instance"] == videos[1].notes["instance"] == "ccccccccccc_E_000100_000130"


def test_the_order_can_be_given(tmp_path: Path) -> None:
    floor = finegym.load(write(tmp_path), split="test", order={"floor exercise": (22, 21)})[0]
    assert floor.notes["sets"] == "22 21 24 24"
    with pytest.raises(ValueError, match="order of 'floor exercise' names set 99; it has 21, 22, 24"):
        finegym.load(tmp_path, split="test", order={"floor exercise": (99,)})


@pytest.mark.parametrize(("labels", "stages"), [(99, (-1, -1)), (101, (99, 100))])
def test_only_the_third_stage_of_a_vault_has_the_element_label(
    tmp_path: Path, labels: Any, stages: tuple[int, int]
) -> None:
    vault = finegym.load(write(tmp_path), split="test", labels=labels)[1]
    assert vault.action == "vault"
    assert vault.spans == ((41.5, 43.5), (43.5, 44.0), (44.0, 46.5))
    assert vault.intervals == ((0.0, 2.0, stages[0]), (2.0, 2.5, stages[1]), (2.5, 5.0, 0))
    assert len(vault.phase_names) == labels
    assert vault.phase_names[6] == "(FX) switch leap with 0.5 turn"
    assert labels == 99 or vault.phase_names[99:] == finegym.VAULT_STAGES


def test_gym288_counts_its_vault_stages_from_288(tmp_path: Path) -> None:
    vault = finegym.load(write(tmp_path, base=288), split="test", labels=290)[1]
    assert [phase for _, _, phase in vault.intervals] == [288, 289, 0]


def test_original_clips_can_be_had(tmp_path: Path) -> None:
    clips = finegym.load(write(tmp_path), split="test", unit="element", labels=99)
    assert [clip.id for clip in clips][:2] == [
        "ccccccccccc_E_000100_000130_A_0002_0004",
        "ccccccccccc_E_000100_000130_A_0006_0007",
    ]
    assert clips[0].spans == ((102.5, 104.5),)


def test_the_newest_whole_version_and_either_name_of_the_evaluation_list_are_found(tmp_path: Path) -> None:
    write(tmp_path, version="v1.0", evaluation="test")
    (tmp_path / "finegym_annotation_info_v1.1.json").write_text("{}")
    assert len(finegym.load(tmp_path, split="test")) == 2
    (tmp_path / "finegym_annotation_info_v1.0.json").unlink()
    with pytest.raises(FileNotFoundError, match="has no version of both"):
        finegym.load(tmp_path, split="test")


def test_videos_of_any_usual_ending_are_found(tmp_path: Path) -> None:
    (write(tmp_path) / "videos").mkdir()
    (tmp_path / "videos" / "ccccccccccc.mkv").touch()
    assert finegym.load(tmp_path, split="test")[0].path == tmp_path / "videos" / "ccccccccccc.mkv"


def test_clips_without_times_are_reported_once_and_left_out(tmp_path: Path) -> None:
    annotation = annotate(TRAIN, TEST)
    del annotation["ddddddddddd"]
    annotation["ccccccccccc"]["E_000100_000130"]["segments"]["A_0006_0007"]["timestamps"] = [[7, 6]]
    (write(tmp_path) / "finegym_annotation_info_v1.0.json").write_text(json.dumps(annotation))
    with pytest.warns(Problem, match="no times for 2 listed clips") as caught:
        (floor,) = finegym.load(tmp_path, split="test")
    assert len(caught) == 1
    assert floor.notes["sets"] == "24 21 22"


def test_wrong_lines_are_reported_and_wrong_categories_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with (tmp_path / "gym99_val_element.txt").open("a") as file:
        file.write("eeeeeeeeeee_E_000100_000130_A_0002_0004 98\nnonsense\n")
    with pytest.warns(Problem, match="2 lines without a known clip and label"):
        assert len(finegym.load(tmp_path, split="test")) == 2
    (tmp_path / "gym99_categories.txt").write_text("Clabel 1\n")
    with pytest.raises(ValueError, match="'Clabel 1' is not a category"):
        finegym.load(tmp_path, split="test")
    with pytest.raises(FileNotFoundError, match=r"gym288_categories\.txt: download"):
        finegym.load(tmp_path, split="test", labels=288)


def test_the_real_lists(real: Callable[[str], Path]) -> None:
    root = real("finegym")
    categories = read_categories(root / "gym99_categories.txt")
    counts = Counter(category.event for category in categories.values())
    assert counts == {"vault": 6, "floor exercise": 35, "balance beam": 33, "uneven bars": 25}
    train = read_elements(root / "gym99_train_element_v1.0.txt", categories=categories, split="train")
    test = read_elements(root / "gym99_test_element.txt", categories=categories, split="test")
    assert (len(train), len(test)) == (20_484, 8_521)
    assert prototype_order(train) == {
        "vault": (1,),
        "floor exercise": (24, 25, 22, 21),
        "balance beam": (33, 32, 31, 34, 35),
        "uneven bars": (43, 42, 41, 44),
    }
    assert len({element.event_id for element in train} & {element.event_id for element in test}) == 265


def test_an_annotation_of_another_shape_loses_its_clips_and_nothing_else(tmp_path: Path) -> None:
    file = write(tmp_path) / "finegym_annotation_info_v1.0.json"
    annotation = json.loads(file.read_text())
    annotation["ccccccccccc"]["E_000100_000130"]["timestamps"] = None
    annotation["ddddddddddd"]["E_000040_000060"]["segments"]["A_0001_0006"]["timestamps"] = [[1, 2, 3]]
    file.write_text(json.dumps(annotation))
    with pytest.warns(Problem, match="no times for 5 listed clips: ccccccccccc_E"):
        assert finegym.load(tmp_path, split="test") == []
    assert len(finegym.load(tmp_path, split="train")) == 3


def write_films(root: Path) -> Path:
    """Write a miniature set whose Gym288 has one clip more, with films of 20 frames per second."""
    write(root)
    write(root, base=288)
    with (root / "gym288_val_element.txt").open("a") as file:
        file.write("ccccccccccc_E_000100_000130_A_0013_0014 7\n")
    annotation = annotate(TRAIN, TEST, "ccccccccccc_E_000100_000130_A_0013_0014 7\n")
    (root / "finegym_annotation_info_v1.0.json").write_text(json.dumps(annotation))
    (root / "videos").mkdir()
    for letter, seconds in (("c", 118), ("d", 48)):
        write_video(root / "videos" / f"{letter * 11}.mp4", count=4 * seconds, rate=4, height=32, width=32)
    return root


LABEL_SETS: tuple[dict[str, Any], ...] = (
    {"labels": 101},
    {"labels": 290},
    {"labels": 99, "unit": "element"},
    {"labels": 288, "unit": "element"},
)


def test_one_store_serves_every_label_set_with_its_own_frames(tmp_path: Path) -> None:
    root, folder = write_films(tmp_path), tmp_path / "store"
    found = list_files("finegym", root, split="test", options={"labels": [101, 290]})
    assert fill_store(folder, sources(found), size=(32, 32), workers=2).broken == {}
    store = FrameStore(folder)
    assert len(store) == 8  # five clips of the floor exercise and three stages of the vault, each once
    events = [finegym.load(root, split="test", labels=labels)[0] for labels in (101, 290)]
    assert events[0].id == events[1].id
    assert events[0].spans != events[1].spans
    for chosen in LABEL_SETS:
        videos = finegym.load(root, split="test", **chosen)
        opened = open_frame_source(ImageEncoder(size=(32, 32), weights="saved"), videos, store=folder)
        assert opened.videos == videos
        for video in videos:
            frames = np.arange(opened.frame_count(video))
            stored, decoded = opened.read(video, frames), read_images(video, frames, size=(32, 32))
            assert np.array_equal(stored[0], decoded[0])
            assert stored[1] == pytest.approx(decoded[1])


def test_a_store_refuses_frames_of_other_spans_and_of_another_file(tmp_path: Path) -> None:
    root, folder = write_films(tmp_path), tmp_path / "store"
    fill_store(folder, sources(list_files("finegym", root, split="test")), size=(32, 32))
    encoder = ImageEncoder(size=(32, 32), weights="saved")
    with pytest.warns(Problem, match=r"1 videos .*not in .*--labels and --unit"):
        finer = open_frame_source(encoder, finegym.load(root, split="test", labels=290), store=folder)
    assert [video.action for video in finer.videos] == ["vault"]
    write_video(root / "videos" / "ccccccccccc.mp4", count=480, rate=4, height=32, width=32)
    with pytest.warns(Problem, match="was filled from other files of these names"):
        opened = open_frame_source(encoder, finegym.load(root, split="test"), store=folder)
    assert [video.action for video in opened.videos] == ["vault"]
    for file in (root / "videos").iterdir():
        file.unlink()
    assert len(open_frame_source(encoder, finegym.load(root, split="test"), store=folder).videos) == 2


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_film_is_demuxed_once_for_all_its_clips_and_decoded_only_there(tmp_path: Path, workers: int) -> None:
    root, count = write_films(tmp_path), tmp_path / "count"
    count.mkdir()
    # Worker processes are started fresh, so they count in files.
    code = (
        "import sys, uuid; from pathlib import Path; from inphase.media import decode; "
        "original = decode._index_frames; "
        "decode._index_frames = lambda path: (Path(sys.argv[3], uuid.uuid4().hex).touch(), original(path))[1]\n"
    )
    (tmp_path / "counted.py").write_text(code)
    script = (
        "import counted, sys\n"
        "from pathlib import Path\n"
        "if __name__ == '__main__':\n"
        "    from inphase.data.frame_source import list_files, sources\n"
        "    from inphase.media.frame_store import fill_store\n"
        "    found = sources(list_files('finegym', Path(sys.argv[1]), split='test', options={'labels': [101, 290]}))\n"
        f"    fill_store(sys.argv[2], found, size=(32, 32), workers={workers})\n"
    )
    (tmp_path / "fill.py").write_text(script)
    words = [sys.executable, str(tmp_path / "fill.py"), str(root), str(tmp_path / "store"), str(count)]
    subprocess.run(words, check=True, cwd=tmp_path)
    assert len(FrameStore(tmp_path / "store")) == 8
    assert len(list(count.iterdir())) == 2  # films, of eight clips


def frames_of(root: Path, **chosen: Any) -> list[list[int]]:
    """Read the numbers of all frames of every test video."""
    videos = finegym.load(root, split="test", **chosen)
    return [numbers_of(read_images(video, np.arange(file_length(video)))[0]) for video in videos]


@pytest.mark.parametrize("kind", ["events", "processed_videos", "subactions"])
def test_events_and_clips_that_are_cut_already_show_the_same_frames(tmp_path: Path, kind: str) -> None:
    """As mmaction2 and CARL hand them out: a file for each event, or for each labeled clip."""
    root = write(tmp_path)
    (root / "videos").mkdir()
    for letter, seconds in (("c", 118), ("d", 48)):
        write_video(root / "videos" / f"{letter * 11}.mp4", count=2 * seconds, rate=2)
    expected = [frames_of(root), frames_of(root, labels=99, unit="element")]
    assert [len(frames) for frames in expected[0]] == [14, 10]
    annotation = json.loads((root / "finegym_annotation_info_v1.0.json").read_text())
    (root / kind).mkdir()
    for youtube in ("ccccccccccc", "ddddddddddd"):
        for key, event in annotation[youtube].items():
            (begin, end), segments = event["timestamps"][0], event["segments"]
            cuts = {f"{youtube}_{key}": (begin, end)}
            if kind == "subactions":
                cuts = {f"{youtube}_{key}_{name}": (begin + clip["timestamps"][0][0], begin + clip["timestamps"][-1][1])
                        for name, clip in segments.items()}  # fmt: skip
            for name, (start, stop) in cuts.items():
                cut = read_spans(root / "videos" / f"{youtube}.mp4", [(start, stop)]).frames
                write_video(root / kind / f"{name}.mp4", count=len(cut), rate=2, images=list(cut))
    for file in (root / "videos").iterdir():
        file.unlink()
    assert [frames_of(root), frames_of(root, labels=99, unit="element")] == expected
    floor = finegym.load(root, split="test")[0]
    assert bool(floor.span_paths) == (kind == "subactions")
    store = tmp_path / "store"
    fill_store(store, sources(list_files("finegym", root, split="test")), size=(64, 96))
    found = open_frame_source(ImageEncoder(size=(64, 96), weights="saved"), [floor], store=store)
    assert numbers_of(found.read(floor, np.arange(14))[0]) == expected[0][0]
