"""Runs the service: a socket, the models, the threads that answer, the HTTP server, and an orderly end."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from owlmine.errors import OwlmineError
from owlmine.serve.batching import Batcher
from owlmine.serve.figures import Figures
from owlmine.serve.logs import log, logging_to
from owlmine.serve.models import Loaded, ServedModels
from owlmine.serve.options import KEYS_VARIABLE, ServeOptions
from owlmine.serve.state import State

_MOST_THREADS = 8
_TURN_SECONDS = 0.0005
# Connections that wait until the server has a moment to accept them.
_BACKLOG = 1024
# What the system buffers of an answer. It asks for more when a third is free: with megabytes, somebody who reads slowly
# would look like one who has stopped.
_SEND_BYTES = 1 << 17


def serve(folders: Mapping[str, Path], options: ServeOptions, keys: tuple[str, ...]) -> None:
    """Serves these models by name until SIGTERM or SIGINT. Raises OwlmineError if it cannot start."""
    with logging_to(sys.stderr), closing(_listener(options)) as listener:
        _serve(listener, folders, options, keys)


def _serve(listener: socket.socket, folders: Mapping[str, Path], options: ServeOptions, keys: tuple[str, ...]) -> None:
    address, port = listener.getsockname()[:2]
    if not ipaddress.ip_address(address.partition("%")[0]).is_loopback and not keys:
        log(f"exposed without API keys; set {KEYS_VARIABLE}", level=logging.WARNING, address=address)
    # The event loop and the thread of predictions take turns more often: with 5 ms, Python's own choice, an answer
    # would wait for as long as it takes to compute it.
    sys.setswitchinterval(_TURN_SECONDS)
    figures, state = Figures(), State()
    batcher = Batcher(figures, max_batch=options.max_batch, max_queue=options.max_queue, threads=_threads(options))
    models = ServedModels(folders, figures, warm_up=_warm_up, failed=state.fail)
    batcher.start()
    models.start()
    # While models are being loaded: that takes half a second.
    from owlmine.serve.server import run

    log("listening", address=address, port=port, models=list(folders))
    try:
        run(listener, models, batcher, figures, state, options, keys)
    finally:
        models.stop()
        batcher.stop()
    if state.failure is not None:
        raise state.failure
    log("stopped")


def _listener(options: ServeOptions) -> socket.socket:
    listener = None
    try:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # With its protocol, which create_server leaves out: asyncio sends answers without delay only if it knows TCP.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        listener.bind(address)
        listener.listen(_BACKLOG)
        return listener
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        reason = error.strerror if isinstance(error, OSError) else "not an address"
        raise OwlmineError(f"--host {options.host} --port {options.port}: cannot listen there: {reason}") from error


def _threads(options: ServeOptions) -> int:
    if options.threads is not None:
        return options.threads
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, _MOST_THREADS)


def _warm_up(loaded: Loaded) -> None:
    """Builds what a model makes on its first query."""
    words = loaded.model.classes
    if loaded.model.takes == "text":
        loaded.model.predict([words.names[0]], k=1)
