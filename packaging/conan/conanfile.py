# SPDX-License-Identifier: Apache-2.0
"""hotset for Conan 2: `conan create packaging/conan` packages the core, which is headers;
with `-o "hotset/*:policies=True"` policies by name as well, which are compiled."""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load

SOURCES = ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/c/*", "src/registry/*")
LEFT_OUT = ("LAB", "CUDA", "PYTHON", "TESTS", "BENCHMARKS", "EXAMPLES", "INTEGRATIONS")


class Hotset(ConanFile):
    name = "hotset"
    description = "Keeps the hot set of a Mixture-of-Experts model where the accelerator can reach it"
    license = "Apache-2.0"
    topics = ("mixture-of-experts", "inference", "cache", "header-only")
    settings = "os", "arch", "compiler", "build_type"
    options = {"policies": [True, False], "hardened": [True, False]}
    default_options = {"policies": False, "hardened": False}

    def set_version(self):
        header = load(self, os.path.join(self._project(), "include", "hotset", "version.hpp"))
        parts = (re.search(rf"#define HOTSET_VERSION_{part} (\d+)", header) for part in ("MAJOR", "MINOR", "PATCH"))
        self.version = ".".join(part.group(1) for part in parts)

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, self._project(), self.export_sources_folder)

    def configure(self):
        self.package_type = "static-library" if self.options.policies else "header-library"

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def package_id(self):
        if not self.info.options.policies:
            self.info.settings.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in LEFT_OUT:
            toolchain.cache_variables[f"HOTSET_BUILD_{part}"] = "OFF"
        toolchain.cache_variables["HOTSET_INSTALL"] = "ON"
        toolchain.cache_variables["HOTSET_HARDENED"] = bool(self.options.hardened)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        if self.options.policies:
            cmake.build(target="hotset_policies")

    def package(self):
        cmake = CMake(self)
        cmake.install(component="core")
        if self.options.policies:
            cmake.install(component="policies")

    def package_info(self):
        # find_package(hotset) reads the configuration that hotset installs, with its components.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "hotset")]
        self.cpp_info.libs = ["hotset_policies"] if self.options.policies else []

    def _project(self):
        return os.path.normpath(os.path.join(self.recipe_folder, "..", ".."))
