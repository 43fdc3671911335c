# Targets: corelocal::corelocal, the shared library, and corelocal::static.
get_filename_component(_corelocal_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
find_package(Threads REQUIRED)

if(NOT TARGET corelocal::corelocal)
    add_library(corelocal::corelocal SHARED IMPORTED)
    set_target_properties(corelocal::corelocal PROPERTIES
        IMPORTED_LOCATION "${_corelocal_prefix}/lib/libcorelocal.so"
        IMPORTED_SONAME "libcorelocal.so.0"
        INTERFACE_INCLUDE_DIRECTORIES "${_corelocal_prefix}/include")

    add_library(corelocal::static STATIC IMPORTED)
    set_target_properties(corelocal::static PROPERTIES
        IMPORTED_LOCATION "${_corelocal_prefix}/lib/libcorelocal.a"
        INTERFACE_INCLUDE_DIRECTORIES "${_corelocal_prefix}/include"
        INTERFACE_LINK_LIBRARIES "gcc_eh;Threads::Threads;dl;m")
endif()
unset(_corelocal_prefix)
