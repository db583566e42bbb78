"""What went wrong in Spark, in one sentence: errors of this package found again in what Spark made of them.

Spark carries an error of a worker as the text of a traceback, inside an exception of Java, inside one of Python.
`explain` finds in it the error that was raised, with its class; everything else becomes a sentence with Spark's own
words in it, and never its stack.
"""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, KafkaError

JARS_HINT: Final = "In a checkout, make spark-jars fetches the connectors; session(jars=...) loads them."
_HINT_NOTE: Final = "hint: "
_WORDS_MAX: Final = 500
_NO_WORDS: Final = (
    "WARNING",
    "Picked up ",
    "Setting default log level",
    "Using ",
    "at ",
    "Error occurred during initialization of VM",
)
"""How lines begin that Java says without meaning it, or before it says what it means."""

_KAFKA_NOTE: Final = "kafka error: "
_RAISED: Final = re.compile(
    r"^(?P<module>exactlog(?:\.\w+)+)\.(?P<name>\w+): (?P<message>.*)$"
    rf"(?:\n{_HINT_NOTE}(?P<hint>.*)$)?(?:\n{_KAFKA_NOTE}(?P<kafka_error>\w+)$)?",
    re.MULTILINE,
)
_PYTHON_ERROR: Final = re.compile(
    r"^(?P<name>[A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt|Exit)): (?P<words>.+)$"
)
_JAVA_ERROR: Final = re.compile(r"^(?:: |Caused by: )?(?:[a-z][\w$]*\.)+(?P<name>[A-Z][\w$]*)(?:: (?P<words>.*))?$")
_MISSING_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '(?P<module>[^']+)'")
_MISSING_SOURCE: Final = re.compile(r"[Ff]ailed to find (?:the )?data source: (?P<source>\w+)")
_STAGE_FAILED: Final = re.compile(
    r"Task \S+ in stage \S+ failed (?P<times>\d+) times.*?(?:executor [^)]*\): )(?P<why>.*)$"
)
_EXECUTOR_LOST: Final = re.compile(r"ExecutorLostFailure \([^)]*\)(?: Reason: (?P<why>.*))?")
_CONDITION: Final = re.compile(r"^\[[A-Z_0-9.]+\] ")
_SQL_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*$")


class SparkFailedError(ExactlogError):
    """Spark ended a job, for a reason that is not of this package. The message has Spark's own words."""

    code = "spark-failed"


class SparkRefusedError(ExactlogError):
    """Spark refused a query: a column, a table or a path that is not there, a wrong type, wrong SQL."""

    code = "spark-refused"


class WorkerFailedError(ExactlogError):
    """A task failed in its Python, as often as Spark tries it, by an error that is not of this package."""

    code = "worker-failed"


class ExecutorLostError(ExactlogError):
    """A program that ran tasks is gone, more often than Spark puts up with."""

    code = "executor-lost"
    retryable = True


class SparkGoneError(ExactlogError):
    """The Java that ran the session has ended."""

    code = "spark-gone"


class ConnectorMissingError(ExactlogError):
    """A format is asked for that the session does not know."""

    code = "connector-missing"


class PackageMissingError(ExactlogError):
    """The Python of a worker lacks a package that the job needs."""

    code = "package-missing"


@contextmanager
def hints_kept() -> Iterator[None]:
    """Let an error of this package take its hint and its Kafka error along where Spark carries it as text.

    For code that workers run, and for functions of `foreachBatch`.
    """
    try:
        yield
    except ExactlogError as error:
        _note(error)
        raise


def _note(error: ExactlogError) -> None:
    notes = [f"{_HINT_NOTE}{error.hint}"] if error.hint else []
    if error.kafka_error is not None and error.kafka_error is not type(error).kafka_error:
        notes.append(f"{_KAFKA_NOTE}{error.kafka_error.name}")
    for note in notes:
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def explain(error: BaseException) -> ExactlogError:
    """The error of this package behind an exception that came out of Spark; itself, if it is one already.

    An error that a worker raised comes back in its own class, with its message and, where that was noted
    (`hints_kept`), its hint and its Kafka error; other attributes of it are lost on the way. What is not known becomes
    `SparkFailedError` with the class and the first line of the message.
    """
    for each in _chain(error):
        if isinstance(each, ExactlogError):
            _note(each)
            return each
    text = "\n".join(dict.fromkeys(_text(each) for each in _chain(error)))
    found = _raised_in_worker(text) or _known(error, text) or _unknown(error, text)
    _note(found)  # it may have to cross once more, out of a function of `foreachBatch`
    return found


