# SPDX-License-Identifier: Apache-2.0

# cmake -Dsource=<hotset> -Dversion=<its version> -Dwork=<folder> -Dgenerator=<G> -Dcompiler=<C++> -P
# conan_recipe.cmake
# Copies the files that the Conan recipe exports; configures and installs them with the recipe's options.
cmake_minimum_required(VERSION 3.24...3.31)
include(${CMAKE_CURRENT_LIST_DIR}/recipe.cmake)
file(READ ${source}/packaging/conan/conanfile.py recipe)
function(read_tuple name result)
  if(NOT recipe MATCHES "\n${name} = \\(([^)]*)\\)")
    message(FATAL_ERROR "packaging/conan/conanfile.py: no tuple ${name} can be read")
  endif()
  string(REGEX MATCHALL "\"[^\"]*\"" values "${CMAKE_MATCH_1}")
  string(REPLACE "\"" "" values "${values}")
  set(${result} "${values}" PARENT_SCOPE)
endfunction()
read_tuple(SOURCES exported)
read_tuple(LEFT_OUT left_out)
expect_no_part_is_left_to_its_default("${left_out}")

file(REMOVE_RECURSE ${work})
foreach(pattern IN LISTS exported)
  # Conan takes a name without a star as one file of the root. A search of all folders would also find files that
  # other tests make and remove meanwhile.
  if(pattern MATCHES "\\*")
    file(GLOB_RECURSE files RELATIVE ${source} ${source}/${pattern})
  else()
    file(GLOB files RELATIVE ${source} ${source}/${pattern})
  endif()
  if(NOT files)
    message(FATAL_ERROR "packaging/conan/conanfile.py: nothing in the tree matches ${pattern}")
  endif()
  foreach(file IN LISTS files)
    cmake_path(GET file PARENT_PATH folder)
    file(COPY ${source}/${file} DESTINATION ${work}/tree/${folder})
  endforeach()
endforeach()
set(options -DHOTSET_INSTALL=ON)
foreach(part IN LISTS left_out)
  list(APPEND options -DHOTSET_BUILD_${part}=OFF)
endforeach()
configure_and_install(${work}/tree ${options})
