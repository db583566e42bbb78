"""A node keeps the data directory it was created with, and lets go of all it has when it cannot start."""

import socket

import pytest

from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.model.errors import ConfigError
from exactlog.network.server import ListenError
from exactlog.node.node import Node
from exactlog.storage.catalog import Catalog


async def start_and_stop(config):
    node = Node(config)
    await node.start()
    await node.stop()


async def test_a_data_directory_keeps_the_node_id_it_was_created_with(tmp_path):
    await start_and_stop(BrokerConfig(data_dir=tmp_path, port=0, node_id=4))

    with pytest.raises(ConfigError, match=r"that of node 4, and node\.id is 5") as caught:
        await start_and_stop(BrokerConfig(data_dir=tmp_path, port=0, node_id=5))

    assert caught.value.hint == "Set node.id to 4, or use another data directory."
    await start_and_stop(BrokerConfig(data_dir=tmp_path, port=0, node_id=4))


async def test_a_node_that_cannot_listen_closes_its_catalog_and_lets_go_of_the_directory(tmp_path, monkeypatch):
    closed = []
    close = Catalog.close
    monkeypatch.setattr(Catalog, "close", lambda catalog: (closed.append(catalog), close(catalog)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(ListenError):
            await start_and_stop(BrokerConfig(data_dir=tmp_path, port=taken.getsockname()[1]))
        assert len(closed) == 1

    await start_and_stop(BrokerConfig(data_dir=tmp_path, port=0))
