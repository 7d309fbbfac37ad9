"""Table 2 and the supplement: telling fine-grained actions apart, by how the backbone is trained."""

from inphase.reproduction import measures
from inphase.reproduction.figures import bars
from inphase.reproduction.published import ORIGINAL_CLIPS, RECOGNITION, Figures
from inphase.reproduction.study import Changes, Column, Setup, Study, StudyRow, method_rows

# Said by name: the recipes of some collections see motion, whose backbone is always frozen.
MODES: dict[str, Changes] = {
    "scratch": {"encoder": {"name": "image", "mode": "scratch", "weights": None}},
    "train_all": {"encoder": {"name": "image", "mode": "train_all"}},
    "only_bn": {"encoder": {"name": "image", "mode": "only_bn"}},
}


def rows(setup: Setup) -> list[StudyRow]:
    """Train every method in the three settings; poses have no backbone, and a small budget trains none."""
    if setup.modality == "pose" or setup.budget == "small":
        return method_rows(published("only_bn"))
    return [
        row
        for mode, changes in MODES.items()
        for row in method_rows(published(mode), changes=changes, suffix=f", {mode}")
    ]


def one_of_each(setup: Setup, published: Figures) -> list[StudyRow]:
    """Train every method once; of a backbone, where there is one to train, the batch norms alone, as the paper does."""
    trains = setup.modality == "image" and setup.budget != "small"
    return method_rows(published, changes=MODES["only_bn"] if trains else {})


def published(mode: str) -> dict[str, dict[str, float]]:
    """Give what the paper reports of each method, by the labels that are told apart."""
    found = {}
    for method, (fine, finer) in RECOGNITION[mode].items():
        found[method] = {"FineGym101": fine, "FineGym290": finer}
        if mode == "only_bn":
            found[method] |= dict(zip(("FineGym99", "FineGym288"), ORIGINAL_CLIPS[method], strict=True))
    return found


def columns(setup: Setup) -> list[Column]:
    """Measure FineGym at its four sets of labels; elsewhere the phases, beside the paper's FineGym101."""
    if setup.data != "finegym":
        return [*measures.accuracy(setup, paper="FineGym101"), *measures.tau(), *measures.health()]
    found = []
    for labels in (101, 290):
        trained: Changes = {"data": {"labels": labels}}
        found += measures.accuracy(setup, paper=f"FineGym{labels}", name=str(labels), train=trained)
        # The networks are the same; the classifier learns from, and is asked for, the original short clips.
        clips = {"labels": labels - 2, "unit": "element"}
        name = f"FineGym{labels - 2}"
        found += measures.accuracy(setup, paper=name, name=f"{labels - 2} clips", train=trained, test=clips)
    return [*found, *measures.health()]


STUDY = Study(
    name="recognition",
    title="Fine-grained action recognition (Table 2)",
    about="Frames whose phase a support vector machine on frozen embeddings tells rightly.",
    rows=rows,
    columns=columns,
    unlike=lambda setup: measures.unlike(setup, collection="FineGym"),
    figures=bars,
)
