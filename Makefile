# Every target sets itself up: on a machine with Python 3.11 and make nothing else has to be installed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check lint types bench clean

demo: .venv/ready  ## learn to align drawn people, by keypoints and by pixels, and align two of them
	$(BIN)/inphase demo --out out/demo

test: lint types  ## what CI runs
	$(BIN)/pytest

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

.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/bench: .venv/ready
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,bench]'
	touch $@

clean:
	rm -rf .venv out .mypy_cache .pytest_cache .ruff_cache
