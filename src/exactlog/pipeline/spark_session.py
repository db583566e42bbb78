"""A Spark session with everything set that the log needs."""

import logging
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from exactlog.core.model.errors import ConfigError, ExactlogError
from exactlog.pipeline.errors import explain, java_words
from exactlog.pipeline.spark_requirements import (
    require_cluster,
    require_jars,
    require_java,
    require_spark,
)

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

MASTER_DEFAULT: Final = "local[*]"
LOG_LEVEL: Final = "spark.log.level"
"""Spark's own setting. Without it a session logs nothing: what ends a job reaches the program as an exception."""

FILTER_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_FOLDER_OF_STREAMS: Final = "streaming_job"
"""Below the directory of `--py-files`: where Spark 4.2 has the Python that plans a stream look for them."""
_QUERY_LOGGER: Final = "SQLQueryContextLogger"
"""Where PySpark writes the stack of every exception of Java, in the program itself."""

_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
_JARS: Final = "spark.jars"
_MASTER: Final = re.compile(r"local(-cluster)?(\[[\d*,\s]+\])?|spark://.+|k8s://.+|yarn")

SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    FILTER_PUSHDOWN: "true",
    # The other manager creates and renames through a second layer: 45 to 55 ms more for each micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""What a session is started with, unless the caller says otherwise."""

_LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    # As many tasks after a shuffle as there are cores; 200, the default, is for a cluster.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}


class SparkStartError(ExactlogError):
    """Spark does not start. The message begins with what it said itself."""

    code = "spark-start"


class SessionRunningError(ExactlogError):
    """A session runs in this program already, and what was asked for can be set only when one starts."""

    code = "session-running"


def session(
    master: str | None = None,
    *,
    app_name: str = "exactlog",
    config: Mapping[str, str] | None = None,
    jars: Sequence[str | Path] = (),
) -> "SparkSession":
    """A session with everything set, in which `format("exactlog")` is known; the one that runs already, if one does.

    Workers run the Python that runs this (`PYSPARK_PYTHON`, where set, goes before it), the driver of a local session
    listens on loopback (`SPARK_LOCAL_IP` goes before it), filters may be pushed down (`pushDown`), times are UTC, and
    nothing is logged: `config={"spark.log.level": "WARN"}` changes that. `SETTINGS` lists the rest.

    Args:
        master: `local[N]` or the URL of a cluster. None: what `spark-submit` was told, else all cores of this machine.
        app_name: how Spark's own pages call it.
        config: Spark properties; they go before what is set here.
        jars: connectors to load, as `make spark-jars` fetches them.

    Raises:
        SparkMissingError: PySpark or Arrow is not installed, or not in a version that will do.
        JavaMissingError: there is no Java, or an old one.
        JarMissingError: a jar is not there.
        UnavailableError: nobody answers at the address of the cluster.
        SessionRunningError: a session runs already, and is not as asked for.
        SparkStartError: Spark does not start.
    """
    require_spark()
    require_jars(jars)
    from pyspark import SparkContext  # noqa: PLC0415  an extra

    wanted = dict(config or {})
    if master is not None:
        _require_classic(master)
    running = SparkContext._active_spark_context  # noqa: SLF001  nothing public says whether one runs
    if running is not None:
        return _reuse(running, master, wanted, jars)
    if not _is_submitted():
        require_java()
        master = master or wanted.get("spark.master", MASTER_DEFAULT)
    if master is not None:
        _require_classic(master)
        require_cluster(master)
    return _start(master, app_name, wanted, jars)


def is_running() -> bool:
    """Whether a session runs in this program, by whomever it was started."""
    try:
        from pyspark import SparkContext  # noqa: PLC0415  an extra
    except ImportError:
        return False
    return SparkContext._active_spark_context is not None  # noqa: SLF001  nothing public says whether one runs


def register(spark: "SparkSession") -> None:
    """Make `format("exactlog")` known in a session that was not made by `session`, and let `pushDown` act."""
    from exactlog.pipeline.data_source import ExactlogDataSource  # noqa: PLC0415  needs pyspark

    spark.dataSource.register(ExactlogDataSource)
    spark.conf.set(FILTER_PUSHDOWN, "true")
    if is_running():
        _include_in_streams()


