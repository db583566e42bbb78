"""Delta commits that a crash has taken."""

from pathlib import Path


def forget(broker, topic, *, versions, partition=0):
    """Takes the newest delta commits of a partition away, as if they had never been made."""
    log = Path(broker.data_dir) / f"topic={topic}-part={partition}" / "_delta_log"
    commits = sorted(
        path for path in log.glob("*.json") if path.name.split(".")[0].isdigit() and path.suffix == ".json"
    )
    commits = [path for path in commits if "checkpoint" not in path.name]
    assert len(commits) > versions
    for path in commits[-versions:]:
        path.unlink()
