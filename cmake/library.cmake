# libmilkit: the door (src/api) with all that lies behind it as one shared and one static library, of which only the functions
# of include/milkit.h can be seen, and what is installed with them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(MILKIT_SOVERSION 0)
add_library(milkit_shared SHARED $<TARGET_OBJECTS:milkit_api>)
target_link_libraries(milkit_shared PRIVATE milkit_api milkit_convert milkit_runtime)
target_link_options(milkit_shared PRIVATE -Wl,--no-undefined
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/milkit.map)
set_target_properties(milkit_shared PROPERTIES OUTPUT_NAME milkit EXPORT_NAME milkit VERSION ${PROJECT_VERSION}
    SOVERSION ${MILKIT_SOVERSION} LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/milkit.map)
target_include_directories(milkit_shared INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# The same as one object in an archive: its hidden symbols become local, so that they meet no others in a program.
set(static_library ${CMAKE_BINARY_DIR}/libmilkit.a)
set(parts api convert runtime engine kernel arch quant chat jinja tokenizer unicode mil format base proto)
set(archives "")
foreach(part ${parts})
    list(APPEND archives $<TARGET_FILE:milkit_${part}>)
endforeach()
add_custom_command(OUTPUT ${static_library}
    COMMAND ${CMAKE_LINKER} -r -o milkit.o --whole-archive ${archives}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden milkit.o
    COMMAND ${CMAKE_COMMAND} -E rm -f ${static_library}
    COMMAND ${CMAKE_AR} rcs ${static_library} milkit.o
    COMMAND ${CMAKE_COMMAND} -E rm milkit.o
    DEPENDS ${archives} VERBATIM)
add_custom_target(milkit_static ALL DEPENDS ${static_library})
foreach(part ${parts})
    add_dependencies(milkit_static milkit_${part})
endforeach()

file(RELATIVE_PATH PC_UP ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" PC_UP "${PC_UP}")
foreach(dir LIBDIR INCLUDEDIR)
    if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
        set(PC_${dir} "${CMAKE_INSTALL_${dir}}")
    else()
        set(PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
    endif()
endforeach()
configure_file(${CMAKE_SOURCE_DIR}/cmake/milkit.pc.in ${CMAKE_BINARY_DIR}/milkit.pc @ONLY)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/milkit)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/milkitConfig.cmake.in ${CMAKE_BINARY_DIR}/milkitConfig.cmake
    INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/milkitConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS milkit_shared EXPORT milkit_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${static_library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_SOURCE_DIR}/include/milkit.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/milkit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(EXPORT milkit_targets FILE milkitTargets.cmake NAMESPACE milkit:: DESTINATION ${package_folder})
install(FILES ${CMAKE_BINARY_DIR}/milkitConfig.cmake ${CMAKE_BINARY_DIR}/milkitConfigVersion.cmake
    DESTINATION ${package_folder})
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# `cmake --build . --target uninstall`: removes what the last installation of this build wrote.
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${CMAKE_SOURCE_DIR}/cmake/uninstall.cmake)
