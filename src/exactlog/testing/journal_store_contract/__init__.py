"""What every store of event journals has to do, as tests that anybody can run against one of their own.

Subclass `JournalStoreContract` under a name that pytest collects, and say with the fixture `open_store` how a store is
opened. The tests are coroutines: pytest-asyncio runs them in its mode `auto`.

    class TestMyStore(JournalStoreContract):
        @pytest.fixture
        def open_store(self):
            return open_my_store  # a `StoreOpener`

The sources are the tables "expected action behaviour" and "how records can be stored" of `store_ports.py`.
"""

from exactlog.testing.journal_store_contract.action_cases import ActionCases
from exactlog.testing.journal_store_contract.expiry_cases import ExpiryCases
from exactlog.testing.journal_store_contract.life_cases import LifeCases
from exactlog.testing.journal_store_contract.opened_store import OpenedStore, StoreOpener
from exactlog.testing.journal_store_contract.pointer_cases import PointerCases
from exactlog.testing.journal_store_contract.read_cases import ReadCases
from exactlog.testing.journal_store_contract.repetition_cases import RepetitionCases
from exactlog.testing.journal_store_contract.snapshot_cases import SnapshotCases
from exactlog.testing.journal_store_contract.storage_cases import StorageCases

__all__ = ["JournalStoreContract", "OpenedStore", "StoreOpener"]


class JournalStoreContract(
    ActionCases,
    StorageCases,
    RepetitionCases,
    LifeCases,
    ReadCases,
    ExpiryCases,
    PointerCases,
    SnapshotCases,
):
    """Every case, on several segment sizes."""
