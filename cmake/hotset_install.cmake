# SPDX-License-Identifier: Apache-2.0

# Install rules: one export set per component (core, adapters, planning, testing, policies, c, c_static, lab, cli,
# cuda, http, uring, llama, llama_static), so that a consumer of the core needs no library of the laboratory. Components
# that were not built are neither installed nor exported.
#   cmake --install <folder> [--component core] [--prefix <where>]
set(hotset_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hotset)

function(hotset_install_component hotset_component hotset_component_target hotset_component_programs)
  add_subdirectory(${PROJECT_SOURCE_DIR}/cmake/install_component
                   ${PROJECT_BINARY_DIR}/install_${hotset_component})
endfunction()

# pkg-config files: hotset.pc is the core, hotset-policies.pc the policies by name, hotset-c.pc and hotset-c-static.pc
# the C interface, hotset_llama.pc and hotset_llama_static.pc that of llama.cpp. The user must request C++20.
file(RELATIVE_PATH hotset_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" hotset_pc_prefix "${hotset_pc_prefix}")
function(hotset_write_pkgconfig hotset_pc_name hotset_pc_description hotset_pc_requires hotset_pc_cflags hotset_pc_libs)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/hotset.pc.in ${PROJECT_BINARY_DIR}/${hotset_pc_name}.pc @ONLY)
endfunction()
set(hotset_pc_core_cflags "-I\${includedir} -pthread")
if(HOTSET_HARDENED)
  string(APPEND hotset_pc_core_cflags " -DHOTSET_HARDENED=1")
endif()
hotset_write_pkgconfig(hotset "${PROJECT_DESCRIPTION}" "" "${hotset_pc_core_cflags}" -pthread)
hotset_write_pkgconfig(hotset-policies "Policies of hotset by name" "hotset = ${PROJECT_VERSION}" ""
                       "-L\${libdir} -lhotset_policies")
hotset_write_pkgconfig(hotset-c "C interface of hotset" "" "-I\${includedir}" "-L\${libdir} -lhotset")
hotset_write_pkgconfig(hotset-c-static "C interface of hotset, as an archive" "" "-I\${includedir}"
                       "-L\${libdir} -lhotset_c -lhotset_policies -lstdc++ -lm -pthread")
if(TARGET hotset_llama_static)
  set(hotset_llama_libraries "-L\${libdir} -lhotset_llama_static -lhotset_lab -lhotset_policies -lfmt -larchive")
  if(TARGET hotset_uring)
    string(APPEND hotset_llama_libraries " -luring")
  endif()
  hotset_write_pkgconfig(hotset_llama "Pages experts of llama.cpp" llama "-I\${includedir}" "-L\${libdir} -lhotset_llama")
  hotset_write_pkgconfig(hotset_llama_static "Pages experts of llama.cpp, as an archive" llama "-I\${includedir}"
                         "${hotset_llama_libraries} -lstdc++ -lm -pthread")
endif()
set(hotset_pkgconfig_of_llama ${PROJECT_BINARY_DIR}/hotset_llama.pc)
set(hotset_pkgconfig_of_llama_static ${PROJECT_BINARY_DIR}/hotset_llama_static.pc)
set(hotset_pkgconfig_of_c ${PROJECT_BINARY_DIR}/hotset-c.pc)
set(hotset_pkgconfig_of_c_static ${PROJECT_BINARY_DIR}/hotset-c-static.pc)
set(hotset_pkgconfig_of_core ${PROJECT_BINARY_DIR}/hotset.pc)
set(hotset_pkgconfig_of_policies ${PROJECT_BINARY_DIR}/hotset-policies.pc)

hotset_install_component(core hotset_core "")
foreach(part adapters planning testing)
  hotset_install_component(${part} hotset_${part} "")
endforeach()
hotset_install_component(policies hotset_policies "")
hotset_install_component(c hotset_c "")
hotset_install_component(c_static hotset_c_static "")
if(TARGET hotset_lab)
  hotset_install_component(lab hotset_lab "")
  hotset_install_component(cli hotset_cli hotset)
endif()
if(TARGET hotset_cuda)
  hotset_install_component(cuda hotset_cuda "")
endif()
foreach(part http uring)
  if(TARGET hotset_${part})
    hotset_install_component(${part} hotset_${part} "")
  endif()
endforeach()
if(TARGET hotset_llama_static)
  hotset_install_component(llama hotset_llama "hotset-llama;hotset-llama-record")
  hotset_install_component(llama_static hotset_llama_static "")
  install(TARGETS hotset_llama_preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT llama OPTIONAL)
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
        DESTINATION ${hotset_package_dir} COMPONENT core)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT core)

# Builds the installed files and nothing else, for `make install`.
add_custom_target(installed_programs)
foreach(target hotset_policies hotset_c hotset_c_static hotset_lab hotset_cli hotset hotset_man hotset_cuda hotset_llama
               hotset_llama_static hotset_llama_preload hotset-llama hotset-llama-record)
  if(TARGET ${target})
    add_dependencies(installed_programs ${target})
  endif()
endforeach()

if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -Dfolders=${PROJECT_BINARY_DIR} -P
                                      ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake VERBATIM)
endif()
