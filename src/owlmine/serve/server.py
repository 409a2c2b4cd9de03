"""The HTTP server: connections, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Generator

import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from owlmine.serve.app import make_app
from owlmine.serve.batching import Batcher
from owlmine.serve.explaining import Explainer
from owlmine.serve.figures import Figures
from owlmine.serve.guard import Door, Front
from owlmine.serve.logs import log
from owlmine.serve.models import ServedModels
from owlmine.serve.options import ServeOptions
from owlmine.serve.protocol import GuardedProtocol
from owlmine.serve.state import State

# Requests that were sent before SIGTERM may still lie in the sockets; they are read in this time.
_LAST_READ_SECONDS = 0.25


class _Server(uvicorn.Server):
    """Ends by SIGTERM or SIGINT with status 0, and answers what it has accepted."""

    def __init__(self, config: uvicorn.Config, state: State) -> None:
        super().__init__(config)
        self._state = state

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._state.failure is not None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._state.draining = True
        log("draining", requests=len(self.server_state.tasks))
        for server in self.servers:
            server.close()
        await asyncio.sleep(_LAST_READ_SECONDS)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Without raising the signals again at the end."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run(
    listener: socket.socket,
    models: ServedModels,
    batcher: Batcher,
    figures: Figures,
    state: State,
    options: ServeOptions,
    keys: tuple[str, ...],
) -> None:
    """Answers requests until SIGTERM or SIGINT, or until a model cannot be loaded at the start."""
    explainer = Explainer(options.answer_timeout)
    app: ASGIApp = Door(make_app(models, batcher, explainer, figures, options), batcher, options, keys, state)
    if options.origins:
        app = CORSMiddleware(
            app,
            allow_origins=options.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    try:
        _Server(_config(Front(app, figures), options), state).run(sockets=[listener])
    finally:
        explainer.stop()


def _config(app: ASGIApp, options: ServeOptions) -> uvicorn.Config:
    class Protocol(GuardedProtocol):
        max_connections = options.max_connections
        head_seconds = options.read_timeout

    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=options.keep_alive,  # type: ignore[arg-type]
        timeout_graceful_shutdown=options.drain_timeout,  # type: ignore[arg-type]
    )
