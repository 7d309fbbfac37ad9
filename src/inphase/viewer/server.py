"""Serve a playback to a browser on this machine: the page, the files the playback names, and nothing else."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
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


def serve(folder: Path, *, port: int = 0, ready: Callable[[str], None]) -> None:
    """Serve a playback until interrupted; `ready` is told the address of the page once it answers.

    Port 0 takes any that is free. Only this machine can connect.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"port {port} does not exist: choose one from 1 to 65535, or 0 for any that is free")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((ADDRESS, port))
        except OSError as error:
            raise ValueError(f"port {port} cannot be used ({error.strerror}): choose another, or 0 for any") from error
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
        ready(f"http://{ADDRESS}:{port}/")
        uvicorn.Server(config).run(sockets=[listener])


def application(folder: Path, *, port: int) -> ASGIApp:
    """Build what answers requests for one playback, to a browser that calls this machine by its own name."""
    cache = Shelf(folder)
    # A route answers GET and HEAD, and 405 to all else.
    routes = [Route("/", _page), Route("/static/{name}", _static), Route("/data/{path:path}", cache.answer)]
    hosts = {f"{name}:{port}".encode() for name in (ADDRESS, "localhost")}
    if port == 80:  # browsers leave it out
        hosts |= {ADDRESS.encode(), b"localhost"}
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return Guard(app, hosts=hosts)


class Guard:
    """Let in what a browser on this machine asks for, and send headers that keep the page to itself.

    A page elsewhere whose name was made to point here (DNS rebinding) gives itself away by the Host header.
    """

    def __init__(self, app: ASGIApp, *, hosts: set[bytes]) -> None:
        """Guard `app`, known as `hosts`."""
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        named = [value for name, value in scope["headers"] if name == b"host"]
        app = self._app
        if len(named) != 1 or named[0].lower() not in self._hosts:
            app = PlainTextResponse("This server answers to its own address only.\n", 421)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower().encode(): value.encode() for name, value in HEADERS.items()}
                kept = [(name, value) for name, value in message["headers"] if name.lower() not in own]
                message = {**message, "headers": [*kept, *own.items()]}
            await send(message)

        await app(scope, receive, send_guarded)


class Shelf:
    """The files of one playback, read again when its document changes."""

    def __init__(self, folder: Path) -> None:
        """Look after a folder."""
        self._folder = folder
        self._lock = threading.Lock()
        self._opened: OpenedPlayback | None = None
        self._stamp: object = None

    def open(self) -> OpenedPlayback:
        """Read and check the playback, unless it is the one that was read before."""
        with self._lock:
            stamp = _stamp(self._folder / INDEX)
            if self._opened is None or stamp != self._stamp:
                self._opened, self._stamp = None, None
                self._opened, self._stamp = open_playback(self._folder), stamp
            return self._opened

    def answer(self, request: Request) -> Response:
        """Give a file of the playback, or say what is wrong with it."""
        path = str(request.path_params["path"])
        try:
            opened = self.open()
        except (PlaybackError, OSError) as error:
            return JSONResponse({"error": str(error)}, 422)
        if path not in opened.files:
            return _absent()
        try:  # once more: a link may have been put in its place since
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
    return PlainTextResponse("There is no such file in this playback.\n", 404)
