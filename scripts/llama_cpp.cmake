# llama-cpp-python always builds the library of llama.cpp's command lines, too, which is half of the work and not used here.
set(LLAMA_BUILD_COMMON OFF)

# GCC 12 removes the stores before `ldtilecfg`, because its intrinsic names only 8 of the 64 bytes that are read. Every
# matrix product on a processor with AMX then ends the process.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-mno-amx-tile -mno-amx-int8 -mno-amx-bf16)
endif()
