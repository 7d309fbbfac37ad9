"""Whatever writes a file, its permissions are those of the umask, and nothing is left beside it."""

import os
from pathlib import Path

import pytest

from inphase.apps.align_videos import align_videos
from inphase.corpus.align_corpus import align_corpus
from inphase.storage.files import is_draft
from inphase.viewer.page import export
from tests.corpus.test_verify_store import made_cache, made_embeddings, made_frames, made_run
from tests.media.recordings import write_video
from tests.models.test_embed_videos import small


@pytest.mark.slow
@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_files_of_every_command_follow_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        made_cache(tmp_path / "cache")
        for name, make in (("frames", made_frames), ("embeddings", made_embeddings), ("run", made_run)):
            (tmp_path / name).mkdir()
            make(tmp_path / name / "store")
        align_corpus(tmp_path / "embeddings" / "store", tmp_path / "all").write(tmp_path / "all")
        # An .mkv file is converted for the viewer; an .mp4 file is linked, and keeps the permissions that it has.
        films = [write_video(tmp_path / name, count=6) for name in ("a.mkv", "b.mkv")]
        align_videos(films, model=small(context=(0,)), cache=tmp_path / "cache").write(tmp_path / "aligned")
        export(tmp_path / "aligned", tmp_path / "page")
    finally:
        os.umask(before)
    found = {path.relative_to(tmp_path): path for path in tmp_path.rglob("*")}
    assert len(found) > 50
    wrong = {
        str(name): oct(path.stat().st_mode & 0o777)
        for name, path in found.items()
        if path.stat().st_mode & 0o777 != (0o777 if path.is_dir() else 0o666) & ~umask
    }
    assert not wrong
    assert not [name for name, path in found.items() if is_draft(path)]
