# SPDX-License-Identifier: Apache-2.0

# cmake -Dfile=<gpu-results.json> -P gpu_results.cmake: reads the file as JSON and prints how the run ended, then one
# line for each part: name, state, reason and data.
cmake_minimum_required(VERSION 3.24...3.31)
file(READ ${file} json)
string(JSON format GET "${json}" format)
if(NOT format STREQUAL "hotset.gpu-results/2")
  message(FATAL_ERROR "format ${format}")
endif()
string(JSON end GET "${json}" end)
set(text "end: ${end}\n")
string(JSON count LENGTH "${json}" parts)
math(EXPR last "${count} - 1")
foreach(i RANGE ${last})
  foreach(field part state reason data)
    string(JSON ${field} ERROR_VARIABLE absent GET "${json}" parts ${i} ${field})
  endforeach()
  string(REGEX REPLACE "[ \n]+" "" data "${data}")
  string(APPEND text "${part}: ${state}: ${reason}: ${data}\n")
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -E echo_append "${text}")
