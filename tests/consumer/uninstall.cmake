# SPDX-License-Identifier: Apache-2.0

# cmake -Dbuild=<configured build> -Dprefix=<folder> -P uninstall.cmake
# Installs, uninstalls, and expects that only files of others are left. A second uninstallation is refused.
file(REMOVE_RECURSE ${prefix})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${build} --prefix ${prefix} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
if(NOT EXISTS ${prefix}/include/hotset/core/ids.hpp)
  message(FATAL_ERROR "nothing was installed into ${prefix}")
endif()
set(others include/hotset/core/mine.hpp include/other/.hidden)
foreach(file IN LISTS others)
  file(WRITE ${prefix}/${file} "")
endforeach()

execute_process(COMMAND ${CMAKE_COMMAND} --build ${build} --target uninstall OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE left RELATIVE ${prefix} ${prefix}/*)
if(NOT left STREQUAL others)
  message(FATAL_ERROR "left: ${left}; accepted: ${others}")
endif()
foreach(gone include/hotset/paging lib/cmake/hotset)
  if(EXISTS ${prefix}/${gone})
    message(FATAL_ERROR "the empty folder ${gone} is left")
  endif()
endforeach()

execute_process(COMMAND ${CMAKE_COMMAND} --build ${build} --target uninstall
                RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(status EQUAL 0 OR NOT said MATCHES "nothing to uninstall")
  message(FATAL_ERROR "a second uninstallation: status ${status}, ${said}")
endif()
