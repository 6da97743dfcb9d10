# SPDX-License-Identifier: Apache-2.0
# A thin front for the CMake presets; `make help` says what there is.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?=
# Given again at every configure, so that a change of the environment is noticed.
configure = cmake --preset $(1) -DHOTSET_DATA_DIR="$(HOTSET_DATA_DIR)"
build = cmake --build --preset $(1) -j $(JOBS) $(if $(2),--target $(2))
test = ctest --preset $(1) -j $(JOBS)

.PHONY: help demo test bench check install format clean packages packages-check
help:
	@echo 'make demo            build what the demo needs and run it'
	@echo 'make test            build everything and run all tests (preset dev)'
	@echo 'make bench           a short run of every benchmark (preset release)'
	@echo 'make check           formatting, lint, headers one by one, the suite under asan, threads under tsan'
	@echo 'make install         install the release build; PREFIX=<folder> says where'
	@echo 'make format          format the sources in place'
	@echo 'make clean           remove build/'
	@echo 'JOBS=<n>             parallel jobs, all cores by default'
	@echo 'HOTSET_DATA_DIR=<d>  folder of traces too large for the repository; tests skip without it'

packages:
	@cmake/install-packages.sh
packages-check:
	@cmake/install-packages.sh check

demo: packages
	$(call configure,release)
	$(call build,release,demo_programs)
	examples/demo.sh build/release

test: packages
	$(call configure,dev)
	$(call build,dev)
	$(call test,dev)

bench: packages
	$(call configure,release)
	$(call build,release,bench_all)
	cmake/run-benchmarks.sh build/release --benchmark_min_time=0.05

# Cheapest first, and within an hour on two cores: the whole suite once, under AddressSanitizer (the consumer tests
# are part of it), with fifty times the random operations of `make test`, which is the suite as users build it;
# ThreadSanitizer on the tests that start threads.
check: export HOTSET_INTERLEAVING_OPERATIONS = 5000000
check: packages-check
	cmake/format.sh --check
	$(call configure,dev)
	$(call build,dev,all_verify_interface_header_sets)
	cmake/lint.sh build/dev
	$(call configure,tsan)
	$(call build,tsan)
	$(call test,tsan)
	$(call configure,asan)
	$(call build,asan)
	$(call test,asan)
	$(call configure,release)
	$(call build,release,bench_all)

install: packages
	$(call configure,release)
	$(call build,release)
	cmake --install build/release $(if $(PREFIX),--prefix "$(PREFIX)")

format: packages-check
	cmake/format.sh

clean:
	cmake -E rm -rf build
