# SPDX-License-Identifier: Apache-2.0
# `make` lists the targets. Everything is installed into .venv, from package registries, without root.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD := build/release
JOBS ?= $(shell nproc)
Q := $(if $(V),,@)
QUIET := $(if $(V),,> /dev/null)
CONFIGURE := $(BIN)/cmake -S . -G Ninja -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)
export TF_CPP_MIN_LOG_LEVEL ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo build lib lib-debug lib-asan test test-fast test-lib test-py lint fmt typecheck bench fuzz docs check \
        clean dist

## help: list the targets
help:
	@grep -hE '^## ' $(MAKEFILE_LIST) | sed -e 's/^## //' | awk -F': ' '{printf "  %-12s %s\n", $$1, $$2}'

# One stamp per set of packages: a later `make` installs only what has changed in pyproject.toml.
$(VENV)/.stamp-%: pyproject.toml
	$(Q)test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(Q)echo "Installing the packages for '$*' into $(VENV) (the first time this takes a minute or two)"
	$(Q)$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(Q)$(BIN)/python -m pip install --quiet --disable-pip-version-check --group $*
	$(Q)touch $@

## build: build libprocessor.so and the Python binding into processor/
build: lib

## lib: the same as build
lib: $(VENV)/.stamp-build
	$(Q)$(CONFIGURE) -B $(BUILD) -DPROCESSOR_BENCH=ON $(QUIET)
	$(Q)$(BIN)/cmake --build $(BUILD) --parallel $(JOBS)

SOURCES = $(shell find libprocessor tests \( -name '*.c' -o -name '*.cc' -o -name '*.h' \) -not -path '*/build/*')

## lint: check format and style of C, C++, Go and Python, and the limits of the house
lint: $(VENV)/.stamp-lint
	$(Q)$(BIN)/ruff check .
	$(Q)$(BIN)/ruff format --check --quiet . || { echo "run 'make fmt'"; exit 1; }
	$(Q)$(BIN)/clang-format --dry-run --Werror $(SOURCES) || { echo "run 'make fmt'"; exit 1; }
	$(Q)if command -v gofmt > /dev/null; then files=$$(gofmt -l libprocessor/go); test -z "$$files" || { echo "gofmt: $$files"; exit 1; }; fi
	$(Q)$(BIN)/python tools/make_abi_reference.py --check
	$(Q)$(BIN)/python tools/check_tree.py

## fmt: format C, C++, Go and Python
fmt: $(VENV)/.stamp-lint
	$(Q)$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .
	$(Q)$(BIN)/clang-format -i $(SOURCES)
	$(Q)if command -v gofmt > /dev/null; then gofmt -w libprocessor/go; fi

## typecheck: mypy --strict on our packages
typecheck: $(VENV)/.stamp-lint
	$(Q)$(BIN)/mypy

## docs: write the ABI reference from the headers
docs: $(VENV)/.stamp-build
	$(Q)$(BIN)/python tools/make_abi_reference.py

## dist: write dist/libprocessor-<version>-linux-x86_64.tar.gz, for machines without Python
dist: lib
	$(Q)$(BIN)/cmake --build $(BUILD) --parallel $(JOBS) --target processor_dist
	$(Q)$(BIN)/python tools/make_dist.py --build $(BUILD)

## check: what CI runs, in the same order
check: lint typecheck test

## clean: remove what was built, but not .venv
clean:
	$(Q)rm -rf build dist results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	$(Q)rm -f processor/libprocessor.so processor/_abi.py processor/_build.py
