"""The local web server of the viewer: it serves the page and the files of one playback, and nothing else."""

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from inphase.playback import INDEX, OpenedPlayback, PlaybackError, open_playback
from inphase.playback.part import AUDIO_TYPES, IMAGE_TYPES, VIDEO_TYPES
from inphase.playback.playback_folder import (
    MARKS,
    MAX_MARKS_BYTES,
    Mark,
    MarksChangedError,
    find_file,
    read_marks,
    write_marks,
)
from inphase.storage.errors import MediaError
from inphase.viewer.page import STATIC, static_files

ADDRESS = "127.0.0.1"
# A browser opens six connections to a host; this many serve all pages that one person has open.
MAX_CONNECTIONS = 512
MAX_REQUEST_SECONDS = 15.0  # from the connection, or the last response, to the end of a request
MAX_UNREAD_SECONDS = 120.0  # of a response that the other side stopped to read, as a paused video does
INTERVAL = 1.0  # seconds between two checks of a connection
TYPES = {
    **VIDEO_TYPES,
    **AUDIO_TYPES,
    **IMAGE_TYPES,
    ".bin": "application/octet-stream",
    ".json": "application/json",
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def serve(
    folder: Path,
    *,
    port: int = 0,
    edit: bool = False,
    on_ready: Callable[[str], None],
    open_browser: bool = False,
) -> None:
    """Serve a playback until interrupted; call `on_ready` with the URL of the page when connections are accepted.

    Port 0 selects a free port. The server listens on the loopback interface only. The URL holds a token that is new at
    every start: without it other users of the machine get nothing. With `edit` the page can save marks to labels.csv
    in the folder.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"port {port} does not exist: choose one from 1 to 65535, or 0 for a free port")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((ADDRESS, port))
        except OSError as error:
            raise ValueError(
                f"port {port} cannot be used ({error.strerror}): choose another, or 0 for a free port"
            ) from error
        listener.listen(128)
        port = listener.getsockname()[1]
        token = secrets.token_urlsafe(24)
        config = uvicorn.Config(
            application(folder, port=port, token=token, edit=edit),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            http=TimedProtocol,
            ws="none",
            timeout_graceful_shutdown=1,
        )
        url = f"http://{ADDRESS}:{port}/?token={token}"
        on_ready(url)
        with browse(url) if open_browser else contextlib.nullcontext():
            uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def browse(url: str) -> Iterator[None]:
    """Open the browser if there is a display; a browser in the terminal would hide the printed URL.

    Every user of a machine can list the arguments of a browser, so it opens a file that leads to the URL, and that
    nobody else can read.
    """
    if sys.platform not in ("win32", "darwin") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        yield
        return
    with tempfile.NamedTemporaryFile("w", prefix="inphase-", suffix=".html", delete=False) as page:
        page.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={url}">')
    webbrowser.open(Path(page.name).as_uri())
    try:
        yield
    finally:
        Path(page.name).unlink(missing_ok=True)


def application(folder: Path, *, port: int, token: str, edit: bool = False) -> ASGIApp:
    """Build the ASGI application that serves one playback to requests for localhost at `port` that hold the token.

    With `edit` it saves marks, too.
    """
    served = ServedPlayback(folder, edit=edit)
    # A route answers GET and HEAD, and 405 to all other methods.
    routes = [Route("/", _page), Route("/static/{name}", _static), Route("/data/{path:path}", served.respond)]
    if edit:
        routes += [Route("/marks", served.marks), Route("/marks", served.save_marks, methods=["PUT"])]
    hosts = {f"{name}:{port}".encode() for name in (ADDRESS, "localhost")}
    if port == 80:  # browsers omit it
        hosts |= {ADDRESS.encode(), b"localhost"}
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return Guard(app, hosts=hosts, cookie=f"inphase-{port}={token}")


class Guard:
    """Refuse requests with a foreign Host header or without the token; add security headers to every response.

    The Host header exposes DNS rebinding: a page of another site whose name was made to resolve to this machine. The
    token is in the address that is printed: opening it sets a cookie and leads to the address without the token. The
    name of the cookie has the port, since a browser sends a cookie to all ports of a host.
    """

    def __init__(self, app: ASGIApp, *, hosts: set[bytes], cookie: str) -> None:
        """Guard `app`; `hosts` are the accepted Host headers, `cookie` the name and the token, joined by "="."""
        self._app, self._hosts, self._cookie = app, hosts, cookie

    def _choose(self, scope: Scope) -> ASGIApp:
        """Choose the application that answers a request."""
        named = [value for name, value in scope["headers"] if name == b"host"]
        if len(named) != 1 or named[0].lower() not in self._hosts:
            return PlainTextResponse("This server accepts requests for its own address only.\n", 421)
        request = Request(scope)
        name, _, token = self._cookie.partition("=")
        if _is_equal(request.cookies.get(name, ""), token):
            return self._app
        if scope["path"] == "/" and _is_equal(request.query_params.get("token", ""), token):
            headers = {"Location": "/", "Set-Cookie": f"{self._cookie}; Path=/; HttpOnly; SameSite=Lax"}
            return Response(status_code=303, headers=headers)
        return PlainTextResponse("Open the whole address that `inphase view` printed: it ends in a token.\n", 403)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        app = self._choose(scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower().encode(): value.encode() for name, value in HEADERS.items()}
                kept = [(name, value) for name, value in message["headers"] if name.lower() not in own]
                message = {**message, "headers": [*kept, *own.items()]}
            await send(message)

        await app(scope, receive, send_guarded)


def _is_equal(given: str, token: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())


class TimedProtocol(H11Protocol):
    """HTTP over a connection that is closed when a request does not arrive, or a response is not read, in time.

    A browser that reads a video slowly asks for the rest again. Connections above `MAX_CONNECTIONS` are closed at once.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first request; refuse connections above the limit."""
        super().connection_made(transport)
        self._waiting_since = self.loop.time()
        self._paused_since: float | None = None
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._slow_check = self.loop.call_later(INTERVAL, self._close_if_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        if hasattr(self, "_slow_check"):
            self._slow_check.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the timeout of a client that does not read."""
        self._paused_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Stop the timeout of a client that reads again."""
        self._paused_since = None
        super().resume_writing()

    def _close_if_slow(self) -> None:
        now = self.loop.time()
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self._waiting_since = now  # the server is at work
        paused = 0.0 if self._paused_since is None else now - self._paused_since
        if now - self._waiting_since > MAX_REQUEST_SECONDS or paused > MAX_UNREAD_SECONDS:
            self.transport.abort()
            return
        self._slow_check = self.loop.call_later(INTERVAL, self._close_if_slow)


class ServedPlayback:
    """The files of one playback; the document is read again when it changes."""

    def __init__(self, folder: Path, *, edit: bool = False) -> None:
        """Serve the playback in `folder`; with `edit` its responses name the file that marks are saved to."""
        self._folder = folder
        self._edit = edit
        self._lock = threading.Lock()
        self._opened: OpenedPlayback | None = None
        self._stamp: object = None

    def open(self) -> OpenedPlayback:
        """Read and check the playback; reuse the last result if the document is unchanged."""
        with self._lock:
            stamp = _stamp(self._folder / INDEX)
            if self._opened is None or stamp != self._stamp:
                self._opened, self._stamp = None, None
                self._opened, self._stamp = open_playback(self._folder), stamp
            return self._opened

    def respond(self, request: Request) -> Response:
        """Send a file of the playback, or the error that makes the playback invalid."""
        path = str(request.path_params["path"])
        try:
            opened = self.open()
        except (PlaybackError, OSError) as error:
            return _json({"error": str(error)}, 422)
        if path not in opened.files:
            return _absent()
        try:  # again: the file may have been replaced by a link since
            file = find_file(self._folder, path)
        except PlaybackError:
            return _absent()
        response = _file(file, Path(path).suffix.lower())
        if self._edit and path == INDEX:
            response.headers["Inphase-Marks"] = MARKS
        return response

    def marks(self, _: Request) -> Response:
        """Send the saved marks and their version."""
        try:
            saved = read_marks(self._folder)
        except (PlaybackError, OSError) as error:
            return _json({"error": str(error)}, 422)
        return _json({"marks": msgspec.to_builtins(saved.marks), "version": saved.version})

    async def save_marks(self, request: Request) -> Response:
        """Replace the saved marks by those of a page of this server, unless their file has changed since.

        A page of another site cannot send this request: its browser asks first, by OPTIONS, and is refused.
        """
        if request.headers.get("origin") != f"http://{request.headers['host']}":
            return _json({"error": "marks are saved from the page of this server only"}, 403)
        try:
            body = await asyncio.wait_for(_read_body(request, MAX_MARKS_BYTES), MAX_REQUEST_SECONDS)
        except TimeoutError:
            return _json({"error": "the marks did not arrive in time: save again"}, 408)
        if body is None:
            return _json({"error": f"the marks have more than {MAX_MARKS_BYTES:,} bytes: save fewer"}, 413)
        return await run_in_threadpool(self._save, body)

    def _save(self, body: bytes) -> Response:
        try:
            given = msgspec.json.decode(body, type=GivenMarks)
            playback = self.open().playback
            if not playback.tracks:
                return _json({"error": "the playback has no video to mark"}, 422)
            end = playback.tracks[playback.reference].duration
            version = write_marks(self._folder, given.marks, version=given.version, end=end)
        except MarksChangedError as error:
            return _json({"error": str(error)}, 409)
        except (msgspec.DecodeError, PlaybackError) as error:
            return _json({"error": f"the marks were not saved: {error}"}, 422)
        except (MediaError, OSError) as error:
            return _json({"error": str(error)}, 507)
        return _json({"version": version})


class GivenMarks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Marks to save, and the version of the marks they replace."""

    marks: tuple[Mark, ...]
    version: str


async def _read_body(request: Request, limit: int) -> bytes | None:
    """Read the body of a request; None if it has more than `limit` bytes."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            return None
    return bytes(body)


def _json(content: object, status: int = 200) -> Response:
    # In ASCII: the path of the folder need not be valid Unicode.
    return Response(json.dumps(content), status, media_type="application/json")


def _stamp(file: Path) -> object:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _page(_: Request) -> Response:
    return _file(STATIC / "index.html", ".html")


def _static(request: Request) -> Response:
    name = str(request.path_params["name"])
    return _file(STATIC / name, Path(name).suffix) if name in static_files() else _absent()


def _file(file: Path, suffix: str) -> Response:
    return FileResponse(file, media_type=TYPES[suffix])


def _absent() -> Response:
    return PlainTextResponse("This playback has no such file.\n", 404)
