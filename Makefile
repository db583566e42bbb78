# Every verb of the project. Each sets up what it needs in .venv; nothing is done twice.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest

# The Python that makes .venv, when not the first suitable one: make PYTHON=python3.12 setup
PYTHON ?=
# Options handed on to pytest, bench/run.py or bench/soak.py: make test ARGS='-k fetch', make bench ARGS=--quick
ARGS ?=
# Worker processes of a test run: one more than cores, for many tests wait for a disk, a timer or another process.
JOBS ?= $(shell expr $$(nproc) + 1)

# The last step of the demo needs Spark, and that Java: where there is none it is left out.
SPARK_IF_JAVA := $(if $(shell command -v java 2> /dev/null),$(VENV)/.spark)

##@ Use
.PHONY: setup
setup: $(VENV)/.run ## make .venv with exactlog and the Kafka client in it
	@echo "Ready: $(BIN)/exactlog"

.PHONY: demo
demo: $(VENV)/.run $(SPARK_IF_JAVA) ## 336,776 real flights through a broker that is killed half-way, and Spark on them
	@$(BIN)/python -m demo.flights $(ARGS)

.PHONY: demo-spark
demo-spark: $(VENV)/.spark ## the step with Spark alone (needs JDK 17+)
	@$(BIN)/python -m demo.spark_flights $(ARGS)

.PHONY: demo-wal
demo-wal: $(VENV)/.run ## the flights in a write-ahead log of four regions whose writer is killed
	@$(BIN)/python -m demo.wal_flights $(ARGS)

.PHONY: demo-journal
demo-journal: $(VENV)/.run ## 4,043 aircraft as journals of events, with a store that is behind, and not
	@$(BIN)/python -m demo.journal_flights $(ARGS)

.PHONY: spark-jars
spark-jars: $(VENV)/.spark ## fetch the connectors of Spark to Kafka and Delta into .cache/spark-jars (needs JDK 17+, Maven)
	@$(BIN)/python -m tests.peers.spark_jars

##@ Prove
.PHONY: test
test: static ## everything, sampled; under 40 minutes on two cores
	$(PYTEST) -n $(JOBS) --engine files -m both_engines $(ARGS) || test $$? -eq 5  # 5: ARGS leave none of them
	$(PYTEST) -n $(JOBS) $(ARGS)

.PHONY: test-fast
test-fast: static ## unit, property and architecture tests, static checks; under 3 minutes
	$(PYTEST) -n $(JOBS) -m "not peer and not slow" tests/unit tests/property tests/architecture $(ARGS)

.PHONY: test-long
test-long: static ## the full matrices, with many more examples a property
	$(PYTEST) -n $(JOBS) --long --engine files $(ARGS)
	$(PYTEST) -n $(JOBS) --long $(ARGS)

.PHONY: check
check: static ## format, lint, types, import contracts, coverage floors
	$(PYTEST) -n $(JOBS) -q -m "not peer and not slow" --cov --cov-report= $(ARGS)
	@$(BIN)/python tools/coverage_floors.py

.PHONY: static
static: $(VENV)/.dev # mypy anew each time: its cache misses a class that no longer fits a protocol
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy --no-error-summary --no-incremental
	@$(BIN)/lint-imports > $(VENV)/lint-imports.txt || { cat $(VENV)/lint-imports.txt; exit 1; }

##@ Measure
.PHONY: bench
bench: $(VENV)/.dev ## produce, consume, start-up and memory beside Apache Kafka (needs JDK 17+, Maven, Go)
	@$(BIN)/python -m bench.run $(ARGS)

.PHONY: bench-transactions
bench-transactions: $(VENV)/.dev ## transactions a second, commit times, recovery beside Apache Kafka (JDK 17+, Maven, Go)
	@$(BIN)/python -m bench.transactions $(ARGS)

.PHONY: bench-pipeline
bench-pipeline: $(VENV)/.dev ## rows a second into and out of Spark beside its own sources (JDK 17+, Maven, Go)
	@$(BIN)/python -m bench.pipeline $(ARGS)

.PHONY: bench-wal
bench-wal: $(VENV)/.dev ## entries a second into and out of the write-ahead log, beside SQLite (JDK 17+, Maven)
	@$(BIN)/python -m bench.wal $(ARGS)

.PHONY: bench-journal
bench-journal: $(VENV)/.dev ## appends, recovery and replication of journals, beside eventsourcing on SQLite (JDK 17+, Maven)
	@$(BIN)/python -m bench.journal $(ARGS)

.PHONY: bench-journal-spark
bench-journal-spark: $(VENV)/.dev ## jobs of journals on Spark beside one process, into SQLite and Apache Cassandra (JDK 17+, Maven)
	@$(BIN)/python -m bench.journal_spark $(ARGS)

.PHONY: soak
soak: $(VENV)/.dev ## half an hour of load: memory, descriptors and P99 stay flat (needs Go)
	@$(BIN)/python -m bench.soak $(ARGS)

##@ Maintain
.PHONY: fix
fix: $(VENV)/.dev ## format, and repair what the linter can
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

.PHONY: docs
docs: $(VENV)/.dev ## write the generated parts of the documentation anew
	@$(BIN)/python -m tools.api_table --write
	@$(BIN)/python -m tools.configuration_page

.PHONY: lock
lock: $(VENV)/.run ## pin the newest allowed versions in requirements/
	@$(PIP) install uv
	@$(BIN)/uv pip compile $(UV_FLAGS) --extra kafka pyproject.toml requirements/build.in -o requirements/run.txt
	@$(BIN)/uv pip compile $(UV_FLAGS) --extra kafka --extra spark --extra lakehouse -c requirements/run.txt \
		pyproject.toml requirements/build.in -o requirements/spark.txt
	@$(BIN)/uv pip compile $(UV_FLAGS) --all-extras --group dev -c requirements/spark.txt \
		pyproject.toml requirements/build.in -o requirements/dev.txt

.PHONY: clean
clean: ## remove .venv, caches and results
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* dist bench/results

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

UV_FLAGS := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock"

# --- the virtual environment ---------------------------------------------------------------------------------------
# A stamp file says that what it depends on is installed; an interrupted installation leaves none and starts again.

$(VENV)/bin/python:
	@python="$$(tools/find-python $(PYTHON))" && \
		echo "Making $(VENV) with $$("$$python" --version) ($$python)" && \
		"$$python" -m venv $(VENV)

$(VENV)/.run: requirements/run.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing exactlog and what it needs into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/run.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.spark: requirements/spark.txt $(VENV)/.run
	@echo "Installing Spark and the lakehouse libraries into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/spark.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	@echo "Installing the development tools into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@
