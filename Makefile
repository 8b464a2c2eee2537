# Everything here is a short way to say what CMake, CTest and the scripts in tools/ do; CONTRIBUTING.md has the long one.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 10
CTEST := ctest --no-tests=error --parallel $(JOBS)
VENV := build/venv
# One of each kind that an emulator runs in seconds: every cell, the vectors' functions, engines, a stream.
ARM64_TESTS := test_cells_list test_backend_functions test_backend_int8 test_ops_scan test_ops_scan_precision test_stream_session

# A build from nothing is quicker if the compiler takes forty sources as one. The presets by themselves keep sources
# apart, for those who change one of them; a folder stays as it began.
UNITY := $(if $(wildcard build/release/CMakeCache.txt),,-D CMAKE_UNITY_BUILD=ON -D CMAKE_UNITY_BUILD_BATCH_SIZE=40)

.PHONY: help demo build test test-gpu vendor check python wheel docs sanitize portable lint format install clean setup setup-test setup-portable configured-test built-test pytest installed sanitize-asan sanitize-tsan fuzz arm64-built arm64 runtime-platforms
# Targets share folders, so they run one after the other. Those that share none may run side by side: each leaves a core
# idle at times, during downloads, in CMake and at the end of the tests.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif
# Two targets at a time, or as many as a make above this one allows in all; + hands on that make's count, which it does
# by itself only where $(MAKE) stands in the line.
two_at_once = $(MAKE) $(if $(SIDE_BY_SIDE),,SIDE_BY_SIDE=1 --jobs=2)

help: ## Say what there is to make
	@echo 'Penstock: gated recurrent networks. What there is to make:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-9s %s\n", $$1, $$2 }'

demo: build ## Install what is missing, build, train a model on a text, let it write and stream (a few minutes)
	@tools/demo.sh build/release/penstock build/demo

test: ## Install what is missing, then run the linters and every test, and build the documentation
	+@$(two_at_once) lint check
	+@$(two_at_once) python docs

build: setup ## Build the library and the program into build/release
	@$(call configure,release,$(UNITY))
	@cmake --build --preset release --parallel $(JOBS)

check: built-test $(VENV)/ready ## Build and run the C++ tests
	@VIRTUAL_ENV=$(abspath $(VENV)) PENSTOCK_TEST_NVRTC=required $(CTEST) --preset test

python: pytest ## Build the Python package and run the Python tests, in a virtual environment in build/

wheel: setup $(VENV)/ready ## Build the Python package as a wheel, into dist/
	@tools/wheel.sh $(VENV)/bin/python build/release

vendor: ## Copy the C runtime into build/vendor: one folder that any C++20 compiler builds
	@tools/vendor.py build/vendor

test-gpu: configured-test ## Run the tests of the GPU on this machine's, also under compute-sanitizer
	@cmake --build --preset test --parallel $(JOBS) --target gpu_tests
	@tools/test_gpu.sh build/release/tests

docs: installed ## Build the documentation as a site, into build/site; a warning is an error
	@$(VENV)/bin/python -m sphinx -q -W --keep-going --jobs $(JOBS) docs build/site

sanitize: sanitize-asan sanitize-tsan ## Build and run the C++ tests under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer

sanitize-asan: setup-test
	@$(call configure,sanitize)
	@cmake --build --preset sanitize --parallel $(JOBS)
	@$(CTEST) --preset sanitize

sanitize-tsan: setup-test
	@$(call configure,tsan)
	@cmake --build --preset tsan --parallel $(JOBS)
	@$(CTEST) --preset tsan

portable: fuzz arm64 runtime-platforms ## Compile with clang and fuzz for FUZZ_SECONDS a target; cross-compile for arm64 and test that under an emulator

# What runs for seconds need not be optimised: that takes longer than it saves.
fuzz: setup-portable
	@$(call configure,fuzz,-D CMAKE_CXX_FLAGS_DEBUG='-O0 -g1')
	@cmake --build --preset fuzz --parallel $(JOBS)
	@tools/fuzz.sh build/fuzz/tests/fuzz $(FUZZ_SECONDS)

# In a folder of its own, so that it may run beside every other target.
arm64-built: setup-portable
	@tools/arm64_sysroot.sh build/arm64_sysroot
	@$(call configure,arm64)
	@cmake --build --preset arm64 --parallel $(JOBS) --target penstock-cli $(ARM64_TESTS)

arm64: arm64-built configured-test
	@cmake --build --preset test --parallel $(JOBS) --target penstock-cli
	@tools/test_arm64.sh build/arm64 build/release/penstock $(ARM64_TESTS)

runtime-platforms: setup-portable
	@tools/test_runtime.sh build/runtime_platforms

lint: setup-test $(VENV)/ready ## Check formatting, the order of the layers, and clang-tidy's list
	@$(call configure,lint,-D Python_EXECUTABLE=$(abspath $(VENV))/bin/python)
	@tools/lint.sh build/lint

format: setup-test ## Format the C++ sources in place
	@git ls-files '*.h' '*.cc' '*.inl' '*.cuh' | xargs clang-format -i

install: build ## Install the library, its CMake package and the program under PREFIX (/usr/local)
	@cmake --install build/release --prefix $(PREFIX)

clean: ## Remove everything that was built
	@rm -rf build

setup:
	@tools/setup.sh build

setup-test:
	@tools/setup.sh test

setup-portable: setup-test
	@tools/setup.sh portable

configured-test: setup-test
	@$(call configure,test,$(UNITY))

built-test: configured-test
	@cmake --build --preset test --parallel $(JOBS)

# One after the other: a folder that has built the package once asks for the environment whenever CMake runs in it.
installed: $(VENV)/ready
	@$(MAKE) built-test
	@tools/wheel.sh $(VENV)/bin/python build/release
	@$(VENV)/bin/pip install --quiet --force-reinstall --no-deps dist/*.whl

pytest: installed
	@OMP_WAIT_POLICY=passive OMP_DYNAMIC=false $(VENV)/bin/python -m pytest -q -n $(JOBS) --dist worksteal --timeout 900 tests/python tests/cli tests/faults

# uv installs them in a third of pip's time; pip knows more ways to configure an index.
$(VENV)/ready: tests/python/requirements.txt | setup-test
	@echo 'penstock: a virtual environment for the Python tests, in $(VENV)'
	@python3 -m venv --clear $(VENV)
	@$(VENV)/bin/pip install --quiet uv
	@$(VENV)/bin/uv pip install --quiet --python $(VENV)/bin/python -r $< || $(VENV)/bin/pip install --quiet -r $<
	@touch $@

# $(call configure,PRESET,OPTIONS): CMake's own report is of interest only when it fails.
define configure
mkdir -p build; cmake --preset $(1) $(2) >build/$(1).log 2>&1 || { cat build/$(1).log; exit 1; }
endef
