import numpy as np

from inphase.apps.alignment_files import draw_alignments
from inphase.playback import Pair


def test_both_names_are_written_whatever_their_letters() -> None:
    times, path = np.arange(4) / 30, np.stack([np.arange(4)] * 2, axis=1)
    pair = Pair(0, 1, np.eye(4, dtype=np.float16), times, times, path)
    names = (("a", "b"), ("Ü", "b"), ("Ý", "b"), ("a", "Ü"), ("a", "Ý"))
    assert len({draw_alignments([pair], each).tobytes() for each in names}) == len(names)
