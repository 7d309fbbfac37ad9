import pytest

from inphase.storage.settings import call, choose


def test_a_table_is_handed_to_what_it_names() -> None:
    def make(*, size: int, color: str = "red") -> tuple[int, str]:
        return size, color

    made, rest = choose({"a": make}, {"name": "a", "size": 3}, where="thing")
    assert call(made, rest, where="[thing]") == (3, "red")
    with pytest.raises(ValueError, match=r"\[thing\] needs size"):
        call(make, {}, where="[thing]")
    with pytest.raises(
        ValueError, match=r"\[thing\] does not take 'colour': did you mean color\? it takes size, color"
    ):
        call(make, {"size": 1, "colour": "blue"}, where="[thing]")
    with pytest.raises(ValueError, match=r"\[thing\] does not take 'size': it takes color"):
        call(make, {"size": 1}, where="[thing]", size=2)
    with pytest.raises(ValueError, match=r"\[thing\] has the unknown name 'b': choose one of a"):
        choose({"a": make}, {"name": "b"}, where="thing")
    with pytest.raises(ValueError, match=r"\[thing\] has no name"):
        choose({"a": make}, {}, where="thing")
