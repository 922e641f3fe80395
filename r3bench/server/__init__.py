"""Replay servers: in this process (:class:`ReplayServer`), or elsewhere, with the same verbs.

One in this process keeps captures on a device and replays through three stages. ``r3bench serve`` offers it to other
processes (:mod:`r3bench.server.service`), which use it through :class:`r3bench.server.remote.RemoteServer`. Everything
above asks a :class:`Server` and does not know which it is.
"""

from r3bench.server.local import ReplayServer
from r3bench.server.requests import Server

__all__ = ["ReplayServer", "Server"]
