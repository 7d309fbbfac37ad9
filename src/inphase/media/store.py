"""A store of decoded frames with exact random access, read without a codec.

A store is a folder: one file per recording, and the index that names those which are whole (`inphase.media.index`).
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from inphase.media.errors import StoreError
from inphase.media.frames import Clip
from inphase.media.index import Entry, bytes_of_frames, is_whole, read_index


class FrameStore(Mapping[str, Clip]):
    """The clips of a store by the id of their recording, each mapped into memory and read where it is used."""

    def __init__(self, folder: Path | str) -> None:
        """Open the store in `folder` as far as it is written."""
        self.folder = Path(folder)
        self.size, entries = read_index(self.folder)
        self._entries = {id: entry for id, entry in entries.items() if not entry.broken}
        self.broken = {id: entry.broken for id, entry in entries.items() if entry.broken}
        self.damaged = {id: entry.damage for id, entry in entries.items() if entry.damage}

    def __getitem__(self, id: str) -> Clip:
        """Open one clip; its frames stay on disk until they are indexed."""
        if id in self.broken:
            raise StoreError(f"{id} is not in {self.folder}, since it could not be decoded: {self.broken[id]}")
        entry = self._entries[id]
        if not is_whole(self.folder, entry, size=self.size):
            raise StoreError(f"{self.folder / entry.file} ({id}) is not as it was written: cache the recording again")
        pixels, shape = bytes_of_frames(entry, self.size), (entry.frames, *self.size, 3)
        stored = np.memmap(self.folder / entry.file, dtype=np.uint8, mode="r")
        times = np.frombuffer(stored[pixels:].tobytes(), dtype="<f8").astype(np.float64)
        # A plain view of the mapping: np.memmap makes every later slice pay for its subclass.
        return Clip(np.asarray(stored)[:pixels].reshape(shape), times)

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
        if not is_whole(self.folder, entry, size=self.size):
            return False
        with (self.folder / entry.file).open("rb") as file:
            return hashlib.file_digest(file, hashlib.blake2b).hexdigest() == entry.digest
