# Every target sets up what it needs in .venv and skips what is already there; `make help` lists them.

PYTHON ?= python3
COMMA := ,
JOBS ?= 2

VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check install --quiet
CORE := build/core
CPP_FILES = $(shell git ls-files -- '*.cpp' '*.h')
BASE_MODELS := bert gpt2 vit llama llama_decode qwen3 qwen3_decode mmoe resnet mobilenet convnext unet

.DEFAULT_GOAL := help
.NOTPARALLEL:  # targets install into one environment
.PHONY: help conformance demo test test-cpp test-torch test-trained lint fuzz audit-npu golden bench bench-docs paper docs models-base models-zoo sanitize clean

help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.native ## Build, optimise the tiny BERT, compare with onnxruntime over many shapes.
	$(RUN) -m demo

test: $(VENV)/.package ## Run the tests that need no torch.
	$(RUN) -c 'import dvm_graph'
	$(RUN) -m pytest -q -n $(JOBS) --ignore=tests/torch --ignore=tests/trained tests

test-torch: $(VENV)/.package $(VENV)/.torch ## Run the tests that export through torch.
	$(RUN) -c 'import dvm_graph'
	$(RUN) -m pytest -q -n $(JOBS) tests/torch

test-trained: $(VENV)/.package $(VENV)/.trained ## Run networks that packages ship, and a pipeline over them.
	$(RUN) -c 'import dvm_graph'
	$(RUN) -m pytest -q tests/trained

lint: $(VENV)/.lint ## Check style, formatting and types.
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	@[ -z "$(CPP_FILES)" ] || $(VENV)/bin/clang-format --dry-run -Werror $(CPP_FILES)

fuzz: $(VENV)/.package ## Random models against onnxruntime; FUZZ='--count 5000 --seed 7 --jobs 2 --shrink' and the like.
	$(RUN) -c 'import dvm_graph'
	$(RUN) -m tests.fuzz $(FUZZ)

audit-npu: $(VENV)/.package ## Values of a simulated NPU on all models and node tests, and what each flag of its programs is for.
	$(RUN) -c 'import dvm_graph'
	$(RUN) -m tests.npu.corpus

golden: $(VENV)/.package ## Rewrite the golden files from what the passes print now.
	$(RUN) -m pytest -q -m golden --ignore=tests/torch --ignore=tests/trained tests --update-golden

bench: $(VENV)/.package $(VENV)/.bench models-base models-zoo ## Compare with other engines; BENCH='--quick' and the like.
	$(RUN) -c 'import dvm_graph'
	$(RUN) -m benchmarks all $(BENCH)

paper: $(VENV)/.package ## The paper's operator datasets on the simulated NPU, its figures beside ours; PAPER='--seeds 2' and the like.
	$(RUN) -c 'import dvm_graph'
	$(PIP) matplotlib
	$(RUN) -m benchmarks.paper $(PAPER)

conformance: $(VENV)/.package ## Run onnx's node tests; fail where docs/conformance.md says otherwise.
	$(RUN) -m dvm_graph.backend --known docs/conformance.md

bench-docs: $(VENV)/.package $(VENV)/.bench ## Take the results of `make bench` into the page of this CPU in docs/performance.
	$(RUN) -m benchmarks document

docs: $(VENV)/.package ## Write the generated pages of docs/.
	$(RUN) -m docs.generate

models-zoo: $(VENV)/.torch ## Export the architectures of the zoo to build/models.
	$(RUN) -m models.export --zoo --size base --skip-existing

models-base: $(VENV)/.torch ## Export the models at their base sizes to build/models.
	$(RUN) -m models.export $(BASE_MODELS) --size base --skip-existing

# Builds and runs the C++ tests in a build folder: $(call cpp-tests,<folder>)
define cpp-tests
	$(VENV)/bin/cmake --build $(1) -j $(JOBS) --target dvm_tests -- --quiet
	$(VENV)/bin/ctest --test-dir $(1) --output-on-failure -j $(JOBS)
endef

# The same under sanitizers, with this machine's units: $(call sanitized-tests,<folder>,<sanitizers>)
define sanitized-tests
	$(VENV)/bin/cmake -S . -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(VENV)/bin/ninja \
	    -DDVM_BUILD_PYTHON=OFF -DDVM_LEVELS=native -DDVM_SANITIZE=$(2) >/dev/null
	$(call cpp-tests,$(1))
endef

test-cpp: $(VENV)/.package ## Run the tests of the C++ rooms.
	$(call cpp-tests,$(CORE))

sanitize: $(VENV)/.native ## Run the tests of the C++ rooms under the sanitizers, with this machine's units.
	$(call sanitized-tests,build/sanitize-address,address$(COMMA)undefined)
	$(call sanitized-tests,build/sanitize-thread,thread)

clean: ## Remove the environment and everything built, exported base models too.
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.python:
	@$(PYTHON) .ci/check_toolchain.py python
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.libraries: pyproject.toml $(VENV)/.python
	@$(RUN) .ci/check_toolchain.py compiler
	@echo "Installing libraries into $(VENV), once."
	@$(PIP) 'pygraphviz>=2.0' || { $(RUN) .ci/check_toolchain.py graphviz; exit 1; }
	$(PIP) 'scikit-build-core>=1.1' 'nanobind>=3.1' cmake ninja
	$(PIP) $$($(RUN) .ci/extra.py dependencies) $$($(RUN) .ci/extra.py test)
	@touch $@

# Builds the C++ core with the code of some instruction-set levels, and the other rooms, in one folder:
# $(call build-core,<all, or native for this machine's alone>)
define build-core
	@echo "Building the C++ core: some minutes, once."
	@$(RUN) .ci/building.py $(PIP) -vv --no-build-isolation --no-deps \
	    --config-settings=build-dir=$(CORE) --config-settings=cmake.define.DVM_LEVELS=$(1) --editable .
endef

$(VENV)/.package: $(VENV)/.libraries
	$(call build-core,all)
	@touch $@ $(VENV)/.native

# Enough to run models here; what needs the other levels, too, finds this much built.
$(VENV)/.native: $(VENV)/.libraries
	$(call build-core,native)
	@touch $@

$(VENV)/.lint: pyproject.toml $(VENV)/.python
	$(PIP) $$($(RUN) .ci/extra.py dev) numpy onnx click rich
	@touch $@

# torch first and alone, so that the pinned build is the one that the others find.
$(VENV)/.torch: pyproject.toml $(VENV)/.python
	@echo "Installing torch and transformers into $(VENV): some minutes, once."
	$(PIP) torch==2.13.0
	$(PIP) $$($(RUN) .ci/extra.py torch) click numpy onnx onnxruntime
	@touch $@

# Without what these packages ask for: torch, and an OpenCV that needs libraries of a desktop.
$(VENV)/.trained: $(VENV)/.package
	$(PIP) --no-deps rapidocr-onnxruntime==1.4.4 silero-vad==6.2.3
	$(PIP) $$($(RUN) .ci/extra.py trained)
	@touch $@

$(VENV)/.bench: $(VENV)/.package $(VENV)/.torch
	$(PIP) $$($(RUN) .ci/extra.py bench)
	@touch $@
