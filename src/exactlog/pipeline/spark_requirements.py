"""What a Spark session needs of a machine, looked for before anything of Java runs: what is missing is one sentence."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from exactlog.core.model.errors import ExactlogError, UnavailableError

JAVA_MIN: Final = 17
"""What Apache Spark 4 runs on at least."""

SPARK_MIN: Final = (4, 2)
"""The first one that asks a Python data source how much it takes at a time (SPARK-53999)."""

SPARK_BELOW: Final = (5, 0)

CLUSTER_PORT_DEFAULT: Final = 7077
CONNECT_TIMEOUT_S: Final = 5.0

INSTALL_HINT: Final = "pip install 'exactlog[spark]' installs what is needed."


class SparkMissingError(ExactlogError):
    """Spark, or a library that it needs, is not installed, or not in a version that will do."""

    code = "spark-missing"


class JavaMissingError(ExactlogError):
    """There is no Java, or not one that Spark runs on."""

    code = "java-missing"


class JarMissingError(ExactlogError):
    """A jar that a session was told to load is not there."""

    code = "jar-missing"


def require_spark() -> None:
    """Check that PySpark and Arrow are installed, in a version that will do.

    Raises:
        SparkMissingError: they are not.
    """
    wanted = f"{SPARK_MIN[0]}.{SPARK_MIN[1]}"
    try:
        import pyspark  # noqa: PLC0415  an extra
    except ImportError as error:
        raise SparkMissingError(f"Spark is not installed: PySpark {wanted} is needed", hint=INSTALL_HINT) from error
    installed = str(pyspark.__version__)
    if not _will_do(installed):
        raise SparkMissingError(
            f"PySpark {installed} is installed; {wanted} or a later version of Spark {SPARK_MIN[0]} is needed",
            hint=INSTALL_HINT,
        )
    home = os.environ.get("SPARK_HOME")
    found = None if home is None else _version_at(Path(home))
    if found is not None and found != installed:
        raise SparkMissingError(
            f"SPARK_HOME ({home}) is Spark {found}, and PySpark is {installed}",
            hint="Unset SPARK_HOME, or let it name the same version.",
        )
    try:
        import pyarrow as pa  # noqa: F401, PLC0415  an extra
    except ImportError as error:
        raise SparkMissingError("Arrow is not installed: PySpark needs pyarrow", hint=INSTALL_HINT) from error


def require_lakehouse() -> None:
    """Check that the Delta library is installed.

    Raises:
        SparkMissingError: it is not.
    """
    try:
        import deltalake  # noqa: F401, PLC0415  an extra
    except ImportError as error:
        raise SparkMissingError(
            "the Delta library is not installed: deltalake is needed",
            hint="pip install 'exactlog[spark,lakehouse]' installs what is needed.",
        ) from error


def require_java() -> None:
    """Check that the Java that Spark will start is there, and is new enough.

    Raises:
        JavaMissingError: it is not.
    """
    program = java_program()
    found = java_version(program)
    if found < JAVA_MIN:
        raise JavaMissingError(
            f"{program} is Java {found}; Spark needs Java {JAVA_MIN} or later",
            hint=f"Install a JDK, {JAVA_MIN} or later, or let JAVA_HOME name one.",
        )


def java_program() -> str:
    """The Java that Spark's own scripts choose: that of JAVA_HOME, else the one on the PATH.

    Raises:
        JavaMissingError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java") if not home else shutil.which(Path(home) / "bin" / "java")
    if program is None:
        where = f"JAVA_HOME is {home}, where there is no bin/java" if home else "there is no java on the PATH"
        raise JavaMissingError(
            f"Spark needs Java {JAVA_MIN} or later: {where}",
            hint=f"Install a JDK, {JAVA_MIN} or later, or let JAVA_HOME name one.",
        )
    return program


def java_version(program: str) -> int:
    """The feature release of a Java: 17, 21; 8 for what called itself 1.8.

    Raises:
        JavaMissingError: it does not say.
    """
    try:
        said = subprocess.run(  # noqa: S603  the program that Spark would start
            [program, "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissingError(f"{program} cannot be run: {error}") from error
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if match is None:
        raise JavaMissingError(f"{program} does not say which version of Java it is")
    return int(match[1])


def require_jars(jars: Iterable[str | Path]) -> None:
    """Check that the jars of the local file system are there; others (`hdfs://...`) are for Spark to find.

    Raises:
        JarMissingError: one is not.
    """
    for jar in jars:
        path = str(jar).removeprefix("file://")
        if "://" not in path and not Path(path).is_file():
            raise JarMissingError(
                f"there is no jar {path}",
                hint="In a checkout, make spark-jars fetches the connector of Kafka into .cache/spark-jars.",
            )


def require_cluster(master: str) -> None:
    """Check that somebody listens at the address of a standalone cluster; Spark itself would try for a minute.

    Raises:
        UnavailableError: nobody does.
    """
    if not master.startswith("spark://"):
        return
    addresses = [_address(each) for each in master.removeprefix("spark://").split(",")]
    refusals = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            refusals.append(f"{host}:{port} ({error.strerror or error})")
        else:
            return
    raise UnavailableError(
        f"no Spark master answers at {', '.join(refusals)}",
        hint="Start the cluster, or leave the master out to run in this process.",
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return (host, int(port)) if host and port.isdecimal() else (text, CLUSTER_PORT_DEFAULT)


def _will_do(version: str) -> bool:
    numbers = [int(digits) for digits in re.findall(r"\d+", version)[:2]]
    return SPARK_MIN <= tuple(numbers) < SPARK_BELOW


def _version_at(home: Path) -> str | None:
    jars = sorted((home / "jars").glob("spark-core_*.jar"))
    return jars[-1].stem.rpartition("-")[2] if jars else None