def java_words(text: str) -> str:
    """What the first error in the output of a Java program says, without its class and its stack; empty if nothing."""
    for line in text.splitlines():
        stripped = line.strip().removeprefix('Exception in thread "main" ')
        if not stripped or stripped.startswith(_NO_WORDS):
            continue
        match = _JAVA_ERROR.match(stripped)
        words = (match["words"] or match["name"]) if match else stripped
        return _shortened(words)
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what it names as its cause, and what Spark names as the cause of that."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        cause = each.__cause__ or getattr(each, "_cause", None)
        each = cause if isinstance(cause, BaseException) else None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  an exception of Java asks the JVM, which may be gone
        return type(error).__name__


def _raised_in_worker(text: str) -> ExactlogError | None:
    """The last error of this package that a traceback shows: those before it were handled."""
    for match in reversed(list(_RAISED.finditer(text))):
        try:
            kind = getattr(import_module(match["module"]), match["name"], None)
        except ImportError:
            continue
        if isinstance(kind, type) and issubclass(kind, ExactlogError):
            raised = kind.__new__(kind)  # what its __init__ takes is not in the text
            ExactlogError.__init__(raised, _SQL_STATE.sub("", match["message"]), hint=(match["hint"] or "").strip())
            _restore_kafka_error(raised, match["kafka_error"])
            return raised
    return None


def _restore_kafka_error(raised: ExactlogError, name: str | None) -> None:
    if name is None or name not in ErrorCode.__members__:
        return
    raised.kafka_error = ErrorCode[name]
    if isinstance(raised, KafkaError):
        raised.error_code = raised.kafka_error
        raised.retryable = raised.kafka_error.is_retriable


def _known(error: BaseException, text: str) -> ExactlogError | None:
    if _is_jvm_gone(error):
        return SparkGoneError(
            "the Java that ran this Spark session has ended", hint="Start the program again; it may lack memory."
        )
    if missing := _MISSING_MODULE.search(text):
        return PackageMissingError(
            f"the Python of a Spark worker has no module {missing['module']}",
            hint="Send it with --py-files or addPyFile, or install it on the machines of the cluster.",
        )
    if source := _MISSING_SOURCE.search(text):
        hint = "exactlog.pipeline.register(spark) makes it known." if source[1] == "exactlog" else JARS_HINT
        return ConnectorMissingError(f"this Spark session does not know the format {source[1]}", hint=hint)
    if "Python worker exited unexpectedly" in text:
        return ExecutorLostError(
            "the Python of a Spark worker ended unexpectedly", hint="It may have been killed for want of memory."
        )
    if lost := _EXECUTOR_LOST.search(text):
        return ExecutorLostError(f"a Spark executor was lost: {_shortened(lost['why'] or 'it does not say why')}")
    return None


def _unknown(error: BaseException, text: str) -> ExactlogError:
    raised = _python_error(text)
    if raised is not None:
        return WorkerFailedError(f"a task failed: {raised}")
    words = _spark_words(text)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "AnalysisException" in kinds or "ParseException" in kinds:
        return SparkRefusedError(words)
    return SparkFailedError(f"{type(error).__name__}: {words}" if words else type(error).__name__)


def _python_error(text: str) -> str | None:
    """The last line of a Python traceback: `ValueError: what it says`."""
    if "Traceback (most recent call last):" not in text:
        return None
    errors = [match[0] for line in text.splitlines() if (match := _PYTHON_ERROR.match(line))]
    return _shortened(_SQL_STATE.sub("", errors[-1])) if errors else None


def _spark_words(text: str) -> str:
    """The first line that says something, without what only machines read."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        lines = lines[1:]
    first = java_words(lines[0]) if lines else ""
    stage = _STAGE_FAILED.search(first)
    if stage is not None:
        first = f"a task failed {stage['times']} times: {java_words(stage['why'])}"
    if "terminated with exception: " in first:
        first = first.partition("terminated with exception: ")[2]
    return _shortened(_SQL_STATE.sub("", _CONDITION.sub("", first)))


def _is_jvm_gone(error: BaseException) -> bool:
    names = {kind.__name__ for each in _chain(error) for kind in type(each).__mro__}
    if "Py4JNetworkError" in names:
        return True
    return isinstance(error, ConnectionRefusedError) and _is_session_dead()


def _is_session_dead() -> bool:
    from pyspark import SparkContext  # noqa: PLC0415  an extra

    gateway = SparkContext._gateway  # noqa: SLF001  nothing public says whether the JVM is there
    if gateway is None:
        return False
    parameters = gateway.java_parameters if hasattr(gateway, "java_parameters") else gateway.gateway_parameters
    try:
        socket.create_connection((parameters.address, parameters.port), timeout=1).close()
    except OSError:
        return True
    return False


def _shortened(words: str) -> str:
    return words if len(words) <= _WORDS_MAX else f"{words[:_WORDS_MAX]}…"
