# Two commands set up everything: `make demo` runs the main job, `make test` the tests.
# Needed: python3 (3.11 or newer, with venv) and make. Nothing else is touched outside this folder.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9
SUITE ?= agent
KILLS ?= 2000
DATA ?= examples/conversations.json
DEMO := $(VENV)/demo
EXAMPLE := examples/conversations.json
QUESTION := which database did I choose for the shop, and why?
IN_DEMO := env -u ENGRAIN_DB ENGRAIN_HOME=$(DEMO) ENGRAIN_USER=demo $(BIN)/engrain

export UV_PROJECT_ENVIRONMENT := $(VENV)
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS := true

.PHONY: help setup demo test check eval bench torture docs clean

help: ## Show what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort

setup: $(VENV)/.ready ## Create the environment from the lock

$(VENV)/.ready: pyproject.toml uv.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@$(BIN)/uv sync --quiet --frozen --inexact --python $(BIN)/python
	@touch $@

demo: setup ## Import the example conversations and recall from them
	@mkdir -p -m 700 $(DEMO)
	@$(IN_DEMO) import $(EXAMPLE) > $(DEMO)/report.txt
	@echo '$$ engrain recall "$(QUESTION)" --budget 300 --explain'
	@$(IN_DEMO) recall "$(QUESTION)" --budget 300 --explain
	@echo; echo '$$ engrain sessions list --all'
	@$(IN_DEMO) sessions list --all
	@echo; echo '$$ engrain import $(EXAMPLE)'
	@cat $(DEMO)/report.txt

test: check ## Run every check and test
	$(BIN)/pytest -n 2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

eval: setup ## Measure recall quality: make eval DATA=path
	$(BIN)/python bench/evaluate.py $(DATA) $(if $(JSON),--json)

bench: setup ## Measure speed against floors and peers: make bench [ONLY=turns,replay] [FULL=1]
	$(BIN)/python bench/speed.py $(if $(ONLY),--only $(ONLY),--into bench/results) $(if $(FULL),--full)

torture: setup ## Kill agents over and over: make torture SUITE=agent KILLS=20000
	@test "$(SUITE)" = agent || { echo "SUITE is one of: agent"; exit 2; }
	@cd tests && ../$(BIN)/python -m crash.agent_torture --kills $(KILLS)

docs: setup ## Write the generated pages anew
	$(BIN)/python docs/generate.py

clean: ## Remove the environment and caches
	rm -rf $(VENV) .venv-peers .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis
