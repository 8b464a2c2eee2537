# Writes the texts that CUDA kernels are compiled from into a C++ source: run by the build as
#   cmake -D root=<src> -D output=<file> "-D texts=<file>;..." -P embed_kernels.cmake
set(code "#include \"backend/cuda/driver/sources.h\"\n\nnamespace penstock::cuda {\n\n")
string(APPEND code "const std::vector<std::pair<std::string, std::string>>& kernel_sources() {\n")
string(APPEND code "  static const std::vector<std::pair<std::string, std::string>> sources = {\n")
foreach(file ${texts})
  file(READ ${file} text)
  file(RELATIVE_PATH name ${root} ${file})
  string(APPEND code "      {\"${name}\", R\"penstock(${text})penstock\"},\n")
endforeach()
string(APPEND code "  };\n  return sources;\n}\n\n}  // namespace penstock::cuda\n")
file(WRITE ${output} "${code}")
