# llama-cpp-python always builds the library of llama.cpp's command lines, too, which is half of the work and not used here.
set(LLAMA_BUILD_COMMON OFF)
