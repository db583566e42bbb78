"""The connectors of Apache Spark to Apache Kafka and Delta Lake, from Maven Central into `.cache/spark-jars/`, once.

`python -m tests.peers.spark_jars` (`make spark-jars`) fetches them and prints where they are.
"""

import sys
from pathlib import Path

from tests.peers.jars import jars_of_pom
from tests.peers.toolchain import PeerMissingError

_POM = Path(__file__).with_name("spark_connectors_pom.xml")
_ARTIFACTS = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
    "delta-spark_2.13",
    "delta-storage",
    "delta-kernel-api",
    "delta-kernel-defaults",
    "delta-kernel-unitycatalog",
    "unitycatalog-client",
)
"""What PySpark does not bring itself; the rest of what they need is in its own `jars/`."""


def spark_jars() -> list[Path]:
    """The jars, by name.

    Raises:
        PeerMissingError: there is no Java or no Maven.
        RuntimeError: Maven failed.
    """
    jars = jars_of_pom("spark-jars", _POM, f"-DincludeArtifactIds={','.join(_ARTIFACTS)}")
    return sorted(jars.glob("*.jar"))


def main() -> int:
    """Fetch the jars and print where they are."""
    try:
        found = spark_jars()
    except (PeerMissingError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(map(str, found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
