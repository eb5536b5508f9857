# Everything a contributor runs. `make` alone says what there is.
PYTHON ?=
VENV ?= .venv
BIN := $(VENV)/bin
CHAOS_SECONDS ?= 3600
HISTORIES ?= 10000

.DEFAULT_GOAL := help
.PHONY: help setup demo test check lint types layers format bench chaos lock clean

help:  ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## the virtual environment, with every package pinned by hash
	@scripts/setup "$(PYTHON)" "$(VENV)"

demo: setup  ## watch jobs run on a SQLite file: retries, failures, a pause, a keyed queue
	@$(BIN)/python -m tidemill.demo

test: setup  ## every test
	@scripts/test "$(VENV)"

check: lint types layers  ## lint, formatting, types and layers (make -k check goes on after a failure)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports --no-logo

format: setup  ## let the formatter and the linter repair what they can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## speed on SQLite beside its peers (BENCH=--quick for a short look)
	@$(BIN)/python -m benchmarks.run $(BENCH)

chaos: setup  ## the long run: kills and stops, simulated histories (CHAOS_SECONDS, HISTORIES)
	TIDEMILL_CHAOS_SECONDS=$(CHAOS_SECONDS) TIDEMILL_HISTORIES=$(HISTORIES) \
		$(BIN)/python -m pytest tests/chaos tests/simulation/test_histories.py

lock: setup  ## resolve pyproject.toml anew into constraints.txt
	@scripts/lock

clean:  ## remove what can be made again
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
