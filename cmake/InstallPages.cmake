# Run by `cmake --install`, with `dtrain_program`, `dtrain_man`, `dtrain_bash` and `dtrain_zsh` set: pages for man, and
# completion for both shells. A relative folder is below the prefix.
foreach(folder IN ITEMS dtrain_man dtrain_bash dtrain_zsh)
  if(NOT IS_ABSOLUTE "${${folder}}")
    set(${folder} "${CMAKE_INSTALL_PREFIX}/${${folder}}")
  endif()
  set(${folder} "$ENV{DESTDIR}${${folder}}")
endforeach()

function(write_help file)  # ARGUMENTS of the program
  execute_process(COMMAND "${dtrain_program}" ${ARGN} OUTPUT_VARIABLE text ERROR_VARIABLE error RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${dtrain_program} ${ARGN} ended with ${code}: ${error}")
  endif()
  file(WRITE "${file}" "${text}")
  message(STATUS "Installing: ${file}")
  set(text "${text}" PARENT_SCOPE)
endfunction()

write_help("${dtrain_man}/dtrain.1" --help=man)
string(REGEX MATCHALL "dtrain\\\\-[a-z]+ \\(1\\)" pages "${text}")  # of its SEE ALSO
foreach(page IN LISTS pages)
  string(REGEX REPLACE "^dtrain\\\\-([a-z]+) .*" "\\1" command "${page}")
  write_help("${dtrain_man}/dtrain-${command}.1" ${command} --help=man)
endforeach()
write_help("${dtrain_bash}/dtrain" --help=bash)
write_help("${dtrain_zsh}/_dtrain" --help=zsh)
