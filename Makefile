# Everything a contributor runs. `make` alone says what there is.
PYTHON ?=
VENV ?= .venv
BIN := $(VENV)/bin
CHAOS_SECONDS ?= 240
CHAOS_RATE ?= 500
HISTORIES ?= 10000
LOCKSTEP ?= 1000
MUTANTS ?= 300
JOBS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup run-setup demo test check lint types layers docs api screenshots format bench bench-quota bench-pages chaos mutants lock clean

help:  ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## the virtual environment with everything a developer needs, pinned by hash
	@scripts/setup dev "$(PYTHON)" "$(VENV)"

# A third of the packages: whoever only wants to look should not wait.
run-setup:
	@scripts/setup run "$(PYTHON)" "$(VENV)"

demo: run-setup  ## watch two applications run inside the quotas of a simulated provider, on SQLite files
	@$(BIN)/tidemill demo

test: setup  ## every test
	@scripts/test "$(VENV)"

check: lint types layers docs  ## lint, formatting, types, layers, docs (make -k check goes on after a failure)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports --no-logo

docs: setup  ## the documentation as pages in site/; a warning is an error (to read: python3 -m http.server -d site)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

api: setup  ## write docs/reference/api.md, http-api.md and openapi.json anew from the code
	@$(BIN)/python scripts/api_page.py
	@$(BIN)/python scripts/http_page.py

screenshots: setup  ## take the pictures of the dashboard in docs/images/dashboard anew
	@$(BIN)/python scripts/screenshots.py

format: setup  ## let the formatter and the linter repair what they can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The peers stay out of the environment the tests run in.
bench:  ## speed beside other queues on Redis, PostgreSQL and SQLite (BENCH=--quick for a short look)
	@scripts/setup bench "$(PYTHON)" "$(VENV)-bench"
	@$(VENV)-bench/bin/python -m benchmarks.run $(BENCH)

bench-quota:  ## kept quotas beside Celery, BullMQ and simple rules (QUOTA=--quick for a short look)
	@scripts/setup quota "$(PYTHON)" "$(VENV)-quota"
	@$(VENV)-quota/bin/python -m benchmarks.quota $(QUOTA)

bench-pages: setup  ## how long pages take with a million jobs in the store (PAGES="--store sqlite" for one kind)
	@$(BIN)/python -m benchmarks.page_speed $(PAGES)

bench-retention: setup  ## whether each store stays the same size at 1 000 jobs/s (RETENTION="--store sqlite --seconds 60")
	@$(BIN)/python -m benchmarks.retention $(RETENTION)

chaos: setup  ## the long run: kills and stops on every store, simulated histories (CHAOS_SECONDS per store, HISTORIES)
	TIDEMILL_CHAOS_SECONDS=$(CHAOS_SECONDS) TIDEMILL_CHAOS_RATE=$(CHAOS_RATE) TIDEMILL_CHAOS_CONCURRENCY=100 \
		TIDEMILL_HISTORIES=$(HISTORIES) TIDEMILL_QUOTA_SEEDS=30 TIDEMILL_HTTP_SEEDS=3 TIDEMILL_SLOW_CONNECTION_RUNS=3 TIDEMILL_NETWORK_ROUNDS=50 \
		TIDEMILL_LOCKSTEP_EXAMPLES=$(LOCKSTEP) TIDEMILL_EVERY_ZONE=1 TIDEMILL_SCHEDULES=10000 TIDEMILL_KILLED_LEADERS=50 TIDEMILL_KILLED_FLOWS=100 TIDEMILL_NEW_FILES=1000 \
		TIDEMILL_FAN_OUT=10000 TIDEMILL_FUZZ=200 TIDEMILL_MUSIC_FULL=1 TIDEMILL_PODCASTS_FULL=1 TIDEMILL_FEEDS_FULL=1 \
		$(BIN)/python -m pytest -o timeout=3600 tests/chaos tests/simulation/test_histories.py tests/simulation/flows \
		tests/quotas tests/schedules tests/flows/test_processes.py tests/flows/test_wide_fan_out.py tests/stores/redis/test_script_duration.py tests/web/test_fuzz.py \
		tests/apps/music/test_acceptance.py tests/apps/podcasts/test_generation.py tests/apps/podcasts/test_kills.py \
		tests/apps/feeds/test_server_log.py tests/apps/feeds/test_service.py tests/apps/feeds/test_strict_site.py \
		$(foreach store,sqlite redis postgres,tests/conformance/test_$(store).py::test_lockstep_with_memory)

mutants: setup  ## change single lines of core, engine, worker and feedback and list what no test notices (MUTANTS, JOBS, ARGS)
	@$(BIN)/python -m tests.mutation --mutants $(MUTANTS) --jobs $(JOBS) $(ARGS)

lock:  ## resolve pyproject.toml into the constraints files; what is pinned stays while it fits
	@scripts/lock

clean:  ## remove what can be made again
	rm -rf .venv .venv-bench .venv-quota benchmarks/node/node_modules build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
