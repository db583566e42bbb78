"""A network that a test can cut: a TCP proxy on this machine in front of one address.

While it is cut, nothing passes and nothing breaks, as when packets are dropped: connections stay open, new ones are
accepted, and bytes wait. When it is healed, what was under way arrives after all, late.
"""

import socket
import threading
from contextlib import suppress

CHUNK_BYTES = 65_536


class TcpProxy:
    """Passes connections on to a port of this machine; a context manager.

    Attributes:
        port: where it listens.
        target_port: where connections go; may be set after the proxy is made, before the first one comes.
    """

    def __init__(self, target_port=0):
        self.target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._is_whole = threading.Event()
        self._is_whole.set()
        self._is_ending = False
        self._sockets = []
        self._threads = []
        self._start(self._accept)

    @property
    def address(self):
        """What a client calls `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def cut(self):
        """From now on nothing passes."""
        self._is_whole.clear()

    def heal(self):
        """What waited goes on, and everything after it."""
        self._is_whole.set()

    def close(self):
        """Ends all connections."""
        self._is_ending = True
        self._is_whole.set()
        for found in (self._listener, *self._sockets):
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
            found.close()
        for thread in self._threads:
            thread.join()

    def _start(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                self._start(self._connect, near)

    def _connect(self, near):
        self._is_whole.wait()
        with suppress(OSError):
            far = socket.create_connection(("127.0.0.1", self.target_port))
            self._sockets.append(far)
            if not self._is_ending:
                self._start(self._pass_on, near, far)
                self._pass_on(far, near)
            return
        near.close()

    def _pass_on(self, source, sink):
        with suppress(OSError):
            while content := source.recv(CHUNK_BYTES):
                self._is_whole.wait()
                sink.sendall(content)
        with suppress(OSError):
            self._is_whole.wait()
            sink.shutdown(socket.SHUT_WR)
