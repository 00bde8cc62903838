# make demo  set up, then tune a real Triton server (6 minutes)
# make demo-tfserving  the same with TensorFlow Serving, or a stand-in for it (TensorFlow is fetched once)
# make test  set up, then run the tests
# make check format, lint, types, import rules, and the tests without compilation (counts the coverage)
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo demo-tfserving test test-fast check format clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=23'
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[demo,dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/tuner demo

demo-tfserving: $(STAMP)
	$(BIN)/tuner demo --server tfserving

test: $(STAMP)
	$(BIN)/pytest
	$(BIN)/pytest -m 'triton or tfserving or slow'

test-fast: $(STAMP)
	$(BIN)/pytest

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest --cov --cov-report=term:skip-covered

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build dist *.egg-info runs
