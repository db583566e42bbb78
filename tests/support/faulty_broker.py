"""A broker on a disk that misbehaves when told to."""

from exactlog.node.node import Node
from exactlog.testing import Broker, FailingFilesystem
from tests.support.raw_client import RawClient


class FaultyBroker:
    """A broker on a failing file system, with connections to it."""

    def __init__(self):
        self.files = FailingFilesystem()
        self.broker = Broker(
            config={"in.memory": True}, make_node=lambda config, clock: Node(config, clock=clock, filesystem=self.files)
        )
        self._clients = []

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
