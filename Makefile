# SPDX-License-Identifier: Apache-2.0
# Short names for the CMake presets; `make help` lists the targets.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?=
# Passed at every configure, so that a change of the environment variable takes effect.
configure = cmake --preset $(1) -DHOTSET_DATA_DIR="$(HOTSET_DATA_DIR)" $(2)
build = cmake --build --preset $(1) -j $(JOBS) $(if $(2),--target $(2))
test = ctest --preset $(1) -j $(JOBS)
install = cmake --install build/$(1) $(if $(PREFIX),--prefix "$(PREFIX)")
# Builds without tests look for no test library.
no_tests = -DHOTSET_BUILD_TESTS=OFF

.PHONY: help demo test bench figures style reference check wheel python engines install install-headers uninstall format clean
help:
	@echo 'make demo            build what the demo needs and run it; some 6 minutes of processor time the first time'
	@echo 'make test            build everything and run all tests (preset dev)'
	@echo 'make bench           a short run of every benchmark (preset release)'
	@echo 'make figures         measure and draw the figures of docs/papers (preset release); HOTSET_DATA_DIR has the traces'
	@echo 'make style           formatting, plain words, and every header compiled alone'
	@echo 'make reference       the reference of the headers, in build/reference/html'
	@echo 'make check           formatting, reference, lint, headers one by one, the suite under asan, threads under tsan'
	@echo 'make wheel           dist/hotset-*.whl for every Python 3, tried in a Debian without a compiler'
	@echo 'make python          the wheel in an environment of its own: built, installed, tested'
	@echo 'make engines         install llama.cpp, transformers, vllm, sglang and prometheus under build/, and run all tests with them;'
	@echo '                     it says first what it downloads. ENGINES=llama.cpp selects one'
	@echo 'make install         build and install the libraries and the command line; PREFIX=<folder> says where'
	@echo 'make install-headers install the core alone, which is headers: nothing is compiled'
	@echo 'make uninstall       remove what the last `make install` and `make install-headers` installed'
	@echo 'make format          format the sources in place'
	@echo 'make clean           remove build/'
	@echo 'JOBS=<n>             parallel jobs, all cores by default'
	@echo 'HOTSET_DATA_DIR=<d>  folder of traces too large for the repository; tests skip without it'

# Installs the packages of one target and no others.
packages-%:
	@cmake/install-packages.sh $*

demo: packages-demo
	$(call configure,release,$(no_tests) -DHOTSET_BUILD_BENCHMARKS=OFF)
	$(call build,release,demo_programs)
	examples/demo.sh build/release

test: packages-test
	cmake/python-extras.sh build/python-extras
	$(call configure,dev)
	$(call build,dev)
	$(call test,dev)

bench: packages-bench
	$(call configure,release,$(no_tests))
	$(call build,release,bench_all)
	cmake/run-benchmarks.sh build/release --benchmark_min_time=0.05

figures: packages-figures
	$(call configure,release,$(no_tests) -DHOTSET_BUILD_BENCHMARKS=OFF)
	$(call build,release,demo_programs python_package)
	python3 -m venv build/figures
	build/figures/bin/pip install -q numpy vl-convert-python
	build/figures/bin/python benchmarks/reproduction/figures.py all build/release

style: packages-style
	cmake/format.sh --check
	cmake/words.py
	$(call configure,dev)
	$(call build,dev,all_verify_interface_header_sets)

reference: packages-reference
	cmake/reference.sh

# Cheapest first; takes at most an hour on two cores.
# The suite runs once under AddressSanitizer, built by clang++, the second compiler, with fifty times the random
# operations of `make test`. Benchmarks are built too. Consumer tests run in `make test` only.
# ThreadSanitizer runs the tests that start threads.
# UndefinedBehaviorSanitizer omits the checks that tripled the build time: null and object bounds (AddressSanitizer
# finds both), pointer overflow, alignment in tests, and the inner loops of the example engine.
# Two tests with minutes of arithmetic are excluded: the engine's complete answers, and the command `verify`, whose
# cases another test runs; so are tests that compile sources or run scripts, without a sanitizer's code.
check: export HOTSET_INTERLEAVING_OPERATIONS = 5000000
check: packages-check style reference
	cmake/lint.sh build/dev
	$(call configure,tsan)
	$(call build,tsan,test_programs)
	$(call test,tsan)
	$(call configure,asan)
	$(call build,asan)
	$(call test,asan)

wheel python engines: export JOBS := $(JOBS)
wheel: packages-wheel
	cmake/wheel.sh build/wheel
	cmake/wheel-test.sh build/wheel

python: packages-python
	cmake/wheel.sh build/wheel
	cmake/python-package.sh build/python

engines: packages-engines
	cmake/engines.sh build/engines $(ENGINES)

install: packages-install
	$(call configure,install)
	$(call build,install,installed_programs)
	$(call install,install)

install-headers: packages-install-headers
	$(call configure,install-headers)
	$(call install,install-headers)

uninstall:
	cmake "-Dfolders=build/install;build/install-headers" -P cmake/uninstall.cmake

format: packages-format
	cmake/format.sh

clean:
	cmake -E rm -rf build
