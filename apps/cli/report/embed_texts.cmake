# Writes texts into a C++ source: run by the build as cmake -D folder=<folder> -D output=<file> -P embed_texts.cmake
set(code "#include \"report/page.h\"\n\nnamespace penstock::cli::reporting {\n\n")
foreach(name style.css script.js draw.py)
  file(READ ${folder}/${name} text)
  get_filename_component(variable ${name} NAME_WE)
  string(APPEND code "const char* const ${variable}_text = R\"penstock(${text})penstock\";\n\n")
endforeach()
string(APPEND code "}  // namespace penstock::cli::reporting\n")
file(WRITE ${output} "${code}")
