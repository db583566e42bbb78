"""What a user imports, and what that costs who has no Spark."""

import json
import subprocess
import sys

import pytest

from exactlog import pipeline

LIGHT = """
import sys
import exactlog.pipeline
import exactlog.cli.commands.pipeline
print(sorted({"pyspark", "pyarrow", "deltalake", "py4j", "numpy"} & set(sys.modules)))
"""

WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
from exactlog.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_nothing_of_spark_is_imported_before_it_is_needed():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", pipeline.__all__)
def test_every_public_name_is_there_and_no_module_hides_it(name):
    found = getattr(pipeline, name)

    assert callable(found)
    assert found.__name__ == name


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nosuch'"):
        pipeline.nosuch  # noqa: B018


@pytest.mark.parametrize(
    "command",
    [
        ["tables", "--path", "d"],
        ["export", "--path", "d", "--target", "t"],
        ["copy", "--path", "d", "--to", "h:1", "--id", "i", "--checkpoint", "c"],
    ],
    ids=["tables", "export", "copy"],
)
def test_without_spark_a_job_says_what_installs_it(command, tmp_path):
    program = [sys.executable, "-c", WITHOUT_SPARK, "pipeline", *command, "-q", "-o", "json"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)

    fault = json.loads(done.stderr)["error"]
    assert (done.returncode, done.stdout, fault["code"]) == (1, "", "spark-missing")
    assert "pip install 'exactlog[spark]'" in fault["hint"]
    assert list(tmp_path.iterdir()) == []
