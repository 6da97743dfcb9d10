# SPDX-License-Identifier: Apache-2.0
# A thin front for the CMake presets; `make help` says what there is.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?=
# Given again at every configure, so that a change of the environment is noticed.
configure = cmake --preset $(1) -DHOTSET_DATA_DIR="$(HOTSET_DATA_DIR)" $(2)
build = cmake --build --preset $(1) -j $(JOBS) $(if $(2),--target $(2))
test = ctest --preset $(1) -j $(JOBS)
install = cmake --install build/$(1) $(if $(PREFIX),--prefix "$(PREFIX)")
# Where nothing is tested no library for tests is looked for.
no_tests = -DHOTSET_BUILD_TESTS=OFF

.PHONY: help demo test bench style reference check python engines install install-headers uninstall format clean
help:
	@echo 'make demo            build what the demo needs and run it; some 7 minutes of processor time the first time'
	@echo 'make test            build everything and run all tests (preset dev)'
	@echo 'make bench           a short run of every benchmark (preset release)'
	@echo 'make style           formatting, and every header compiled alone'
	@echo 'make reference       the reference of the headers, in build/reference/html'
	@echo 'make check           formatting, reference, lint, headers one by one, the suite under asan, threads under tsan'
	@echo 'make python          the Python package in an environment of its own: built as a wheel, installed, tested'
	@echo 'make engines         real llama.cpp and transformers, installed under build/, with everything that goes with them'
	@echo 'make install         build and install the libraries and the command line; PREFIX=<folder> says where'
	@echo 'make install-headers install the core alone, which is headers: nothing is compiled'
	@echo 'make uninstall       remove what the last `make install` and `make install-headers` installed'
	@echo 'make format          format the sources in place'
	@echo 'make clean           remove build/'
	@echo 'JOBS=<n>             parallel jobs, all cores by default'
	@echo 'HOTSET_DATA_DIR=<d>  folder of traces too large for the repository; tests skip without it'

# What a target needs, and no more.
packages-%:
	@cmake/install-packages.sh $*

demo: packages-demo
	$(call configure,release,$(no_tests) -DHOTSET_BUILD_BENCHMARKS=OFF)
	$(call build,release,demo_programs)
	examples/demo.sh build/release

test: packages-test
	$(call configure,dev)
	$(call build,dev)
	$(call test,dev)

bench: packages-bench
	$(call configure,release,$(no_tests))
	$(call build,release,bench_all)
	cmake/run-benchmarks.sh build/release --benchmark_min_time=0.05

style: packages-style
	cmake/format.sh --check
	$(call configure,dev)
	$(call build,dev,all_verify_interface_header_sets)

reference: packages-reference
	cmake/reference.sh

# Cheapest first, and within an hour on two cores: the suite once, under AddressSanitizer by clang++, the second compiler (benchmarks are built; consumers
# compile what is installed with options of their own, and are `make test`'s), with fifty times the random operations of `make test`, which is the suite
# as users build it; ThreadSanitizer on the tests that start threads. UndefinedBehaviorSanitizer does without the checks
# that tripled the build: null and bounds of objects, which AddressSanitizer sees; pointers that wrap; alignment in tests; and
# the inner loops of the example engine.
# Two tests of minutes of arithmetic are left out of both: the engine's answers as a whole, and the command `verify`, whose cases
# another test runs.
check: export HOTSET_INTERLEAVING_OPERATIONS = 5000000
check: packages-check style reference
	cmake/lint.sh build/dev
	$(call configure,tsan)
	$(call build,tsan,test_programs)
	$(call test,tsan)
	$(call configure,asan)
	$(call build,asan)
	$(call test,asan)

python: packages-python
	cmake/python-package.sh build/python

engines: packages-engines
	cmake/engines.sh build/engines

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
