"""Files that appear whole or not at all."""

import errno
import os
import threading

import pytest

from margindist.files import write_whole, written_whole


def test_text_and_bytes_take_the_place_of_what_was_there(tmp_path):
    path = tmp_path / "page.html"
    for content, expected in [("±", "±".encode()), (b"\x00longer", b"\x00longer"), ("", b"")]:
        write_whole(path, content)
        assert path.read_bytes() == expected
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError("no good")])
def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "page.html"
    write_whole(path, "old")
    with pytest.raises((KeyboardInterrupt, ValueError)), written_whole(path) as file:
        file.write(b"half of the new")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_full_disk_names_the_file_and_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    write_whole(path, "old")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError) as caught:
        write_whole(path, "new")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["page.html"]


def test_what_a_killed_process_left_is_overwritten(tmp_path):
    (tmp_path / ".page.html.part").write_text("half of what a killed process would have written")
    write_whole(tmp_path / "page.html", "new")
    assert (tmp_path / "page.html").read_text() == "new"
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.skipif(os.name != "posix", reason="locks")
def test_two_writers_take_turns(tmp_path):
    path = tmp_path / "page.html"
    second = threading.Thread(target=write_whole, args=(path, "second"))
    with written_whole(path) as file:
        file.write(b"fir")
        second.start()
        second.join(0.2)
        assert second.is_alive() and not path.exists()
        file.write(b"st")
    second.join()
    assert path.read_text() == "second"
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name")
def test_what_is_no_file_is_written_to_and_stays(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(path, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert path.is_fifo()
