"""OpenML's files through a server of our own that answers like it, and breaks off, lies and falls silent like any."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from margindist.datasets import DataError, load, openml, read_file

pytest.importorskip("pandas")

GLASS = "\n".join(
    ["@relation glass", "@attribute id integer"]
    + [f"@attribute a{k} real" for k in range(9)]
    + ["@attribute Type {" + ",".join("abcdef") + "}", "@data"]
    + [",".join([str(i), *(f"{(i * (k + 3)) % 101 / 7:.4f}" for k in range(9)), "abcdef"[i % 6]]) for i in range(214)]
).encode()


class OpenML:
    """What the server has, and how it behaves."""

    def __init__(self):
        self.said = {
            "id": "41", "name": "glass", "format": "ARFF", "default_target_attribute": "Type",
            "row_id_attribute": "id", "md5_checksum": hashlib.md5(GLASS).hexdigest(),
        }  # fmt: skip
        self.file, self.ranges, self.break_after, self.refuse = GLASS, True, None, {}
        self.asked = []

    def answer(self, request):
        path = request.path
        self.asked.append((path, request.headers.get("Range")))
        for part, code in self.refuse.items():
            if part in path:
                request.send_error(code)
                return
        if path.startswith("/api/v1/json/data/list/data_name/"):
            self._send(request, json.dumps({"data": {"dataset": [{"did": 41}]}}).encode())
        elif path == "/api/v1/json/data/41":
            self._send(request, json.dumps({"data_set_description": self.said}).encode())
        else:
            self._send_file(request)

    def _send_file(self, request):
        begin = int((request.headers.get("Range") or "bytes=0-")[6:-1]) if self.ranges else 0
        if begin >= len(self.file):
            request.send_error(416)
            return
        headers = {"Content-Range": f"bytes {begin}-{len(self.file) - 1}/{len(self.file)}"} if begin else {}
        self._send(request, self.file[begin:], 206 if begin else 200, headers, self.break_after)

    def _send(self, request, content, code=200, headers=(), most=None):
        request.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **dict(headers)}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content[:most])


@pytest.fixture
def server(monkeypatch, tmp_path):
    site = OpenML()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            site.answer(self)

        def log_message(self, *args):
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    site.url = f"http://127.0.0.1:{listening.server_port}"
    site.said["url"] = f"{site.url}/data/glass.arff"
    site.folder = tmp_path / "kept" / "margindist"
    monkeypatch.setattr(openml, "SERVER", site.url)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "kept"))
    monkeypatch.delenv("MARGINDIST_DATA", raising=False)
    yield site
    listening.shutdown()
    listening.server_close()


def refusal(name="glass"):
    with pytest.raises(DataError) as caught:
        load(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_set_is_fetched_once(server):
    first = load("glass")
    assert first.X.shape == (214, 9)
    assert set(first.y) == set("abcdef")
    assert first.source == "OpenML, glass"
    assert first.feature_names == tuple(f"a{k}" for k in range(9))  # neither the target nor the number of the row
    asked = len(server.asked)
    assert load("glass").checksum == first.checksum
    assert len(server.asked) == asked == 2


def test_a_download_goes_on_where_it_broke_off(server):
    server.break_after = 2000
    assert "broke off after 6,000 bytes; try again" in refusal()
    assert [asked for _, asked in server.asked if asked] == ["bytes=2000-", "bytes=4000-"]
    server.break_after, server.asked = None, []
    assert load("glass").X.shape == (214, 9)
    assert ("/data/glass.arff", "bytes=6000-") in server.asked
    assert not list(server.folder.glob("*.part"))


def test_a_server_without_ranges_sends_all_of_it_again(server):
    server.ranges, server.break_after = False, 2000
    assert "broke off after 2,000 bytes" in refusal()
    server.break_after = None
    assert load("glass").X.shape == (214, 9)


def test_a_part_that_is_the_whole_is_taken(server):
    server.folder.mkdir(parents=True)
    (server.folder / "glass-41.arff.part").write_bytes(GLASS)
    assert load("glass").X.shape == (214, 9)


def test_damage_is_noticed_on_arrival_and_afterwards(server):
    server.file = GLASS.replace(b"1.4286", b"1.4287", 1)
    assert "damaged" in refusal()
    server.file = GLASS
    whole = load("glass").checksum
    kept = server.folder / "glass-41.arff"
    kept.write_bytes(GLASS[:-100])
    assert load("glass").checksum == whole
    (server.folder / "glass-41.json").write_text("{")
    assert load("glass").checksum == whole


def test_another_set_or_shape_is_refused(server):
    server.said["name"] = "grass"
    assert "data set 41 is grass, expected glass" in refusal()
    server.said |= {"name": "glass", "row_id_attribute": None}
    assert "expected 214 rows, 9 features and 6 classes, got 214, 10 and 6" in refusal()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"default_target_attribute": "Kind"}, "no column 'Kind'"),
        ({"url": "file:///etc/passwd"}, "expected an address on the web"),
        ({"name": None}, "is None, expected glass"),
    ],
)
def test_descriptions_that_do_not_fit(server, change, sentence):
    server.said |= change
    assert sentence in refusal()


def test_rows_without_a_label_are_left_out(server):
    server.file = GLASS + b"\n214,1,1,1,1,1,1,1,1,1,?"
    server.said["md5_checksum"] = hashlib.md5(server.file).hexdigest()
    assert load("glass").X.shape == (214, 9)


def test_a_file_that_is_all_labels(server):
    server.said["ignore_attribute"] = [f"a{k}" for k in range(9)]
    assert "no column besides" in refusal()


def test_a_description_without_what_is_needed(server):
    del server.said["default_target_attribute"]
    assert "cannot be understood" in refusal()


def test_a_server_that_refuses_or_is_not_there(server, monkeypatch):
    server.refuse = {"/data/41": 412}
    assert "no longer has it" in refusal()
    server.refuse = {"/data/41": 503}
    assert "did not answer (503" in refusal()
    server.refuse = {"glass.arff": 404}
    assert "did not answer (404" in refusal()
    monkeypatch.setattr(openml, "SERVER", "http://127.0.0.1:1")
    assert "did not answer; check the network" in refusal("sonar")


def test_a_folder_that_cannot_be_written(server, tmp_path, monkeypatch):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "margindist").write_text("in the way")
    assert "set SCIKIT_LEARN_DATA to a folder that can be written" in refusal()


def test_processes_at_once_fetch_it_once(server):
    found = []
    threads = [threading.Thread(target=lambda: found.append(load("glass").checksum)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1
    assert sum(path.endswith(".arff") for path, _ in server.asked) == 1


def test_nominal_columns_are_encoded_as_declared(server, monkeypatch):
    rng = np.random.default_rng(0)
    levels = [2] * 22 + [3] * 8
    values = [np.array(list("012"))[rng.permutation(11055) % n] for n in levels]
    lines = ["@relation p", *(f"@attribute a{k} {{{','.join('012'[:n])}}}" for k, n in enumerate(levels))]
    lines += ["@attribute Result {-1,1}", "@data"]
    lines += [",".join([*row, "1" if i % 2 else "-1"]) for i, row in enumerate(zip(*values))]
    server.file = "\n".join(lines).encode()
    server.said |= {"name": "PhishingWebsites", "default_target_attribute": "Result"}
    server.said["md5_checksum"] = hashlib.md5(server.file).hexdigest()
    monkeypatch.setattr(openml, "_ask", lambda name, recipe: server.said)
    data = load("phishing")
    assert data.X.shape == (11055, 68)
    assert set(np.unique(data.X)) == {0.0, 1.0}


def test_sparse_rows_stay_sparse_and_versions_are_found_by_name(server, tmp_path):
    text = "@relation s\n@attribute a real\n@attribute b real\n@attribute y {-1,1}\n@data\n{0 2, 2 1}\n{1 0.5}\n{}\n"
    server.file = text.encode()
    server.said |= {"name": "real sim", "default_target_attribute": "y", "row_id_attribute": None}
    server.said["md5_checksum"] = hashlib.md5(server.file).hexdigest()
    X, y, names = openml.read_openml("real-sim", {"name": "real sim"})
    assert sp.issparse(X) and names == ("a", "b")
    np.testing.assert_array_equal(X.toarray(), [[2.0, 0.0], [0.0, 0.5], [0.0, 0.0]])
    assert y.tolist() == ["1", "-1", "-1"]
    assert "/api/v1/json/data/list/data_name/real%20sim/limit/2/data_version/1" in [path for path, _ in server.asked]
    (tmp_path / "s.arff").write_text(text)
    assert (read_file(tmp_path / "s.arff").X != X).nnz == 0
    (tmp_path / "s.arff").write_text(text + "1,2,1\n")
    with pytest.raises(DataError, match="line 9: dense and sparse rows in one file"):
        read_file(tmp_path / "s.arff")


def test_a_lock_that_cannot_be_taken_is_one_sentence(server, monkeypatch):
    def connect(*args, **options):
        def fail(command):
            raise openml.sqlite3.OperationalError("disk I/O error")

        return SimpleNamespace(execute=fail, close=lambda: None)

    monkeypatch.setattr(openml.sqlite3, "connect", connect)
    assert "disk I/O error" in refusal()
