# SPDX-License-Identifier: Apache-2.0

# The warnings of hotset's own code. Private: they never reach a user of the library.
function(hotset_target_warnings target)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    return()
  endif()
  set(options
      -Wall
      -Wextra
      -Wpedantic
      -Wshadow
      -Wconversion
      -Wsign-conversion
      -Wnon-virtual-dtor
      -Wold-style-cast
      -Wcast-align
      -Wundef)
  # What nvcc itself writes around a kernel is not free of the rest.
  set(cuda_options -Xcompiler=-Wall,-Wextra)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 reports overlaps that cannot be in `"literal" + std::string` (GCC bug 105651).
    list(APPEND options -Wno-restrict)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    list(APPEND options -Werror=reserved-identifier)
  endif()
  if(HOTSET_WARNINGS_AS_ERRORS)
    list(APPEND options -Werror)
    list(APPEND cuda_options -Werror=all-warnings)
  endif()
  target_compile_options(
    ${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${options}>"
                      "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:${cuda_options}>")
endfunction()
