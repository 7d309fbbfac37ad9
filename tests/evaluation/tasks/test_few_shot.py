import numpy as np
import pytest
from scipy.stats import bootstrap, t
from sklearn.svm import SVC

from inphase.evaluation.scores import Score, select, value_of
from inphase.evaluation.tasks.few_shot import few_shot, half_width, plot_few_shot
from tests.evaluation.embeddings import constant, embedded, noisy, performances


def test_phases_that_are_points_need_one_video() -> None:
    phases = np.repeat(np.arange(3), 5)
    videos = [embedded(np.eye(3, dtype=np.float32)[phases], name=str(n), phases=phases) for n in range(8)]
    scores = few_shot(videos[:4], videos[4:], episodes=3)
    assert value_of(scores, "accuracy", setting="k=1") == value_of(scores, "accuracy", setting="k=all") == 1
    assert value_of(scores, "interval", setting="k=1") == 0
    assert not select(scores, setting="k=5")  # there are four


def test_one_episode_of_all_videos_is_a_plain_machine() -> None:
    videos = noisy(performances(8), noise=0.4)
    train, test = videos[:4], videos[4:]
    scores = few_shot(train, test, shots=["all"], kernel="rbf")
    x, y = (np.concatenate([getattr(item, name) for item in train]) for name in ("values", "phases"))
    targets, truth = (np.concatenate([getattr(item, name) for item in test]) for name in ("values", "phases"))
    assert value_of(scores, "accuracy", setting="k=all") == pytest.approx(SVC().fit(x, y).score(targets, truth))
    assert not select(scores, metric="interval", setting="k=all")
    assert value_of(scores, "videos", setting="k=all") == 4


def test_episodes_are_seeded_and_more_videos_help() -> None:
    videos = noisy([*performances(6), *performances(6, action="jump", seed=4)], noise=0.5)
    train, test = videos[::2], videos[1::2]
    scores = few_shot(train, test, shots=[1, 2], episodes=6)
    assert scores == few_shot(train, test, shots=[1, 2], episodes=6)
    assert value_of(scores, "accuracy", setting="k=1") != value_of(
        few_shot(train, test, shots=[1], episodes=6, seed=2), "accuracy", setting="k=1"
    )
    assert value_of(scores, "accuracy", setting="k=1") < value_of(scores, "accuracy", setting="k=2")
    assert value_of(scores, "videos", setting="k=1") == 1


def test_shots_can_be_counted_for_each_class() -> None:
    """Four videos show classes 0 and 1, two show 2 and 3: one shot of each class needs two videos of the action."""
    frames = [np.repeat([0, 1], 5)] * 4 + [np.repeat([2, 3], 5)] * 2
    videos = [
        embedded(np.eye(4, dtype=np.float32)[phases], name=str(n), phases=phases) for n, phases in enumerate(frames)
    ]
    scores = few_shot(videos, videos, shots=[1, 2, 3, 4, "half"], episodes=8, per="class")
    assert value_of(scores, "accuracy", setting="k=1") == 1
    used = {k: value_of(scores, "videos", setting=f"k={k}") for k in (1, 2, 3, "half")}
    assert used == {1: 2, 2: 4, 3: 5, "half": 3}
    assert not select(scores, setting="k=4")  # no class has more than four videos
    plain = few_shot(videos, videos, shots=[1], episodes=8)
    assert value_of(plain, "videos", setting="k=1") == 1
    assert value_of(plain, "accuracy", setting="k=1") < 1
    with pytest.raises(ValueError, match="per must be 'action' or 'class', got 'video'"):
        few_shot(videos, videos, per="video")  # type: ignore[arg-type]


def test_the_interval_is_that_of_scipy() -> None:
    scores = np.random.default_rng(0).normal(size=40)
    low, high = t.interval(0.95, 39, loc=scores.mean(), scale=scores.std(ddof=1) / np.sqrt(40))
    assert half_width(scores.tolist()) == pytest.approx((high - low) / 2)
    rough = bootstrap((scores,), np.mean, rng=np.random.default_rng(0), n_resamples=999).confidence_interval
    assert half_width(scores.tolist()) == pytest.approx((rough.high - rough.low) / 2, rel=0.15)


def test_a_constant_embedding_is_undefined_and_wrong_shots_refused() -> None:
    videos = constant(performances(4))
    assert np.isnan(value_of(few_shot(videos[:2], videos[2:], shots=[1], episodes=2), "accuracy", setting="k=1"))
    with pytest.raises(ValueError, match="shots ≥ 1"):
        few_shot(videos, videos, shots=[0])


def test_the_plot_has_a_curve_for_each_method() -> None:
    curves = {
        name: [
            Score("few_shot", metric, value, setting=setting)
            for metric, setting, value in (
                ("accuracy", "k=1", a),
                ("accuracy", "k=all", b),
                ("interval", "k=1", 0.05),
                ("videos", "k=1", 1),
                ("videos", "k=all", 40),
            )
        ]
        for name, a, b in (("GTA", 0.3, 0.6), ("TCC", 0.2, 0.5))
    }
    axes = plot_few_shot(curves).axes[0]
    drawn = [container.lines[0].get_xydata().tolist() for container in axes.containers]  # type: ignore[attr-defined]
    assert drawn == [[[1, 30], [40, 60]], [[1, 20], [40, 50]]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["GTA", "TCC"]  # type: ignore[union-attr]
