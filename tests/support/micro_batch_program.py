"""A Spark driver as a program of its own: a directory of files to a topic, about one file a batch, until it is killed.

What a query ends with is told on standard output, as a line of JSON; then the query is started again on its checkpoint,
as whoever keeps such a job running would do it.

    python -m tests.support.micro_batch_program '{"master": ..., "way": "format", ...}'
"""

import json
import os
import signal
import sys
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from exactlog.pipeline import exactly_once_sink, explain, session

GIVE_UP_AFTER = 40  # queries in a row that did not come further


def main(order):
    spark = session(order["master"])
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(order["input"])
    keyed = lines.withColumn("key", F.substring("value", -2, 2))
    if "dies_once" in order:
        keyed = keyed.withColumn("value", dying_once(order["dies_once"])("value"))
    if "partition" in order:
        keyed = keyed.withColumn("partition", F.lit(order["partition"]))
    failures = 0
    while failures < GIVE_UP_AFTER:
        query = writing(keyed, order).start()
        tell(event="started")
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001  whatever it was, it is told
            told = explain(error)
            tell(event="failed", kind=type(told).__name__, message=str(told)[:500])
            if type(told).__name__ == "SparkGoneError":
                return
            failures = 1 if query.lastProgress else failures + 1
    sys.exit("no query comes any further")


def writing(stream, order):
    where = {"bootstrap": order["bootstrap"], "topic": order["topic"]}
    if order["way"] == "format":
        stream = stream.coalesce(1)  # it takes one task, and a batch of two files has two
    query = stream.writeStream.option("checkpointLocation", order["checkpoint"]).trigger(processingTime="0 seconds")
    if order["way"] == "foreachBatch":
        return query.foreachBatch(exactly_once_sink(**where, txn_app_id=order["topic"]))
    return query.format("exactlog").options(**where, txnAppId=order["topic"])


def dying_once(flag):
    """A function whose Python dies by SIGKILL the first time that anybody calls it."""

    @F.udf("string")
    def dying(value):
        try:
            Path(flag).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        except FileExistsError:
            return value

    return dying


def tell(**what):
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
