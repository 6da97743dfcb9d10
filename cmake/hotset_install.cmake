# SPDX-License-Identifier: Apache-2.0

# Install rules: one export set per component, so that a consumer of the core never looks for the
# libraries of the simulator.
set(hotset_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hotset)

function(hotset_install_component component target)
  install(
    TARGETS ${target}
    EXPORT hotset-${component}-targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(
    EXPORT hotset-${component}-targets
    NAMESPACE hotset::
    DESTINATION ${hotset_package_dir})
endfunction()

hotset_install_component(core hotset_core)
if(TARGET hotset_sim)
  hotset_install_component(sim hotset_sim)
endif()
if(TARGET hotset_cuda)
  hotset_install_component(cuda hotset_cuda)
endif()
if(TARGET hotset)
  install(TARGETS hotset RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/hotsetConfig.cmake.in ${PROJECT_BINARY_DIR}/hotsetConfig.cmake
  INSTALL_DESTINATION ${hotset_package_dir}
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/hotsetConfigVersion.cmake
  VERSION ${PROJECT_VERSION}
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hotsetConfig.cmake
              ${PROJECT_BINARY_DIR}/hotsetConfigVersion.cmake
        DESTINATION ${hotset_package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
