# Every target installs its own dependencies: a machine needs only Python 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
# Tests run in parallel, one process per core, one thread per process.
SIDE_BY_SIDE := --numprocesses auto --dist worksteal
export OMP_NUM_THREADS ?= 1
# Compiled modules are kept, also where the environment says otherwise: compiling torch takes longer than importing it.
export PYTHONDONTWRITEBYTECODE :=
# Tests on real data need this variable; without it they are skipped.
ifneq ($(wildcard ../shared/data),)
export INPHASE_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test quick check lint types bench soak clean

demo: .venv/ready  ## train on drawn people by pose and by image, and align two of them
	$(BIN)/inphase demo --out out/demo

test: lint types  ## what CI runs
	$(BIN)/pytest $(SIDE_BY_SIDE)

quick: .venv/ready  ## the fast tests, for a check after every change
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not slow"

check:  ## the same through CI's script
	bash .ci/run

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/ready
	$(BIN)/mypy

bench: .venv/bench  ## time the recursion beside its peers, into the README's tables, and the loader beside a training step
	$(BIN)/python -m benchmarks.recursion --write
	$(BIN)/python -m benchmarks.loading

soak: .venv/ready  ## kill commands and damage their inputs for an hour, into docs/reliability.md; then watch the memory
	$(BIN)/python -m tools.soak --minutes 60 --write
	$(BIN)/python -m benchmarks.scale soak --minutes 10

.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/bench: .venv/ready
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,bench]'
	touch $@

clean:
	rm -rf .venv out .mypy_cache .pytest_cache .ruff_cache
