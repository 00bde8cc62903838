# make demo  set up, then tune a real Triton server (4 minutes)
# make demo-tfserving  the same with TensorFlow Serving, or a stand-in for it (TensorFlow is fetched once)
# make test  set up, then run the tests, live servers included (20 minutes on 2 cores the first time, 13 later), in four processes (WORKERS=1 for one)
# make test-long  the rest (6 minutes): what runs by the ten thousand, trainings, experiments in short, and tests that
#                 measure live servers one by one
# make test-fast  without those that start servers or take long
# make docs  the documentation as a site in build/site; a warning is an error (make pictures takes its pictures again)
# make check format, lint, types, import rules, and the tests of compiled functions without compilation
# make coverage what these and `make test` run, line by line; it takes twice their time
PYTHON ?= python3
# Two more than there are cores: tests of live servers mostly wait. Without groups, `loadgroup` hands out one test at a time.
WORKERS ?= 4
# One for each Python: `make test-fast PYTHON=python3.13 VENV=.venv-3.13`
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
TESTS := 'not alone and not long'
KERNELS := 'kernels and not (triton or tfserving or slow)'

.PHONY: demo demo-tfserving test test-long test-fast check coverage docs pictures format clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=23'
# setuptools warns of every editable install.
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[demo,dev,docs,research]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/tuner demo

demo-tfserving: $(STAMP)
	$(BIN)/tuner demo --server tfserving

test: $(STAMP)
	$(PYTEST) -m $(TESTS)

test-long: $(STAMP)
	$(PYTEST) -m long
	$(BIN)/pytest -m alone

test-fast: $(STAMP)
	$(PYTEST)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	NUMBA_DISABLE_JIT=1 $(PYTEST) -m $(KERNELS)

coverage: $(STAMP)
	NUMBA_DISABLE_JIT=1 $(PYTEST) -m $(KERNELS) --cov --cov-report=
	$(PYTEST) -m $(TESTS) --cov --cov-append --cov-report=term:skip-covered

docs: $(STAMP)
	$(BIN)/python docs/site/build.py

pictures: $(STAMP)
	PYTHONPATH=. $(BIN)/python docs/site/pictures.py

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info runs
