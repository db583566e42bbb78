"""Packages that `spark-submit --py-files` brings, for streams of a Python data source on the driver of a cluster.

Spark 4.2 plans such a stream in a Python of the driver, and has it look for these files in a folder `streaming_job` of
the directory that they are in, which nobody fills. Batches are planned in the directory itself.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDER: Final = "streaming_job"


def include_in_streams(spark: "SparkSession") -> None:
    """Let the driver's Python for streams find what `--py-files` names."""
    from pyspark import SparkFiles  # noqa: PLC0415  an extra

    included: list[str] = list(spark.sparkContext._python_includes or ())  # noqa: SLF001  nothing public says it
    for name in included:
        here = Path(SparkFiles.getRootDirectory())
        wanted = here / _FOLDER / name
        if (here / name).exists() and not wanted.exists():
            wanted.parent.mkdir(exist_ok=True)
            wanted.symlink_to(here / name)