def _is_submitted() -> bool:
    """Whether `spark-submit` runs this program: the JVM is there, and knows the cluster."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _require_classic(master: str) -> None:
    if master.startswith("sc://"):
        raise ConfigError(
            f"{master} is a Spark Connect server, which has a session of its own",
            hint="SparkSession.builder.remote(...) connects to it; exactlog.pipeline.register does the rest.",
        )
    if not _MASTER.fullmatch(master):
        raise ConfigError(
            f"{master!r} is no Spark master",
            hint="It is local, local[N], local[*], spark://HOST:PORT, yarn or k8s://URL.",
        )


def _start(master: str | None, app_name: str, wanted: dict[str, str], jars: Sequence[str | Path]) -> "SparkSession":
    from pyspark import SparkContext  # noqa: PLC0415  an extra
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if LOG_LEVEL not in wanted:
        logging.getLogger(_QUERY_LOGGER).setLevel(logging.CRITICAL + 1)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if jars:
        wanted[_JARS] = ",".join([*filter(None, [wanted.get(_JARS, "")]), *map(str, jars)])
    try:
        conf = _configuration(master, app_name, wanted)
        if SparkContext._gateway is None:  # noqa: SLF001  nothing public starts it with its errors kept
            SparkContext._ensure_initialized(gateway=_launch(conf, wanted))  # noqa: SLF001
        elif jars:
            jvm: Any = SparkContext._jvm  # noqa: SLF001
            _require_loaded(jvm.java.lang.System.getProperty(_JARS), jars)
        context = SparkContext(conf=conf)
        _include_wheels(context)
        spark = SparkSession.builder.getOrCreate()
    except ExactlogError:
        raise
    except Exception as error:
        told = explain(error)
        raise SparkStartError(f"Spark does not start: {told}", hint=told.hint) from error
    if _is_submitted() and context.getConf().get(LOG_LEVEL) is None:
        context.setLogLevel("OFF")
    register(spark)
    return spark


def _configuration(master: str | None, app_name: str, wanted: Mapping[str, str]) -> "SparkConf":
    """What was asked for goes before what `spark-submit` was told, and that before what is set here."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  an extra

    if _is_submitted():
        SparkContext._ensure_initialized()  # noqa: SLF001  it finds the JVM, and with it what spark-submit was told
    conf = SparkConf(loadDefaults=_is_submitted())
    conf.setAppName(app_name).setAll(list(wanted.items()))
    is_local = master is not None and master.startswith("local")
    for name, value in {**SETTINGS, **(_LOCAL_SETTINGS if is_local else {})}.items():
        conf.setIfMissing(name, value)
    if master is not None:
        conf.setMaster(master)
    return conf


def _include_wheels(context: "SparkContext") -> None:
    """Put wheels of `--py-files` on the path of workers: Spark sends them there and leaves them lying."""
    included: list[str] = context._python_includes  # type: ignore[assignment]  # noqa: SLF001  of what it takes for packages
    for path in (context.getConf().get("spark.submit.pyFiles") or "").split(","):
        name = path.rpartition("/")[2]
        if name.endswith(".whl") and name not in included:
            included.append(name)


def _include_in_streams() -> None:
    """Let the driver's Python for streams find what `--py-files` and `addPyFile` bring; batches find it as it is."""
    from pyspark import SparkFiles  # noqa: PLC0415  an extra

    brought = Path(SparkFiles.getRootDirectory())
    folder = brought / _FOLDER_OF_STREAMS
    if not folder.exists():
        folder.symlink_to(brought)


def _launch(conf: "SparkConf", wanted: Mapping[str, str]) -> "JavaGateway":
    """Start the JVM. What it says on standard error goes to a file without a name, unless a log level was asked for."""
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415  an extra
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    options = wanted.get(_DRIVER_OPTIONS, "")
    log_settings = Path(__file__).with_name("log4j2.properties")
    if "log4j2.configurationFile" not in options and log_settings.is_file():
        options = f"-Dlog4j2.configurationFile={log_settings.as_uri()} {options}"
    conf.set(_DRIVER_OPTIONS, f"-XX:+DisplayVMOutputToStderr {options}".strip())
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        try:
            return launch_gateway(conf, {} if LOG_LEVEL in wanted else {"stderr": said})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            said.seek(0)
            words = java_words(said.read()) or str(error)
            raise SparkStartError(f"Spark does not start: {words}") from error


def _reuse(
    context: "SparkContext", master: str | None, wanted: Mapping[str, str], jars: Sequence[str | Path]
) -> "SparkSession":
    """The session that runs, if it is as asked for or can be made so.

    Raises:
        SessionRunningError: it is not, and cannot.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  an extra

    if master is not None and master != context.master:
        raise SessionRunningError(
            f"a Spark session runs already, on {context.master}; one on {master} cannot start beside it",
            hint="stop() ends the one that runs.",
        )
    _require_loaded(context.getConf().get(_JARS), jars)
    spark = SparkSession.builder.getOrCreate()
    for name, value in wanted.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
        elif spark.conf.get(name, None) != value:
            raise SessionRunningError(
                f"a Spark session runs already, and {name} cannot be changed in it",
                hint="stop() ends it; the next one can be started with it.",
            )
    register(spark)
    return spark


def _require_loaded(loaded: str | None, jars: Sequence[str | Path]) -> None:
    missing = [str(jar) for jar in jars if str(jar) not in (loaded or "").split(",")]
    if missing:
        raise SessionRunningError(
            f"Spark runs already, without {', '.join(missing)}; it loads jars only when it starts",
            hint="Name them where the program asks for its first session.",
        )
