# SPDX-License-Identifier: Apache-2.0

# Warnings for hotset's own code. Private: users of the library do not get them.
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
  # nvcc's generated host code triggers the other warnings.
  set(cuda_options -Xcompiler=-Wall,-Wextra)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 wrongly reports overlaps in `"literal" + std::string` (GCC bug 105651).
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
