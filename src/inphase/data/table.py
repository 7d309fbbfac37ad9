"""From a table of a recipe to what it names: its entries are keyword arguments, and the signatures are the schema."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, TypeVar

Table = Mapping[str, Any]
Made = TypeVar("Made")


def call(make: Callable[..., Made], table: Table, *, where: str, **given: Any) -> Made:
    """Call `make` with a table's entries; a key it does not take is refused with those it does."""
    parameters = signature(make).parameters
    takes = [name for name, parameter in parameters.items() if parameter.kind is not Parameter.VAR_KEYWORD]
    accepted = [name for name in takes if name not in given]
    for key in table:
        if key not in accepted:
            near = get_close_matches(key, accepted, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"{where} does not take {key!r}: {hint}it takes {', '.join(accepted) or 'nothing'}")
    missing = [name for name in accepted if parameters[name].default is Parameter.empty and name not in table]
    if missing:
        raise ValueError(f"{where} needs {', '.join(missing)}")
    try:
        return make(**given, **table)
    except TypeError as error:
        raise ValueError(f"{where}: {error}; check the types of {dict(table)}") from error


def choose(kinds: Mapping[str, Made], table: Table, *, where: str) -> tuple[Made, dict[str, Any]]:
    """Find what a table names, and give it with the rest of the table."""
    rest = dict(table)
    name = rest.pop("name", None)
    if name not in kinds:
        said = f"names no {name!r}" if name is not None else "has no name"
        raise ValueError(f"[{where}] {said}: choose one of {', '.join(kinds)}")
    return kinds[name], rest
