"""What Spark makes of an error, and the sentence that comes of it. The texts are Spark's own, of version 4.2."""

import traceback

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError, KafkaError, VersionExpiredError
from exactlog.pipeline.errors import (
    ConnectorMissingError,
    ExecutorLostError,
    PackageMissingError,
    SparkFailedError,
    SparkRefusedError,
    WorkerFailedError,
    explain,
    hints_kept,
    java_words,
)

IN_A_WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "job.py", line 33, in read
    raise error
exactlog.core.model.errors.VersionExpiredError: orders-0: so old a version cannot be read; the oldest is 7
hint: ask for version 7 or a later one"""

IN_A_STREAM = """[STREAM_FAILED] Query [id = 8a16fc01, runId = 98f2e79f] terminated with exception: \
[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source initialize source: Traceback (most recent call last):
  File "job.py", line 22, in streamReader
    raise error
exactlog.core.model.errors.VersionExpiredError: orders-0: so old a version cannot be read; the oldest is 7
hint: ask for version 7 or a later one

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 295, in main
UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 8a16fc01, runId = 98f2e79f]"""

LOST_TASK = """An error occurred while calling o292.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 6.0 failed 4 times, most recent \
failure: Lost task 1.3 in stage 6.0 (TID 11) (10.0.0.2 executor 1): {}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:665)
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.runJob(DAGScheduler.scala:1063)"""


UNRESOLVED = """[UNRESOLVED_COLUMN] A column with name `nosuch` cannot be resolved. Did you mean [`id`]? \
SQLSTATE: 42703; line 1 pos 7;
'Project ['nosuch]
+- Range (0, 3)"""


class JavaError(Exception):
    """Stands for Py4JJavaError, whose text asks the JVM."""


@pytest.mark.parametrize("error", [PythonException(IN_A_WORKER), StreamingQueryException(IN_A_STREAM)])
def test_an_error_of_a_worker_comes_back_in_its_class_with_its_hint(error):
    found = explain(error)

    assert type(found) is VersionExpiredError
    assert str(found) == "orders-0: so old a version cannot be read; the oldest is 7"
    assert (found.code, found.hint) == ("version-expired", "ask for version 7 or a later one")


def test_of_several_the_last_is_told_as_those_before_were_handled():
    text = (
        IN_A_WORKER
        + "\n\nThe above exception was the direct cause of the following exception:\n"
        + ("exactlog.core.model.errors.DamageError: topic orders, partition 0: the bytes are not what was written")
    )

    found = explain(PythonException(text))
    assert type(found) is DamageError
    assert str(found) == "topic orders, partition 0: the bytes are not what was written"
    assert found.hint == ""


def test_a_class_that_is_not_known_here_is_told_with_its_name():
    error = PythonException("Traceback (most recent call last):\nexactlog.nowhere.StrangeError: what it says")

    assert str(explain(error)) == "a task failed: exactlog.nowhere.StrangeError: what it says"


def test_what_is_one_already_stays_as_it_is():
    error = DamageError("d", hint="h")

    assert explain(error) is error
    outer = RuntimeError("outer")
    outer.__cause__ = error
    assert explain(outer) is error


def test_a_hint_is_noted_once_and_goes_with_the_text():
    error = DamageError("what", hint="look here")
    with pytest.raises(DamageError), hints_kept(), hints_kept():
        raise error
    assert error.__notes__ == ["hint: look here"]

    plain = DamageError("what")
    with pytest.raises(DamageError), hints_kept():
        raise plain
    assert not hasattr(plain, "__notes__")


def test_a_kafka_error_comes_back_with_its_code_however_often_it_crosses():
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "produce to orders-0: NOT_LEADER_OR_FOLLOWER", hint="again")
    for _ in range(2):
        text = "".join(traceback.format_exception(raised_by(error)))
        error = explain(PythonException(f"An exception was thrown from the Python worker:\n{text}"))

        assert type(error) is KafkaError
        assert error.error_code is error.kafka_error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (error.retryable, error.hint) == (True, "again")
        assert str(error) == "produce to orders-0: NOT_LEADER_OR_FOLLOWER"


def raised_by(error):
    with pytest.raises(type(error)) as raised, hints_kept():
        raise error
    return raised.value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Traceback (most recent call last):\n  File x\nValueError: bad\n SQLSTATE: 38000", "ValueError: bad"),
        ("Traceback (most recent call last):\n  File x\nfoo.bar.SomeError: bad thing", "foo.bar.SomeError: bad thing"),
    ],
)
def test_an_error_of_python_in_a_worker_is_told_by_its_last_line(text, told):
    found = explain(PythonException(f"An exception was thrown from the Python worker:\n{text}"))

    assert type(found) is WorkerFailedError
    assert str(found) == f"a task failed: {told}"


def test_a_missing_module_says_how_it_gets_there():
    text = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'exactlog'"
    found = explain(PythonException(text))

    assert type(found) is PackageMissingError
    assert str(found) == "the Python of a Spark worker has no module exactlog"
    assert "--py-files" in found.hint


@pytest.mark.parametrize(
    ("why", "kind", "words"),
    [
        (
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting 'x'.",
            ExecutorLostError,
            "the Python of a Spark worker ended unexpectedly",
        ),
        (
            "ExecutorLostFailure (executor 1 exited) Reason: Command exited with code 137",
            ExecutorLostError,
            "a Spark executor was lost: Command exited with code 137",
        ),
        (
            "java.io.IOException: No space left on device",
            SparkFailedError,
            "a task failed 4 times: No space left on device",
        ),
    ],
)
def test_a_task_that_failed_too_often_is_told_by_its_last_reason(why, kind, words):
    found = explain(JavaError(LOST_TASK.format(why)))

    assert type(found) is kind
    assert words in str(found)
    assert "\n" not in str(found)
    assert "TID" not in str(found)


def test_a_lost_executor_may_be_tried_again():
    assert explain(JavaError(LOST_TASK.format("ExecutorLostFailure (executor 1 exited) Reason: x"))).retryable


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (UNRESOLVED, "A column with name `nosuch` cannot be resolved. Did you mean [`id`]?"),
        (
            (
                "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'selekt'. SQLSTATE: 42601 (line 1, pos 0)"
                "\n\n== SQL ==\nselekt 1"
            ),
            "Syntax error at or near 'selekt'.",
        ),
        ("[PATH_NOT_FOUND] Path does not exist: file:/nosuch. SQLSTATE: 42K03", "Path does not exist: file:/nosuch."),
    ],
)
def test_a_query_that_spark_refuses_is_told_in_its_words_alone(text, told):
    found = explain(AnalysisException(text))

    assert type(found) is SparkRefusedError
    assert str(found) == told


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Failed to find data source: kafka. Please deploy the application as per the guide.", "make spark-jars"),
        (
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: exactlog. Make sure the name is correct.",
            "register",
        ),
    ],
)
def test_a_format_that_the_session_does_not_know_says_what_makes_it_known(text, hint):
    found = explain(AnalysisException(text))

    assert type(found) is ConnectorMissingError
    assert hint in found.hint


def test_an_error_that_is_not_known_keeps_its_class_and_its_first_line():
    found = explain(
        JavaError("An error occurred while calling o1.x.\n: java.lang.IllegalStateException: no\n\tat a.b.C")
    )

    assert type(found) is SparkFailedError
    assert str(found) == "JavaError: no"
    assert str(explain(KeyError())) == "KeyError"
    assert len(str(explain(JavaError("x" * 10_000)))) < 600


def test_the_first_words_of_java_are_those_of_its_error():
    said = (
        "WARNING: Using incubator modules: jdk.incubator.vector\nPicked up JAVA_TOOL_OPTIONS: -X\n"
        'Exception in thread "main" org.apache.spark.SparkException: Master must be yarn or start with spark\n'
        "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)"
    )
    assert java_words(said) == "Master must be yarn or start with spark"
    assert java_words("Error occurred during initialization of VM\nToo small maximum heap") == "Too small maximum heap"
    assert java_words("java.lang.NullPointerException") == "NullPointerException"
    assert java_words("WARNING: nothing\n\n") == ""
