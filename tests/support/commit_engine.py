"""Brokers of a whole run on one commit engine, whatever the product's default is (`pytest --engine ...`).

A test that says itself which engine it wants (`config={"commit.engine": ...}`, `--set`) gets that one.
"""

import os
from functools import partial

import exactlog.testing.broker

ENGINES = ("files", "journal")
VARIABLE = "EXACTLOG_COMMIT_ENGINE"

BOTH_ENGINES = (
    "tests/bad_input/test_transaction_requests.py",
    "tests/conformance/protocol/test_answers_wait_for_durability.py",
    "tests/conformance/protocol/test_append_terms.py",
    "tests/conformance/protocol/test_bad_disk.py",
    "tests/conformance/protocol/test_delete_records.py",
    "tests/conformance/protocol/test_incremental_alter_configs.py",
    "tests/conformance/protocol/test_public_transaction_faults.py",
    "tests/conformance/protocol/test_restart.py",
    "tests/conformance/protocol/test_retention.py",
    "tests/conformance/protocol/test_transaction",
    "tests/conformance/protocol/test_txn_offset_commit.py",
    "tests/durability/test_audit_finds_damage.py",
    "tests/durability/test_by_hand.py",
    "tests/durability/test_failing_disk.py",
    "tests/durability/test_readers_beside_a_writer.py",
    "tests/durability/test_sigkill.py",
    "tests/durability/test_transactions_killed.py",
    "tests/seeds/test_ghost_transactions.py::test_a_ghost_is_never_seen",
    "tests/seeds/test_seed_001",
    "tests/seeds/test_seed_004_transactions.py",
    "tests/unit/cli/test_log",
    "tests/unit/node/",
)
"""What `make test` runs on either engine: tests of storage, crashes and transactions that start a broker.

Those that choose an engine themselves (`tests/contract`, the crash matrices of `tests/durability`) take both anyway.
"""


def use_engine(engine: str) -> None:
    """Has brokers run on that engine from now on: those of this process, and those that it starts."""
    os.environ[VARIABLE] = engine
    loaded = exactlog.testing.broker.load_config
    exactlog.testing.broker.load_config = partial(loaded, environment={VARIABLE: engine})
