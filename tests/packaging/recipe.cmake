# SPDX-License-Identifier: Apache-2.0
# Shared by the tests of both recipes.

# Every HOTSET_BUILD_<part> option must be in `switched`: an option at its default looks for libraries and folders
# that the recipe does not name.
function(expect_no_part_is_left_to_its_default switched)
  file(READ ${source}/CMakeLists.txt text)
  string(REGEX MATCHALL "(option|set)\\(HOTSET_BUILD_[A-Z]+" parts "${text}")
  list(LENGTH parts count)
  if(count LESS 6)
    message(FATAL_ERROR "CMakeLists.txt: ${count} options HOTSET_BUILD_<part> can be read, there are 6 or more")
  endif()
  foreach(part IN LISTS parts)
    string(REGEX REPLACE ".*HOTSET_BUILD_" "" part ${part})
    if(NOT part IN_LIST switched)
      message(FATAL_ERROR "HOTSET_BUILD_${part} is left to its default; accepted: recipes that say ON or OFF")
    endif()
  endforeach()
endfunction()

# Configures `tree` with the given options, installs it into ${work}/prefix, and looks for the core there. Targets
# that were not built are not installed.
function(configure_and_install tree)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${tree} -B ${work}/build -G ${generator} -DCMAKE_CXX_COMPILER=${compiler}
            -DCMAKE_INSTALL_PREFIX=${work}/prefix ${ARGN}
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${work}/build OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  foreach(wanted include/hotset/core/ids.hpp lib/cmake/hotset/hotsetConfig.cmake)
    if(NOT EXISTS ${work}/prefix/${wanted})
      message(FATAL_ERROR "${wanted} was not installed")
    endif()
  endforeach()
endfunction()
