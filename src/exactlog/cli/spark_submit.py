"""What `spark-submit` runs: a job of `exactlog pipeline`, on the cluster that it was told.

    spark-submit --master spark://HOST:7077 --py-files exactlog-0.1.0-py3-none-any.whl spark_submit.py export --path ...

The arguments are those of `exactlog pipeline`, and so are output and exit codes; `--master` is for `spark-submit`.
"""

import sys

from exactlog.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["pipeline", *sys.argv[1:]]))
