# `make` lists the targets.

PYTHON ?= python3
VENV ?= .venv
# how many times longer `make soak` runs than `make test`
SOAK ?= 10
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

INSTALLED := $(VENV)/.installed
BUILT := $(VENV)/.built

.DELETE_ON_ERROR:
.PHONY: help build demo test test-pythons test-gunicorns lint bench soak clean

help:  ## this list
	@grep -hE '^[a-z.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 16

build: $(BUILT)  ## the extension, built in place, and all tools, in .venv

demo: build  ## gunicorn with 4 workers under load, one killed in the middle: the bound holds
	$(BIN)/python -m demo

test: build  ## all tests
	$(PYTEST)

test-pythons:  ## the tests under each Python version that is found here
	.ci/pythons 3.11 3.12 3.13

test-gunicorns:  ## the tests of servers under the oldest gunicorn that is supported
	.ci/gunicorns 23.0.0

lint: build  ## ruff, cython-lint, mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint pyx  # it runs pycodestyle from PATH
	$(BIN)/mypy

bench: build  ## the benchmarks, in their short form; bench/README.md explains them
	$(BIN)/python -m bench.decision --quick
	$(BIN)/python -m bench.processes --quick
	$(BIN)/python -m bench.memory --quick
	$(BIN)/python -m bench.populate --quick

soak: build  ## the race rigs, the kills, the protocol's model, waiters and a server in trouble, for long
	SHMLIMIT_SOAK=$(SOAK) $(PYTEST) tests/test_model.py tests/test_races.py tests/test_kills.py \
	    tests/test_limiter_model.py tests/test_real_waiters.py \
	    tests/test_gunicorn_soak_server.py

clean:  ## removes what was built and installed
	rm -rf .venv .venv-* build dist *.egg-info shmlimit/*.so
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv: $(INSTALLED)

# Installing needs no isolated build: the venv has the build tools, to build again after an edit.
$(INSTALLED): pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "$(PYTHON) is missing or older than 3.11: install one, or name one: make PYTHON=python3.12" >&2; \
	    exit 1; }
	@$(PYTHON) -c 'import os, sysconfig; open(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null || { \
	    echo "the C headers of $(PYTHON) are missing: install them (Debian: apt install python3-dev)" >&2; \
	    exit 1; }
	@command -v $(firstword $(CC)) >/dev/null || { \
	    echo "no C compiler: $(firstword $(CC)) is not found; install one (Debian: apt install gcc)," \
	        "or name one: make CC=clang" >&2; \
	    exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check "setuptools>=77" "Cython>=3.1"
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation \
	    -e ".[gunicorn,test,lint]"
	@touch $@

$(BUILT): $(INSTALLED) $(wildcard pyx/*)
	$(BIN)/python setup.py -q build_ext --inplace
	@touch $@
