# make demo: install and run the main job; make test: install and check everything
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

export OMP_NUM_THREADS ?= 1

.PHONY: venv demo test lint bench results clean

venv: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt oracles.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r oracles.txt
	touch $@

demo: venv
	$(BIN)/gedikit demo

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -n 2 --doctest-modules src tests

bench: venv
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/predict.py
	$(BIN)/python benchmarks/objectives.py
	$(BIN)/python benchmarks/many.py
	$(BIN)/python benchmarks/symbolic.py

results: venv
	$(BIN)/python benchmarks/shapes.py
	$(BIN)/python benchmarks/digits.py

clean:
	rm -rf $(VENV) runs build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
