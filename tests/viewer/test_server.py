"""What the server gives, and all that it does not."""

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from inphase import cli
from inphase.playback import INDEX
from inphase.viewer import server
from tests.viewer.conftest import TOKEN, answered, served

POLICY = b"default-src 'self'"


class Answer:
    """An answer as it arrives over the wire."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        self.status = int(first.split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}


def ask(
    url: str,
    path: str | bytes,
    *,
    method: str = "GET",
    host: str | None = "",
    more: tuple[str, ...] = (),
    body: bytes = b"",
) -> Answer:
    """Send a request exactly as written: no client tidies the path."""
    place = urlsplit(url)
    assert place.port is not None
    token = place.query.removeprefix("token=")
    target = path if isinstance(path, bytes) else path.encode()
    hosts = () if host is None else (f"Host: {host or place.netloc}",)
    allowed = (f"Cookie: other=1; inphase-{place.port}={token}",) if token else ()
    lines = "\r\n".join((*hosts, "Connection: close", *allowed, *more)).encode()
    with socket.create_connection(("127.0.0.1", place.port), timeout=10) as wire:
        wire.sendall(method.encode() + b" " + target + b" HTTP/1.1\r\n" + lines + b"\r\n\r\n" + body)
        return Answer(b"".join(iter(lambda: wire.recv(65536), b"")))


@pytest.fixture(scope="module")
def folder(pair_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("served") / "play"
    shutil.copytree(pair_folder, copy)
    (copy / "secret.txt").write_text("secret")
    (copy / "stranger.mp4").write_bytes(b"secret")
    (copy.parent / "secret.txt").write_text("secret")
    return copy


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with served(folder) as found:
        yield found


def test_the_page_and_its_files_come_with_strict_headers(url: str) -> None:
    for path, kind in (
        ("/", b"text/html"),
        ("/static/main.js", b"text/javascript"),
        ("/static/style.css", b"text/css"),
        ("/data/playback.json", b"application/json"),
        ("/data/a.mp4", b"video/mp4"),
        ("/nothing", b"text/plain"),
    ):
        answer = ask(url, path)
        assert answer.headers[b"content-type"].startswith(kind), path
        assert answer.headers[b"content-security-policy"].startswith(POLICY)
        assert b"unsafe" not in answer.headers[b"content-security-policy"]
        assert answer.headers[b"x-content-type-options"] == b"nosniff"
        assert answer.headers[b"cross-origin-resource-policy"] == b"same-origin"
        assert b"server" not in answer.headers
        assert b"access-control-allow-origin" not in answer.headers


def test_byte_ranges_give_the_bytes_asked_for(url: str, folder: Path) -> None:
    content = (folder / "a.mp4").read_bytes()
    whole = ask(url, "/data/a.mp4")
    assert (whole.status, whole.body, whole.headers[b"accept-ranges"]) == (200, content, b"bytes")
    size = len(content)
    for wanted, start, end in (("100-299", 100, 300), (f"{size - 10}-", size - 10, size), ("-7", size - 7, size)):
        part = ask(url, "/data/a.mp4", more=(f"Range: bytes={wanted}",))
        assert part.status == 206
        assert part.body == content[start:end]
        assert part.headers[b"content-range"] == f"bytes {start}-{end - 1}/{size}".encode()
    assert ask(url, "/data/a.mp4", more=(f"Range: bytes={size + 5}-",)).status == 416
    head = ask(url, "/data/a.mp4", method="HEAD")
    assert (head.status, head.body, head.headers[b"content-length"]) == (200, b"", str(size).encode())


OUTSIDE = [
    "/data/../secret.txt", "/data/%2e%2e/secret.txt", "/data/..%2fsecret.txt", "/data/%2e%2e%2fsecret.txt",
    "/data/..%5csecret.txt", "/data/%252e%252e/secret.txt", "/data/%c0%ae%c0%ae/secret.txt", "/data//etc/passwd",
    "/data/%2fetc%2fpasswd", "/data/secret.txt", "/data/stranger.mp4", "/data/", "/data", "/data/arrays/",
    "/data/a.mp4/", "/data/a.mp4%00.txt", "/data/./a.mp4", "/data/file:///etc/passwd", "/static/../server.py",
    "/static/%2e%2e%2fserver.py", "/static/..%2f..%2fcli%2f__init__.py", "/static/index.html%00", "/static/",
    "/static//etc/passwd", "/../../../../etc/passwd", "//etc/passwd", "/server.py", "/data/.playback.json",
]  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_else_is_served(url: str, path: str) -> None:
    answer = ask(url, path)
    assert answer.status in (400, 404), answer.body[:200]
    assert b"secret" not in answer.body
    assert b"root:" not in answer.body


@pytest.mark.parametrize("path", [b"/data/\xff\xfe.mp4", b"/data/a b.mp4", b"*", b"http://evil/data/a.mp4", b"a"])
def test_odd_targets_do_no_harm(url: str, path: bytes) -> None:
    assert ask(url, path).status in (400, 404)
    assert ask(url, "/").status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost", "127.0.0.1:1", "[::1]", None]
)
def test_other_hosts_are_not_answered(url: str, host: str | None) -> None:
    answer = ask(url, "/data/playback.json", host=host)
    assert answer.status in (400, 421)
    assert b"inphase playback" not in answer.body


def test_two_host_headers_are_not_answered(url: str) -> None:
    assert ask(url, "/", more=("Host: evil.example",)).status in (400, 421)


def test_the_machine_may_be_called_localhost(url: str) -> None:
    assert ask(url, "/", host=f"localhost:{urlsplit(url).port}").status == 200


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/data/playback.json", "/data/a.mp4", "/nothing"])
@pytest.mark.parametrize("token", ["", "?token=", "?token=wrong", "?token=%ff", "?token=a&token=b"])
def test_without_the_token_nothing_is_answered(url: str, path: str, token: str) -> None:
    bare = url.split("?")[0]
    answer = ask(bare, path + token)
    assert (answer.status, b"ends in a token" in answer.body) == (403, True)
    assert b"set-cookie" not in answer.headers
    assert answer.headers[b"content-security-policy"].startswith(POLICY)
    for cookie in (f"inphase-{urlsplit(url).port}=wrong", f"inphase-1={urlsplit(url).query[6:]}", "\xff"):
        assert ask(bare, path, more=(f"Cookie: {cookie}",)).status == 403
    assert ask(bare, f"/data/playback.json?{urlsplit(url).query}").status == 403, "the token opens the page alone"


def test_the_token_becomes_a_cookie_that_no_script_reads(url: str) -> None:
    answer = ask(url.split("?")[0], f"/?{urlsplit(url).query}")
    assert (answer.status, answer.headers[b"location"]) == (303, b"/")
    cookie, *attributes = answer.headers[b"set-cookie"].decode().split("; ")
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Lax"]
    assert ask(url.split("?")[0], "/data/playback.json", more=(f"Cookie: {cookie}",)).status == 200


def wait_until_closed(wire: socket.socket) -> bool:
    """Read until the other side closes the connection; False after five seconds."""
    wire.settimeout(5)
    try:
        while wire.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


def test_connections_that_are_slow_or_too_many_are_closed(
    pair_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "play"
    shutil.copytree(pair_folder, folder)
    monkeypatch.setattr(server, "INTERVAL", 0.05)
    monkeypatch.setattr(server, "MAX_REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(server, "MAX_UNREAD_SECONDS", 0.5)
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)
    (folder / "b.mp4").write_bytes(bytes(20_000_000))
    with answered(folder) as url, contextlib.ExitStack() as stack:
        port = urlsplit(url).port or 0

        def connect(sent: bytes) -> socket.socket:
            wire = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            wire.sendall(sent)
            return wire

        cookie = f"Host: 127.0.0.1:{port}\r\nCookie: inphase-{port}={TOKEN}\r\n".encode()
        for sent in (b"", b"GET / HT", b"GET /data/b.mp4 HTTP/1.1\r\n" + cookie):
            assert wait_until_closed(connect(sent))
        # The server still holds most of a response that is not read when it closes the connection.
        unread = connect(b"GET /data/b.mp4 HTTP/1.1\r\n" + cookie + b"\r\n")
        time.sleep(1.5)
        unread.settimeout(5)
        received = 0
        with contextlib.suppress(ConnectionError):
            while part := unread.recv(65536):
                received += len(part)
        assert received < 20_000_000
        many = [connect(b"") for _ in range(8)]
        time.sleep(0.2)
        with contextlib.suppress(ConnectionError):
            assert many[-1].recv(1) == b""
        for wire in many:
            wait_until_closed(wire)
        assert ask(url, "/").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_nothing_can_be_changed(url: str, method: str) -> None:
    answer = ask(url, "/data/playback.json", method=method, more=("Content-Length: 0",))
    assert answer.status in (400, 405)
    assert b"inphase playback" not in answer.body
    if answer.status == 405:
        assert sorted(answer.headers[b"allow"].split(b", ")) == [b"GET", b"HEAD"]


def test_no_other_machine_can_connect(url: str) -> None:
    port = urlsplit(url).port
    for family, address in ((socket.AF_INET, _own_address()), (socket.AF_INET6, "::1")):
        if address is None:
            continue
        with socket.socket(family, socket.SOCK_STREAM) as wire:
            wire.settimeout(2)
            assert wire.connect_ex((address, port)) != 0


def _own_address() -> str | None:
    """Find an address of this machine on a network, where it has one."""
    try:
        found = socket.gethostbyname(socket.gethostname())
    except OSError:
        return None
    return None if found.startswith("127.") else found


def test_a_link_put_there_later_is_not_followed(url: str, folder: Path) -> None:
    kept = (folder / "b.mp4").read_bytes()
    assert ask(url, "/data/b.mp4").status == 200
    (folder / "b.mp4").unlink()
    (folder / "b.mp4").symlink_to(folder.parent / "secret.txt")
    try:
        answer = ask(url, "/data/b.mp4")
        assert answer.status == 404
        assert b"secret" not in answer.body
    finally:
        (folder / "b.mp4").unlink()
        (folder / "b.mp4").write_bytes(kept)
    assert ask(url, "/data/b.mp4").body == kept


def test_a_document_that_breaks_is_explained_and_one_that_is_mended_is_served(url: str, folder: Path) -> None:
    good = (folder / INDEX).read_text()
    content = json.loads(good)
    content["tracks"][1]["time_map"]["own"][2] = -1
    (folder / INDEX).write_text(json.dumps(content))
    try:
        answer = ask(url, "/data/playback.json")
        assert answer.status == 422
        assert "tracks[1].time_map: own runs backwards at knot 2" in json.loads(answer.body)["error"]
        assert ask(url, "/data/a.mp4").status == 422
    finally:
        (folder / INDEX).write_text(good)
    assert json.loads(ask(url, "/data/playback.json").body)["version"] == 1


def test_the_command_ends_cleanly_and_says_where_it_listens(folder: Path) -> None:
    command = [sys.executable, "-c", "from inphase.cli import main; main()", "view", str(folder), "--no-open", "--edit"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "plays at http://127.0.0.1:" in line
        url = line.split("plays at ")[1].split()[0]
        assert ask(url, "/data/playback.json").headers[b"inphase-marks"] == b"labels.csv"
        # A browser keeps its connection: that must not hold up the end.
        with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=10) as wire:
            target = f"/?{urlsplit(url).query}".encode()
            wire.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: " + urlsplit(url).netloc.encode() + b"\r\n\r\n")
            assert wire.recv(12) == b"HTTP/1.1 303"
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=10)
    assert process.returncode == 0
    assert rest.strip() == "Closed."
    assert errors == ""


@pytest.mark.parametrize("wrong", ["folder", "port"])
def test_wrong_folders_and_ports_are_one_red_line(
    folder: Path, tmp_path: Path, wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words, message = {
            "folder": ([str(tmp_path)], "no playback.json in"),
            "port": ([str(folder), "--port", str(port)], f"port {port} cannot be used"),
        }[wrong]
        monkeypatch.setattr(sys, "argv", ["inphase", "view", *words, "--no-open"])
        monkeypatch.setenv("COLUMNS", "300")
        with pytest.raises(SystemExit, match="1"):
            cli.main()
    assert message in capsys.readouterr().err


def test_the_browser_is_given_a_file_that_only_its_user_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", opened.append)
    with server.browse("http://127.0.0.1:1/?token=abc"):
        file = Path(urlsplit(opened[0]).path)
        assert "abc" not in opened[0]
        assert "url=http://127.0.0.1:1/?token=abc" in file.read_text(encoding="utf-8")
        assert file.stat().st_mode & 0o077 == 0
    assert not file.exists()
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with server.browse("http://127.0.0.1:1/?token=abc"):
        assert len(opened) == (2 if sys.platform in ("win32", "darwin") else 1)
