"""How the virtual machines of tests run: they live for seconds, and share two cores with what is tested."""

import os
from typing import Final

QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData")
"""No compiling for speed that never pays, no threads that collect garbage beside."""

_SPARK: Final = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS")
"""What Spark's scripts hand to a driver, to the program that finds its command, and to a master or worker."""


def start_spark_quickly() -> None:
    """Lets every Spark that this process starts from here on, or a child of it, start so; unless told otherwise."""
    for name in _SPARK:
        os.environ.setdefault(name, " ".join(QUICK_START))
