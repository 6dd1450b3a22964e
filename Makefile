# Everything runs in a private environment in .venv, made with uv where it is installed, else with venv and pip.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
UV := $(shell command -v uv 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo test lint types wheel check bench clean

help: ## List the targets.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

demo: $(VENV)/.installed ## Index the sample workspace, ask it questions, show how one answer came about.
	$(RUN)cmem demo

test: $(VENV)/.test ## Run the tests.
	$(RUN)python -m pytest -q

lint: $(VENV)/.lint ## Check style and the import contracts.
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)lint-imports

types: $(VENV)/.lint $(VENV)/.test ## Check the types.
	$(RUN)mypy

wheel: $(VENV)/.installed ## Build the wheel, install it in an empty environment elsewhere, and run the main job there.
	PYTHON="$(PYTHON)" .ci/try-wheel

check: lint types test wheel ## Everything above but the demo.

bench: $(VENV)/.installed ## Run the speed benchmark (small sizes).
	$(RUN)python benchmarks/speed.py

clean: ## Remove the private environment and all caches.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/bin/python:
ifdef UV
	uv venv --python "$(PYTHON)" $(VENV)
else
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --upgrade "pip>=25.1"
endif

ifdef UV
INSTALL := uv pip install --quiet --python $(RUN)python
else
INSTALL := $(RUN)python -m pip install --quiet
endif

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@$(RUN)python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "composable-memory needs Python 3.11 or newer: run 'make clean' and 'make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)'"; exit 1; }
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	$(INSTALL) --group test
	@touch $@

$(VENV)/.lint: $(VENV)/.installed
	$(INSTALL) --group lint
	@touch $@
