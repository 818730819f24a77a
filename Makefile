# make demo: install and run the main job; make test: install and check everything
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

export OMP_NUM_THREADS ?= 1

.PHONY: venv requirements demo test lint coverage oldest faults bench results fuzz sbom clean

venv: $(INSTALLED)

# everything by its digest, but for torch, which has builds of its own for machines with and without a GPU
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(INSTALLED): pyproject.toml constraints.txt requirements-ci.txt oracles.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-deps --require-hashes --only-binary :all: -r requirements-ci.txt
	$(PIP) -c constraints.txt torch
	$(PIP) --no-deps --no-build-isolation -e .
	$(PIP) --no-deps -r oracles.txt
	touch $@

# requirements-ci.txt anew, from what pyproject.toml asks for and constraints.txt allows
LOCK := .venv-lock

requirements:
	$(PYTHON) -m venv $(LOCK)
	$(LOCK)/bin/python -m pip install --quiet --disable-pip-version-check "uv==0.13.7"
	$(LOCK)/bin/uv pip compile --quiet pyproject.toml --extra dev --constraint constraints.txt --generate-hashes \
		--no-emit-package torch --python-version 3.11 --python-platform x86_64-manylinux_2_28 --no-annotate \
		$(addprefix --find-links ,$(PIP_FIND_LINKS)) --custom-compile-command "make requirements" -o requirements-ci.txt

demo: venv
	$(BIN)/gedikit demo

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# three workers on two cores, as many tests wait for processes; whole files, which prepare what their tests share
WORKERS ?= -n 3 --dist loadfile --no-loadscope-reorder

test: lint
	$(BIN)/python -m pytest $(WORKERS) --doctest-modules src tests

coverage: venv
	$(BIN)/python -m pytest $(WORKERS) --cov=gedikit --cov-report=term:skip-covered tests

# the oldest dependencies that pyproject.toml allows, and tests that reach most of them
OLDEST := .venv-oldest
OLDEST_TESTS ?= tests/test_estimator.py tests/test_methods.py tests/test_progress.py tests/test_storage.py \
	tests/cli/test_commands.py tests/report tests/evaluation/test_evaluation.py tests/views tests/encoders/test_mlp.py \
	tests/data/test_folder.py tests/data/test_official.py tests/symbolic/test_programs.py tests/symbolic/test_tables.py

oldest:
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c oldest.txt torch
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c oldest.txt -e ".[test]"
	$(OLDEST)/bin/python -m pytest -n 2 -k "not 20000" $(OLDEST_TESTS)

# runs that are killed, starved, stopped or damaged, as often and as long as asked for (docs/trust.md)
KILLS ?= 20
ITERATIONS ?= 20000
PROMISES := tests/faults tests/training/test_processes.py tests/cli/test_predict_by_processes.py

faults: venv
	GEDIKIT_KILLS=$(KILLS) GEDIKIT_ITERATIONS=$(ITERATIONS) $(BIN)/python -m pytest $(PROMISES)

# damaged files of every format: what each reader took is in fuzz.jsonl
FUZZ_CASES ?= 450
FUZZ_SEED ?= 0

fuzz: venv
	rm -f fuzz.jsonl
	GEDIKIT_CHECK_TYPES=0 GEDIKIT_FUZZ_CASES=$(FUZZ_CASES) GEDIKIT_FUZZ_SEED=$(FUZZ_SEED) \
		GEDIKIT_FUZZ_REPORT=fuzz.jsonl $(BIN)/python -m pytest tests/hostile
	cat fuzz.jsonl

# what is installed, as CycloneDX; the tool has an environment of its own, so that it does not list itself
SBOM := .venv-sbom

sbom: venv
	$(PYTHON) -m venv $(SBOM)
	$(SBOM)/bin/python -m pip install --quiet --disable-pip-version-check "cyclonedx-bom==7.5.0"
	$(SBOM)/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml -o sbom.json $(BIN)/python

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
	rm -rf $(VENV) $(LOCK) $(OLDEST) $(SBOM) fuzz.jsonl* sbom.json runs build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
