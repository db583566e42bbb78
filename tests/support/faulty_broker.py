"""A broker on a disk that misbehaves when told to."""

import tempfile

from exactlog.node.node import Node
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.testing import Broker, FailingFilesystem
from tests.support.raw_client import RawClient


class FaultyBroker:
    """A broker on a failing file system, with connections to it; only its catalog is on the disk."""

    def __init__(self, config=None):
        self._directory = tempfile.TemporaryDirectory(prefix="exactlog-faulty-")
        content = MemoryFilesystem()
        content.make_directories(self._directory.name)
        self.files = FailingFilesystem(content)
        self.broker = Broker(
            self._directory.name,
            config=config,
            make_node=lambda config, clock: Node(config, clock=clock, filesystem=self.files),
        )
        self._clients = []

    def restart_after_power_cut(self):
        """Starts the broker again on what is certain to be left."""
        self.files = FailingFilesystem(self.files.after_power_cut())
        self.broker.restart()

    def connect(self):
        self._clients.append(RawClient(self.broker.port))
        return self._clients[-1]

    def __enter__(self):
        self.broker.start()
        return self

    def __exit__(self, *error):
        for client in self._clients:
            client.close()
        self.broker.stop()
        self._directory.cleanup()
