# Every target sets itself up: on a machine with Python 3.11 and make nothing else has to be installed.
PYTHON ?= python3
BIN := .venv/bin
# Tests run side by side, a process for each core, each with one thread of its own.
SIDE_BY_SIDE := --numprocesses auto --dist worksteal
export OMP_NUM_THREADS ?= 1
# Tests on real data run where this names its folder, and are skipped elsewhere.
ifneq ($(wildcard ../shared/data),)
export INPHASE_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test quick check lint types bench soak clean

demo: .venv/ready  ## learn to align drawn people, by keypoints and by pixels, and align two of them
	$(BIN)/inphase demo --out out/demo

test: lint types  ## what CI runs
	$(BIN)/pytest $(SIDE_BY_SIDE)

quick: .venv/ready  ## the fast tests, for a check after every change
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not slow"

check:  ## the same, through CI's own script
	bash .ci/run

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/ready
	$(BIN)/mypy

bench: .venv/bench  ## measure the recursion beside its peers, into the README's table, and the loader beside a training step
	$(BIN)/python -m benchmarks.recursion --write
	$(BIN)/python -m benchmarks.loading

soak: .venv/ready  ## hours of the same work, with processes killed and disks filled
	$(BIN)/python -m benchmarks.soak

.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/bench: .venv/ready
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,bench]'
	touch $@

clean:
	rm -rf .venv out .mypy_cache .pytest_cache .ruff_cache
