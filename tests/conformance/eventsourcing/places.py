"""Where the library's own test classes run: on a log in this program, and on a broker that others can use too."""

from collections.abc import Mapping

import pytest
from eventsourcing.persistence import InfrastructureFactory
from eventsourcing.utils import Environment

from exactlog.journal.eventsourcing import Factory
from exactlog.journal.eventsourcing.open_logs import close_open_logs

MODULE = "exactlog.journal.eventsourcing"


class Placed:
    """A test with an environment that says where its own log is, which is closed when it ends."""

    env: Environment
    env_of_class: Mapping[str, str] = {}

    @pytest.fixture(autouse=True)
    def _placed(self, request, tmp_path, monkeypatch):
        self.env = Environment(
            env={
                "PERSISTENCE_MODULE": MODULE,
                "EXACTLOG_URL": self.log_url(request, tmp_path),
                "EXACTLOG_STORE_URL": self.store_url(request, tmp_path),
                **self.env_of_class,
            }
        )
        for name, value in self.env.items():
            monkeypatch.setenv(name, value)  # applications look there
        yield
        close_open_logs()

    def log_url(self, request, tmp_path) -> str:
        raise NotImplementedError

    def store_url(self, request, tmp_path) -> str:
        return f"sqlite:{tmp_path / 'journals.db'}"

    def new_factory(self) -> Factory:
        return InfrastructureFactory.construct(self.env)


class Embedded(Placed):
    def log_url(self, request, tmp_path):
        return f"embedded:{tmp_path / 'log'}"


class OnABroker(Placed):
    def log_url(self, request, tmp_path):
        return f"kafka://{request.getfixturevalue('running_broker').bootstrap_servers}"
