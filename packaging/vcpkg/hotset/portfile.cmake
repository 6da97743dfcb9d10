# SPDX-License-Identifier: Apache-2.0
# Overlay port of this source tree: vcpkg install hotset --overlay-ports=packaging/vcpkg
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES lab HOTSET_BUILD_LAB)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${features}
          -DHOTSET_BUILD_CUDA=OFF
          -DHOTSET_BUILD_PYTHON=OFF
          -DHOTSET_BUILD_TESTS=OFF
          -DHOTSET_BUILD_BENCHMARKS=OFF
          -DHOTSET_BUILD_EXAMPLES=OFF
          -DHOTSET_BUILD_INTEGRATIONS=OFF
          -DHOTSET_LIBURING_LIBRARY=OFF
          -DCMAKE_DISABLE_FIND_PACKAGE_CURL=ON
          -DHOTSET_INSTALL=ON)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/hotset)
vcpkg_fixup_pkgconfig()
if("lab" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES hotset AUTO_CLEAN)
endif()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
