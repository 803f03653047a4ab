# llama-cpp-python always builds the library of the command lines, too, which is more than a third of all and not used here.
set(LLAMA_BUILD_COMMON OFF)
