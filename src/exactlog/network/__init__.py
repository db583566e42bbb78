"""The TCP server: it cuts a byte stream into frames and sends answers back in the order of their frames.

A frame is a 4-byte big-endian size and that many bytes. What is in them is the business of a `FrameHandler`.
"""

from exactlog.network.connection import Connection, FrameHandler, Peer
from exactlog.network.limits import NetworkLimits
from exactlog.network.reply import Reply
from exactlog.network.server import ListenError, TcpServer

__all__ = ["Connection", "FrameHandler", "ListenError", "NetworkLimits", "Peer", "Reply", "TcpServer"]
