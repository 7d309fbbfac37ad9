"""What was made last, kept within bounds."""

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memory(Generic[Key, Value]):
    """Values by key, of which those used longest ago are forgotten where all together take more than `room` bytes.

    Threads share one; two that miss the same value at once both make it.
    """

    def __init__(self, *, room: int, size: Callable[[Value], int]) -> None:
        """Begin with nothing; `size` tells the bytes a value takes."""
        self.room, self._size, self._used = room, size, 0
        self._values: dict[Key, Value] = {}
        self._lock = Lock()

    def recall(self, key: Key, make: Callable[[], Value]) -> Value:
        """Give the value of a key, kept from before or made now."""
        with self._lock:
            value = self._values.get(key)
        if value is None:
            value = make()
        with self._lock:
            # A dictionary keeps the order of insertion: the value used longest ago comes first.
            self._used += self._size(value) - self._forget(key)
            self._values[key] = value
            while self._used > self.room and len(self._values) > 1:
                self._used -= self._forget(next(iter(self._values)))
        return value

    def _forget(self, key: Key) -> int:
        """Drop a value and give the bytes it took."""
        value = self._values.pop(key, None)
        return 0 if value is None else self._size(value)
