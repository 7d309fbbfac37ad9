import numpy as np
import pytest

from inphase.apps.align_videos import medoid, synchronize
from inphase.apps.matching import match, pair_cost
from tests.apps.curves import on_curve

LINE = np.linspace(0, 1, 60)


@pytest.mark.parametrize("cost", ["contrastive", "cosine"])
def test_all_follow_the_reference(cost: str) -> None:
    slow, curved = on_curve(np.linspace(0, 1, 90)), on_curve(np.linspace(0, 1, 70) ** 1.5)
    found = synchronize([on_curve(LINE), slow, curved], cost=cost)  # type: ignore[arg-type]
    truth = np.stack([np.arange(60), LINE * 89, LINE ** (1 / 1.5) * 69], axis=1) / 30
    assert np.abs(found.seconds - truth)[5:-5].max() < 2 / 30
    assert (np.diff(found.seconds, axis=0) >= 0).all()
    np.testing.assert_array_equal(found.clock, found.seconds[:, 0])


def test_another_reference_keeps_its_own_clock() -> None:
    found = synchronize([on_curve(LINE), on_curve(np.linspace(0, 1, 90))], reference=1)
    assert len(found.clock) == 90
    np.testing.assert_array_equal(found.seconds[:, 1], found.clock)
    with pytest.raises(ValueError, match="reference 2 does not exist"):
        synchronize([on_curve(LINE), on_curve(LINE)], reference=2)


def test_a_short_action_is_found_inside_a_long_recording() -> None:
    long = on_curve(np.linspace(0, 1, 300))
    short = on_curve(np.linspace(0.4, 0.6, 30))
    seconds = synchronize([short, long], subsequence=True).seconds[:, 1]
    np.testing.assert_allclose(seconds[[0, -1]], np.array([0.4, 0.6]) * 299 / 30, atol=0.1)


def test_smoothing_makes_the_warp_steady() -> None:
    noisy = [on_curve(LINE, noise=0.2), on_curve(np.linspace(0, 1, 90), noise=0.2, seed=1)]
    rough, smooth = (synchronize(noisy, smooth=smooth).seconds[:, 1] for smooth in (0.0, 0.5))
    assert np.abs(np.diff(smooth, 2)).max() < np.abs(np.diff(rough, 2)).max() / 3
    assert np.abs(smooth - LINE * 89 / 30)[5:-5].mean() <= np.abs(rough - LINE * 89 / 30)[5:-5].mean() + 0.005


def test_the_medoid_is_in_the_middle() -> None:
    middle = on_curve(LINE)
    strangers = [on_curve(LINE, noise=0.6, seed=seed) for seed in (1, 2, 3)]
    assert medoid([strangers[0], strangers[1], middle, strangers[2]]) == 2


def test_a_single_frame_goes_with_all() -> None:
    found = match(on_curve([0.5]), on_curve(LINE))
    assert found.path.tolist() == [[0, j] for j in range(60)]
    assert match(on_curve(LINE), on_curve([0.5])).seconds.tolist() == [0.0] * 60


def test_the_contrastive_cost_treats_both_alike() -> None:
    import torch

    x, y = (torch.from_numpy(on_curve(np.linspace(0, 1, n), noise=0.1).values) for n in (7, 5))
    torch.testing.assert_close(pair_cost(x, y), pair_cost(y, x).T)


def test_embeddings_of_different_encoders_are_refused() -> None:
    other = on_curve(LINE)
    wide = type(other)(np.concatenate([other.values] * 2, axis=1), other.times)
    with pytest.raises(ValueError, match="6 and 12 dimensions"):
        match(other, wide)
