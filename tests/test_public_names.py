import inphase


def test_every_public_name_is_there_and_no_other() -> None:
    assert set(inphase._HOME) == set(inphase.__all__)
    assert all(getattr(inphase, name).__name__ == name for name in inphase.__all__)
    assert not hasattr(inphase, "smoothDTW")
