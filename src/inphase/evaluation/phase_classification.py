"""Phase classification: whether the phase of a frame can be read off its embedding by a support vector machine.

The network is frozen; the machine is trained on the labelled frames of the first n % of each action's training videos
and asked for every labelled frame of the test videos: the fraction that is right. Once over all actions, whose phases
are different classes, and once for each action by itself, averaged over actions. On raw embeddings, as papers do, and
on standardised ones: a radial kernel takes a small scale for a collapse.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import ceil

from inphase.evaluation.classifier import FEATURES, KERNELS, LIMIT, Features, Kernel, accuracy, labelled_frames
from inphase.evaluation.embedded import Embedded, all_constant, by_action, mean, with_phases

Scope = str  # "all", or the name of an action
Progress = Callable[[str, float], None]  # what is being done, and the fraction of all that is


def phase_classification(
    train: Sequence[Embedded],
    test: Sequence[Embedded],
    *,
    kernels: Sequence[Kernel] = KERNELS,
    features: Sequence[Features] = FEATURES,
    fractions: Sequence[float] = (0.1, 0.5, 1.0),
    per_action: bool = True,
    limit: int = LIMIT,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Classify frames; see above. At most `limit` frames, evenly chosen, train a radial kernel.

    Keys: KERNEL/FEATURES/FRACTION, with `/per_action` for the mean of one machine for each action and `/ACTION` for
    each. Undefined where all embeddings are one vector.
    """
    _check(kernels, features, fractions)
    examples = by_action(with_phases(train, role="training"))
    asked = by_action(with_phases(test, role="test"))
    scopes = {"": (examples, asked)}
    if per_action and len(asked) > 1:
        scopes |= {name: ({name: examples[name]}, {name: asked[name]}) for name in asked if name in examples}
    jobs = list(product(scopes, kernels, features, fractions))
    numbers: dict[str, float] = {}
    for done, (scope, kernel, kind, fraction) in enumerate(jobs):
        what = f"{kernel}/{kind}/{fraction:g}{scope and '/' + scope}"
        if progress is not None:
            progress(what, done / len(jobs))
        known, unknown = scopes[scope]
        numbers[what] = _accuracy(known, unknown, kernel, kind, fraction, limit=limit)
    if len(scopes) > 1:
        for kernel, kind, fraction in product(kernels, features, fractions):
            what = f"{kernel}/{kind}/{fraction:g}"
            numbers[f"{what}/per_action"] = mean(numbers[f"{what}/{scope}"] for scope in scopes if scope)
    if progress is not None:
        progress("", 1.0)
    return dict(_headlines_first(numbers))


def _accuracy(
    examples: dict[str, list[Embedded]],
    asked: dict[str, list[Embedded]],
    kernel: Kernel,
    kind: Features,
    fraction: float,
    *,
    limit: int,
) -> float:
    chosen = [item for videos in examples.values() for item in videos[: ceil(fraction * len(videos))]]
    test = [item for videos in asked.values() for item in videos]
    if all_constant(chosen) or all_constant(test):
        return float("nan")
    names: dict[tuple[str, int], int] = {}
    known, unknown = labelled_frames(chosen, names), labelled_frames(test, names)
    return accuracy(known, unknown, kernel=kernel, features=kind, limit=limit)


def _check(kernels: Sequence[str], features: Sequence[str], fractions: Sequence[float]) -> None:
    """Refuse what no classifier is made of."""
    for name, given, known in (("kernels", kernels, KERNELS), ("features", features, FEATURES)):
        if not given or not set(given) <= set(known):
            raise ValueError(f"{name} must be some of {', '.join(known)}, got {list(given)}")
    if not fractions or not all(0 < fraction <= 1 for fraction in fractions):
        raise ValueError(f"fractions of labelled videos must be above 0 and at most 1, got {list(fractions)}")


def _headlines_first(numbers: dict[str, float]) -> Iterator[tuple[str, float]]:
    """Put the numbers over all actions before those of each."""
    yield from (entry for entry in numbers.items() if entry[0].count("/") == 2)
    yield from (entry for entry in numbers.items() if entry[0].endswith("/per_action"))
    yield from (entry for entry in numbers.items() if entry[0].count("/") > 2 and not entry[0].endswith("/per_action"))
