# SPDX-License-Identifier: Apache-2.0

# cmake -Dsource=<hotset> -Dwork=<folder> -Dlab=<0 or 1> -Dcuda=<0 or 1> -P unbuilt.cmake -- <configure args>
# Configures hotset completely, builds nothing, and installs. Only the core is installed; a request for a component
# that was not built fails with a message.
set(arguments "")
set(after_separator FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(after_separator)
    list(APPEND arguments "${CMAKE_ARGV${i}}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(after_separator TRUE)
  endif()
endforeach()

file(REMOVE_RECURSE ${work})
execute_process(
  COMMAND ${CMAKE_COMMAND} -S ${source} -B ${work}/build ${arguments} -DHOTSET_BUILD_TESTS=OFF
          -DHOTSET_BUILD_BENCHMARKS=OFF -DHOTSET_BUILD_EXAMPLES=OFF -DHOTSET_BUILD_INTEGRATIONS=OFF
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${work}/build --prefix ${work}/prefix
                OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)

file(GLOB_RECURSE installed RELATIVE ${work}/prefix ${work}/prefix/*)
foreach(wanted include/hotset/core/ids.hpp cmake/hotset/hotsetConfig.cmake
               cmake/hotset/hotset-core-targets.cmake)
  if(NOT "${installed}" MATCHES "${wanted}")
    message(FATAL_ERROR "${wanted} was not installed: ${installed}")
  endif()
endforeach()
foreach(unwanted include/hotset/lab/ include/hotset/cuda/ hotset-lab-targets hotset-cuda-targets hotset-c-targets bin/ share/man)
  if("${installed}" MATCHES "${unwanted}")
    message(FATAL_ERROR "${unwanted} was installed, though it was not built: ${installed}")
  endif()
endforeach()

foreach(component lab cuda)
  if(NOT ${component})
    continue()
  endif()
  if(NOT output MATCHES "component ${component} is not installed: it was not built")
    message(FATAL_ERROR "nothing is said of ${component}:\n${output}")
  endif()
  execute_process(
    COMMAND ${CMAKE_COMMAND} --install ${work}/build --prefix ${work}/other --component ${component}
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE trouble)
  if(status EQUAL 0 OR NOT trouble MATCHES "it was not built")
    message(FATAL_ERROR "${component} alone: status ${status}, ${trouble}")
  endif()
endforeach()
