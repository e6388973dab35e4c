# Read by cpack before it packs. Without dpkg-shlibdeps it would make a package that depends on nothing.
foreach(program dpkg-shlibdeps file)
  find_program(found_${program} ${program})
  if(NOT found_${program})
    message(FATAL_ERROR "cpack: there is no ${program}; as root: apt-get install dpkg-dev file")
  endif()
endforeach()
