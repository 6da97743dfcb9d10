# SPDX-License-Identifier: Apache-2.0

# hotset::cuda, the CUDA backend. HOTSET_BUILD_CUDA:
#   AUTO  builds it if possible; else prints one line with the reason and continues without it
#   ON    fails if it cannot be built
#   OFF   does not look for CUDA
set(hotset_cuda_oldest_toolkit 12.4)
set(hotset_cuda_architectures 75 80 86 89 90 100 120)

# Sets <result> to the reason why <compiler> cannot compile a CUDA program here, or to nothing. Checks once for each
# compiler, in a separate project, because a failing enable_language() cannot be caught.
function(hotset_check_cuda_compiler compiler result)
  set(question "${compiler};${CMAKE_CUDA_HOST_COMPILER};${CMAKE_CUDA_FLAGS}")
  if(NOT hotset_cuda_compiler_checked STREQUAL question)
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/hotset_check_cuda)
    file(REMOVE_RECURSE ${folder})
    file(WRITE ${folder}/CMakeLists.txt
         "cmake_minimum_required(VERSION 3.24...3.31)\nproject(check LANGUAGES CUDA)\n")
    set(arguments -DCMAKE_CUDA_COMPILER=${compiler} -DCMAKE_CUDA_FLAGS=${CMAKE_CUDA_FLAGS})
    if(CMAKE_CUDA_HOST_COMPILER)
      list(APPEND arguments -DCMAKE_CUDA_HOST_COMPILER=${CMAKE_CUDA_HOST_COMPILER})
    endif()
    if(CMAKE_MAKE_PROGRAM)
      list(APPEND arguments -DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM})
    endif()
    execute_process(
      COMMAND ${CMAKE_COMMAND} -S ${folder} -B ${folder}/build -G ${CMAKE_GENERATOR} ${arguments}
      RESULT_VARIABLE status
      OUTPUT_VARIABLE output
      ERROR_VARIABLE output)
    set(reason "")
    if(NOT status EQUAL 0)
      set(reason "${compiler} does not compile a CUDA program (${folder}/output.log)")
      file(WRITE ${folder}/output.log "${output}")
    endif()
    set(hotset_cuda_compiler_checked "${question}" CACHE INTERNAL "")
    set(hotset_cuda_compiler_trouble "${reason}" CACHE INTERNAL "")
  endif()
  set(${result} "${hotset_cuda_compiler_trouble}" PARENT_SCOPE)
endfunction()

# Sets <result> to the default architectures that <nvcc> supports; the newest also as PTX.
function(hotset_supported_cuda_architectures nvcc result)
  execute_process(
    COMMAND ${nvcc} --list-gpu-code
    OUTPUT_VARIABLE known
    ERROR_QUIET)
  string(REGEX MATCHALL "sm_[0-9]+" known "${known}")
  set(found "")
  foreach(architecture IN LISTS hotset_cuda_architectures)
    if(sm_${architecture} IN_LIST known)
      list(APPEND found ${architecture}-real)
    endif()
  endforeach()
  if(found)
    list(POP_BACK found newest)
    string(REPLACE "-real" "" newest ${newest})
    list(APPEND found ${newest})
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# Sets <result> to the reason why hotset::cuda cannot be built here, or to nothing.
macro(hotset_find_cuda result)
  set(${result} "")
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND)
    set(${result} "no CUDA Toolkit was found (CUDAToolkit_ROOT says where it is)")
  elseif(CUDAToolkit_VERSION VERSION_LESS hotset_cuda_oldest_toolkit)
    set(${result} "the CUDA Toolkit found is ${CUDAToolkit_VERSION}, ${hotset_cuda_oldest_toolkit} or later is needed")
  elseif(NOT TARGET CUDA::cudart_static)
    set(${result} "the CUDA Toolkit found has no static runtime (cudart_static)")
  else()
    if(CMAKE_CUDA_COMPILER)
      set(hotset_cuda_compiler ${CMAKE_CUDA_COMPILER})
    elseif(DEFINED ENV{CUDACXX})
      set(hotset_cuda_compiler $ENV{CUDACXX})
    else()
      set(hotset_cuda_compiler ${CUDAToolkit_NVCC_EXECUTABLE})
    endif()
    if(NOT hotset_cuda_compiler)
      set(${result} "the CUDA Toolkit found has no nvcc")
    else()
      hotset_check_cuda_compiler(${hotset_cuda_compiler} ${result})
    endif()
  endif()
endmacro()

if(NOT HOTSET_BUILD_CUDA STREQUAL "AUTO" AND NOT HOTSET_BUILD_CUDA)
  set(hotset_cuda_trouble "HOTSET_BUILD_CUDA is OFF")
else()
  hotset_find_cuda(hotset_cuda_trouble)
  if(hotset_cuda_trouble AND HOTSET_BUILD_CUDA STREQUAL "AUTO")
    message(STATUS "hotset::cuda is left out: ${hotset_cuda_trouble}")
  elseif(hotset_cuda_trouble)
    message(FATAL_ERROR
      "HOTSET_BUILD_CUDA is ${HOTSET_BUILD_CUDA}, but ${hotset_cuda_trouble}. "
      "With AUTO hotset is built without hotset::cuda.")
  endif()
endif()

# The headers need no toolkit. Without one they are still compiled and tested.
file(GLOB_RECURSE hotset_cuda_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/hotset/cuda/*.hpp)
if(hotset_cuda_trouble)
  add_library(hotset_cuda_headers INTERFACE)
  target_link_libraries(hotset_cuda_headers INTERFACE hotset::adapters)
  target_sources(
    hotset_cuda_headers INTERFACE FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include
                                  FILES ${hotset_cuda_headers})
  return()
endif()

set(CMAKE_CUDA_COMPILER ${hotset_cuda_compiler})
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  hotset_supported_cuda_architectures(${hotset_cuda_compiler} CMAKE_CUDA_ARCHITECTURES)
endif()
enable_language(CUDA)
string(REPLACE ";" " " hotset_cuda_architecture_list "${CMAKE_CUDA_ARCHITECTURES}")
message(STATUS "hotset::cuda: CUDA Toolkit ${CUDAToolkit_VERSION}, for ${hotset_cuda_architecture_list}")

file(GLOB hotset_cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cpp
     ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
add_library(hotset_cuda STATIC ${hotset_cuda_sources})
add_library(hotset::cuda ALIAS hotset_cuda)
set_target_properties(hotset_cuda PROPERTIES EXPORT_NAME cuda POSITION_INDEPENDENT_CODE ON)
if(CMAKE_VERSION VERSION_LESS 3.25.2)
  # CMake before 3.25.2 does not know that nvcc supports C++20.
  target_compile_options(hotset_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
else()
  set_target_properties(hotset_cuda PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
endif()
target_sources(
  hotset_cuda PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include
                     FILES ${hotset_cuda_headers})
# Does not link libcuda: a program that links it cannot start without a driver.
target_link_libraries(hotset_cuda PUBLIC hotset::adapters PRIVATE CUDA::cudart_static)
hotset_target_warnings(hotset_cuda)
