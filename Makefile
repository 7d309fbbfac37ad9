# Every target installs its own dependencies: a machine needs only Python 3.11, 3.12 or 3.13 and make.
PYTHON ?= python3
# Another Python gets an environment of its own: `make test PYTHON=python3.13` uses .venv-python3.13.
VENV := $(if $(filter python3,$(PYTHON)),.venv,.venv-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
# Tests run in parallel, one thread per process: a process per core and one more, since those of the browser wait.
CORES := $(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)')
SIDE_BY_SIDE := --numprocesses $(shell expr $(CORES) + 1) --dist worksteal
export OMP_NUM_THREADS ?= 1
# Compiled modules are kept, also where the environment says otherwise: compiling torch takes longer than importing it.
export PYTHONDONTWRITEBYTECODE :=
# Tests on real data need this variable; without it they are skipped.
ifneq ($(wildcard ../shared/data),)
export INPHASE_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test tests quick check lint types docs release bench soak lock clean

demo: $(VENV)/demo  ## train on drawn people by pose and by image, and show two golfers, a session and the viewer on a page
	$(BIN)/inphase demo --out out/demo

test: lint  ## what CI runs; types are checked beside the tests
	$(MAKE) --no-print-directory --jobs 2 types tests

tests: $(VENV)/ready
	$(BIN)/pytest $(SIDE_BY_SIDE)

quick: $(VENV)/ready  ## the fast tests, for a check after every change
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not slow"

check:  ## the same through CI's script
	bash .ci/run

lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/ready
	$(BIN)/mypy

docs: $(VENV)/docs  ## build the documentation into out/site, offline; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

release: $(VENV)/release  ## check the package's files, the image and the workflows with the tools of their makers
	$(BIN)/pytest tests/test_release.py -rs

bench: $(VENV)/bench  ## time the recursion beside its peers, into docs/benchmarks.md, and the loader beside a training step
	$(BIN)/python -m benchmarks.recursion --write
	$(BIN)/python -m benchmarks.loading

soak: $(VENV)/ready  ## kill commands and damage their inputs for an hour, into docs/engineering/reliability.md; then watch the memory
	$(BIN)/python -m tools.soak --minutes 60 --write
	$(BIN)/python -m benchmarks.scale soak --minutes 10

# pip takes hashes of all packages or of none, and never of an editable one: constraints.txt cannot hold them.
lock: $(VENV)/ready  ## write requirements-hashed.txt: every dependency with the SHA-256 of its files
	$(BIN)/pip install --quiet uv
	echo 'hatchling>=1.24' | $(BIN)/uv pip compile --quiet pyproject.toml - --extra dev --extra docs --extra release --constraint constraints.txt \
	  --universal --python-version 3.11.5 --generate-hashes --no-annotate --custom-compile-command 'make lock' \
	  --output-file requirements-hashed.txt

$(VENV)/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $@

# The demo needs less than the tests: it starts sooner on a new machine.
$(VENV)/demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -e $(VENV)/ready || $(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[train,viewer]'
	touch $@

$(VENV)/release: $(VENV)/ready
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[release]'
	touch $@

$(VENV)/bench: $(VENV)/ready
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,bench]'
	touch $@

$(VENV)/docs: $(VENV)/ready
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

clean:
	rm -rf .venv .venv-* out .mypy_cache .pytest_cache .ruff_cache
