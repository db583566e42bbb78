"""What every store of event journals does, in memory and in a SQLite file. (Apache Cassandra: tests/peers.)"""

import pytest

pytest.register_assert_rewrite("exactlog.testing.journal_store_contract")

from exactlog.testing.journal_store_contract import JournalStoreContract  # noqa: E402  rewritten first
from tests.support.opened_stores import open_memory, sqlite_opener  # noqa: E402


class TestMemoryJournalStore(JournalStoreContract):
    @pytest.fixture
    def open_store(self):
        return open_memory


class TestSqliteJournalStore(JournalStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path):
        return sqlite_opener(tmp_path)
