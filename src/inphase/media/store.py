"""Stores of what recordings hold, read by the id of the recording, without a codec.

A store is a folder: one file per recording, and the index that names those which are whole (`inphase.media.index`).
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from inphase.media.errors import StoreError
from inphase.media.frames import Clip
from inphase.media.index import Entry, Kind, is_whole, read_index

Item = TypeVar("Item")

FRAMES = "inphase frames 1"


class Store(Mapping[str, Item]):
    """What a store holds, by the id of the recording."""

    frame_bytes: int  # that a frame takes in the files

    def __init__(self, folder: Path, *, format: str) -> None:
        """Open the store in `folder` as far as it is written."""
        self.folder = folder
        self.settings, entries = read_index(folder, format=format)
        self._entries = {id: entry for id, entry in entries.items() if not entry.broken}
        self.broken = {id: entry.broken for id, entry in entries.items() if entry.broken}
        self.damaged = {id: entry.damage for id, entry in entries.items() if entry.damage}

    def _read(self, file: Path, frames: int) -> Item:
        """Read a file that is whole."""
        raise NotImplementedError

    def __getitem__(self, id: str) -> Item:
        """Open one recording."""
        if id in self.broken:
            raise StoreError(f"{id} is not in {self.folder}, since it could not be decoded: {self.broken[id]}")
        entry = self._entries[id]
        if not is_whole(self.folder, entry, frame_bytes=self.frame_bytes):
            raise StoreError(f"{self.folder / entry.file} ({id}) is not as it was written: cache the recording again")
        return self._read(self.folder / entry.file, entry.frames)

    def __contains__(self, id: object) -> bool:
        """Tell whether a recording can be read."""
        return id in self._entries

    def __iter__(self) -> Iterator[str]:
        """Walk through the ids of what can be read."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Count what can be read."""
        return len(self._entries)

    def frames(self, id: str) -> int:
        """Count the frames of a recording without opening its file."""
        return self._entries[id].frames

    def verify(self) -> list[str]:
        """Read everything and list the ids whose bytes are not those that were written."""
        return [id for id, entry in self._entries.items() if not self._is_intact(entry)]

    def _is_intact(self, entry: Entry) -> bool:
        if not is_whole(self.folder, entry, frame_bytes=self.frame_bytes):
            return False
        with (self.folder / entry.file).open("rb") as file:
            return hashlib.file_digest(file, hashlib.blake2b).hexdigest() == entry.digest


class FrameStore(Store[Clip]):
    """The clips of a store by the id of their recording, each mapped into memory and read where it is used.

    A file holds the pictures [T, H, W, 3] uint8 and after them their times [T] float64, little-endian.
    """

    def __init__(self, folder: Path | str) -> None:
        """Open the store in `folder` as far as it is written."""
        super().__init__(Path(folder), format=FRAMES)
        height, width = self.settings["size"]
        self.size = (int(height), int(width))
        self.frame_bytes = kind_of_frames(self.size).frame_bytes

    def _read(self, file: Path, frames: int) -> Clip:
        """Open one clip; its frames stay on disk until they are indexed."""
        stored = np.memmap(file, dtype=np.uint8, mode="r")
        pixels = len(stored) - 8 * frames
        times = np.frombuffer(stored[pixels:].tobytes(), dtype="<f8").astype(np.float64)
        # A plain view of the mapping: np.memmap makes every later slice pay for its subclass.
        return Clip(np.asarray(stored)[:pixels].reshape(frames, *self.size, 3), times)


def kind_of_frames(size: tuple[int, int]) -> Kind:
    """Describe a store of pictures of `size` (height, width) and their times."""
    return Kind(FRAMES, ".frames", size[0] * size[1] * 3 + 8, {"size": list(size)})
