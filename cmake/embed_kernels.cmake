# Writes the texts that CUDA kernels are compiled from into a C++ source: run by the build as
#   cmake -D root=<src> -D output=<file> -P embed_kernels.cmake
file(GLOB_RECURSE kernels RELATIVE ${root} ${root}/backend/cuda/kernels/*.cuh ${root}/backend/cuda/kernels/*.h
     ${root}/plan/kernels/*.h ${root}/base/training/*.h)
file(GLOB cells RELATIVE ${root} ${root}/cells/*.h)
set(code "#include \"backend/cuda/driver/sources.h\"\n\nnamespace penstock::cuda {\n\n")
string(APPEND code "const std::vector<std::pair<std::string, std::string>>& kernel_sources() {\n")
string(APPEND code "  static const std::vector<std::pair<std::string, std::string>> sources = {\n")
foreach(name ${kernels} ${cells} base/counter_random.h)
  file(READ ${root}/${name} text)
  string(APPEND code "      {\"${name}\", R\"penstock(${text})penstock\"},\n")
endforeach()
string(APPEND code "  };\n  return sources;\n}\n\n}  // namespace penstock::cuda\n")
file(WRITE ${output} "${code}")
