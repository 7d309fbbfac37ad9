"""The local web server of the viewer: it serves the page and the files of one playback, and nothing else."""

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inphase.playback import INDEX, OpenedPlayback, PlaybackError, open_playback
from inphase.playback.part import AUDIO_TYPES, IMAGE_TYPES, VIDEO_TYPES
from inphase.playback.playback_folder import find_file
from inphase.viewer.page import STATIC, static_files

ADDRESS = "127.0.0.1"
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


def serve(folder: Path, *, port: int = 0, on_ready: Callable[[str], None]) -> None:
    """Serve a playback until interrupted; call `on_ready` with the URL of the page when connections are accepted.

    Port 0 selects a free port. The server listens on the loopback interface only.
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
        config = uvicorn.Config(
            application(folder, port=port),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            http="h11",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        on_ready(f"http://{ADDRESS}:{port}/")
        uvicorn.Server(config).run(sockets=[listener])


def application(folder: Path, *, port: int) -> ASGIApp:
    """Build the ASGI application that serves one playback to requests for localhost at `port`."""
    served = ServedPlayback(folder)
    # A route answers GET and HEAD, and 405 to all other methods.
    routes = [Route("/", _page), Route("/static/{name}", _static), Route("/data/{path:path}", served.respond)]
    hosts = {f"{name}:{port}".encode() for name in (ADDRESS, "localhost")}
    if port == 80:  # browsers omit it
        hosts |= {ADDRESS.encode(), b"localhost"}
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return HostGuard(app, hosts=hosts)


class HostGuard:
    """Refuse requests with a foreign Host header and add security headers to every response.

    The Host header exposes DNS rebinding: a page of another site whose name was made to resolve to this machine.
    """

    def __init__(self, app: ASGIApp, *, hosts: set[bytes]) -> None:
        """Guard `app`; `hosts` are the accepted Host headers."""
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        named = [value for name, value in scope["headers"] if name == b"host"]
        app = self._app
        if len(named) != 1 or named[0].lower() not in self._hosts:
            app = PlainTextResponse("This server accepts requests for its own address only.\n", 421)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower().encode(): value.encode() for name, value in HEADERS.items()}
                kept = [(name, value) for name, value in message["headers"] if name.lower() not in own]
                message = {**message, "headers": [*kept, *own.items()]}
            await send(message)

        await app(scope, receive, send_guarded)


class ServedPlayback:
    """The files of one playback; the document is read again when it changes."""

    def __init__(self, folder: Path) -> None:
        """Serve the playback in `folder`."""
        self._folder = folder
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
            # In ASCII: the path of the folder need not be valid Unicode.
            return Response(json.dumps({"error": str(error)}), 422, media_type="application/json")
        if path not in opened.files:
            return _absent()
        try:  # again: the file may have been replaced by a link since
            file = find_file(self._folder, path)
        except PlaybackError:
            return _absent()
        return _file(file, Path(path).suffix.lower())


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
