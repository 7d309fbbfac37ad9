import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from inphase.storage.errors import MediaError
from inphase.storage.files import atomic_write, refuse_overwrite, require_folder


def test_a_file_appears_when_it_is_whole_and_what_fails_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "path.csv"
    with atomic_write(file) as part:
        part.write_text("half")
        assert (part.suffix, file.exists()) == (".csv", False)
    assert file.read_text() == "half"
    with pytest.raises(ZeroDivisionError), atomic_write(file) as part:
        part.write_text(str(1 / 0))
    with pytest.raises(MediaError, match=r"path.csv cannot be written: No such file"), atomic_write(file):
        (tmp_path / "absent" / "x").write_text("")
    assert [path.name for path in tmp_path.iterdir()] == ["path.csv"]
    assert file.read_text() == "half"


def test_two_that_write_one_file_take_turns(tmp_path: Path) -> None:
    file, order = tmp_path / "aligned.txt", []

    def write(name: str) -> None:
        with atomic_write(file) as part:
            order.append(f"{name} begins")
            part.write_text(name * 1000)
            time.sleep(0.05)
            assert part.read_text() == name * 1000
            order.append(f"{name} ends")

    writers = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [word.split()[0] for word in order[::2]] == [word.split()[0] for word in order[1::2]]
    assert file.read_text() == order[-1][0] * 1000
    assert [path.name for path in tmp_path.iterdir()] == ["aligned.txt"]


def test_nobody_waits_for_one_that_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    script = (
        "import sys, time; from pathlib import Path; from inphase.storage.files import atomic_write\n"
        "with atomic_write(Path(sys.argv[1])) as part:\n"
        "    part.write_text('half'); print('there', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(file)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        os.kill(process.pid, signal.SIGKILL)
    assert [path.name for path in tmp_path.iterdir()] == [".x.part.txt"]
    with atomic_write(file) as part:
        part.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]
    assert file.read_text() == "whole"


def test_inputs_and_files_are_not_overwritten(tmp_path: Path) -> None:
    given = tmp_path / "a.mp4"
    given.write_bytes(b"video")
    with pytest.raises(ValueError, match=r"a\.mp4 is a file: choose a folder to write"):
        require_folder(given)
    require_folder(tmp_path)
    (tmp_path / "link.mp4").symlink_to(given)
    with pytest.raises(ValueError, match=r"link\.mp4 would be overwritten: choose another output folder"):
        refuse_overwrite([given], [tmp_path / "new.mp4", tmp_path / "link.mp4"])
    refuse_overwrite([given, tmp_path / "gone.mp4"], [tmp_path / "new.mp4", tmp_path / "gone.mp4"])
