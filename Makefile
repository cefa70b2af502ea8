# Every target sets up what it needs in .venv and skips what is already there; `make help` lists them.

PYTHON ?= python3
JOBS ?= 2
SANITIZERS ?= address,undefined thread

VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check install --quiet
CPP_FILES = $(shell git ls-files -- '*.cpp' '*.h')
BASE_MODELS := bert gpt2 vit llama qwen3 mmoe

.DEFAULT_GOAL := help
.PHONY: help demo test test-torch lint golden bench docs models-base sanitize clean

help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.package ## Build, optimise the tiny BERT, compare with onnxruntime over many shapes.
	$(RUN) -m demo

test: $(VENV)/.package ## Run the tests that need no torch.
	$(RUN) -c 'import dvm_graph'
	$(RUN) -m pytest -q -n $(JOBS) --ignore=tests/torch tests

test-torch: $(VENV)/.package $(VENV)/.torch ## Run the tests that export through torch.
	$(RUN) -c 'import dvm_graph'
	$(RUN) -m pytest -q tests/torch

lint: $(VENV)/.lint ## Check style, formatting and types.
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	@[ -z "$(CPP_FILES)" ] || $(VENV)/bin/clang-format --dry-run -Werror $(CPP_FILES)

golden: $(VENV)/.package ## Rewrite the golden files from what the passes print now.
	$(RUN) -m pytest -q -m golden --ignore=tests/torch tests --update-golden

bench: $(VENV)/.package $(VENV)/.bench ## Compare running times with other engines.
	$(RUN) -m benchmarks

docs: $(VENV)/.package ## Write the generated pages of docs/.
	$(RUN) -m docs.generate

models-base: $(VENV)/.torch ## Export the models at their base sizes to build/models.
	$(RUN) -m models.export $(BASE_MODELS) --size base --skip-existing

# The sanitized build replaces the usual one in .venv; dropping the stamp makes the next target put that back.
sanitize: $(VENV)/.package ## Run the tests of the C++ rooms under the sanitizers.
	@rm -f $(VENV)/.package
	@set -e; for kind in $(SANITIZERS); do \
	    case $$kind in thread) library=libtsan.so;; *) library=libasan.so;; esac; \
	    echo "sanitizer: $$kind"; \
	    $(PIP) --no-build-isolation --no-deps --editable . \
	        --config-settings=build-dir=build/sanitize-$$(echo $$kind | tr , -) \
	        --config-settings=cmake.define.DVM_SANITIZE=$$kind; \
	    LD_PRELOAD=$$($${CXX:-c++} -print-file-name=$$library) ASAN_OPTIONS=detect_leaks=0 \
	        $(RUN) -m pytest -q tests/kernels tests/vm tests/npu tests/runtime; \
	done

clean: ## Remove the environment and everything built, exported base models too.
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.python:
	@$(PYTHON) .ci/check_toolchain.py python
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.package: pyproject.toml $(VENV)/.python
	@$(RUN) .ci/check_toolchain.py compiler
	@$(PIP) 'pygraphviz>=2.0' || { $(RUN) .ci/check_toolchain.py graphviz; exit 1; }
	$(PIP) 'scikit-build-core>=1.1' 'nanobind>=3.1' cmake ninja
	$(PIP) --no-build-isolation --editable '.[test]'
	@touch $@

$(VENV)/.lint: pyproject.toml $(VENV)/.python
	$(PIP) $$($(RUN) .ci/extra.py dev) numpy onnx click rich
	@touch $@

# torch first and alone, so that the pinned build is the one that the others find.
$(VENV)/.torch: pyproject.toml $(VENV)/.python
	$(PIP) torch==2.13.0
	$(PIP) $$($(RUN) .ci/extra.py torch) click numpy onnx onnxruntime
	@touch $@

$(VENV)/.bench: pyproject.toml $(VENV)/.package
	$(PIP) $$($(RUN) .ci/extra.py bench)
	@touch $@
