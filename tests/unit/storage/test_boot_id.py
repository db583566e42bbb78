"""Under which leader epoch a node was first started since its machine was."""

import pytest

from exactlog.storage import boot_id
from exactlog.storage.boot_id import note_boot
from exactlog.storage.catalog import Catalog


@pytest.fixture
def catalog():
    catalog = Catalog(None)
    yield catalog
    catalog.close()


@pytest.fixture
def boot(monkeypatch, tmp_path):
    """Starts the machine: the operating system has another id from then on."""
    path = tmp_path / "boot_id"
    monkeypatch.setattr(boot_id, "_BOOT_ID", path)
    return lambda name: path.write_text(f"{name}\n")


def test_it_is_the_first_epoch_since_the_machine_was_started_whatever_the_number_of_starts(catalog, boot):
    boot("first")
    assert [note_boot(catalog, epoch) for epoch in (3, 4, 5)] == [3, 3, 3]
    boot("second")
    assert [note_boot(catalog, epoch) for epoch in (6, 7)] == [6, 6]


def test_where_the_operating_system_does_not_tell_it_is_not_known(catalog, boot):
    assert note_boot(catalog, 3) is None
    boot("first")
    assert note_boot(catalog, 4) == 4


def test_a_crash_between_the_two_settings_does_not_make_an_earlier_epoch_of_this_boot(catalog, boot, monkeypatch):
    boot("first")
    note_boot(catalog, 3)
    boot("second")

    put = Catalog.put

    def put_once(catalog, name, value):
        put(catalog, name, value)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "put", put_once)
        with pytest.raises(KeyboardInterrupt):
            note_boot(catalog, 4)

    assert note_boot(catalog, 5) == 5


def test_this_machine_tells(catalog):
    assert note_boot(catalog, 7) in (7, None)
