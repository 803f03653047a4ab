# Everything a person needs is a target here; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup run test test-quick lint train bench-allowed-sets bench-boundary bench-accuracy

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

setup: $(READY)  ## make the environment in .venv

$(READY): pyproject.toml scripts/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash scripts/setup.sh
	@touch $@

run: $(READY)  ## see completion at work: server, language server and a file that is typed into
	@$(BIN)/midtoken demo

test: $(READY)  ## all tests, end to end ones included
	@$(BIN)/python -m pytest

test-quick: $(READY)  ## the tests that start no server and no editor, with fewer random inputs
	@$(BIN)/python -m pytest -m "not e2e" --hypothesis-profile=quick

lint: $(READY)  ## ruff, mypy and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench-allowed-sets: $(READY)  ## allowed token sets for a prefix, beside other methods
	@$(BIN)/python -m benchmarks.allowed_sets

bench-boundary: $(READY)  ## how often the kept tokens begin the finished text's tokens
	@$(BIN)/python -m benchmarks.boundary

bench-accuracy: $(READY)  ## the rest of the identifier, by healing strategy
	@$(BIN)/python -m benchmarks.accuracy

train: $(READY)  ## train the default model (hours on a CPU, minutes on a GPU)
	@$(BIN)/python -m pip install -q --no-deps --no-compile --target build/corpus -r models/corpus.txt
	@$(BIN)/torchrun --standalone --nproc-per-node 2 -m models.train_default
