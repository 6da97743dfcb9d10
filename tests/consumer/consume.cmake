# SPDX-License-Identifier: Apache-2.0

# cmake -Dsource=<project> -Dbinary=<folder> -Drefused=<regex> -P consume.cmake -- <configure args>
# Configures, builds and runs the program `consumer` of a project, or expects the configure to fail.
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

file(REMOVE_RECURSE ${binary})
execute_process(
  COMMAND ${CMAKE_COMMAND} -S ${source} -B ${binary} ${arguments}
  RESULT_VARIABLE status
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)

if(refused)
  if(status EQUAL 0)
    message(FATAL_ERROR "this project must be refused, and was not:\n${output}")
  endif()
  string(REGEX REPLACE "[ \n]+" " " flat "${output}")
  if(NOT flat MATCHES "${refused}")
    message(FATAL_ERROR "refused, but not for the reason '${refused}':\n${output}")
  endif()
  return()
endif()

if(NOT status EQUAL 0)
  message(FATAL_ERROR "configure failed:\n${output}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${binary} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${binary}/consumer COMMAND_ERROR_IS_FATAL ANY)
