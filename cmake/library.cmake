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
set(parts api inspect lint device measure reference convert runtime engine coreml kernel arch quant chat jinja tokenizer unicode mil format base proto)
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

# Manual pages are made from the program's own tables, where scdoc is there and the program runs on this machine.
find_program(SCDOC scdoc)
set(product milkit milkit_shared milkit_static)
if(SCDOC AND NOT CMAKE_CROSSCOMPILING AND NOT MILKIT_SANITIZE)
    set(man_folder ${CMAKE_BINARY_DIR}/man)
    add_custom_command(OUTPUT ${man_folder}/milkit.1
        COMMAND sh ${CMAKE_SOURCE_DIR}/tools/make_man.sh $<TARGET_FILE:milkit> ${PROJECT_VERSION} ${man_folder}
        DEPENDS milkit ${CMAKE_SOURCE_DIR}/tools/make_man.sh VERBATIM)
    add_custom_target(man ALL DEPENDS ${man_folder}/milkit.1)
    list(APPEND product man)
    install(DIRECTORY ${man_folder}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
endif()
set(shares ${CMAKE_SOURCE_DIR}/share)
install(FILES ${shares}/milkit.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME milkit)
install(FILES ${shares}/_milkit DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${shares}/milkit.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
# What `make` builds: everything that is installed, no tests.
add_custom_target(product DEPENDS ${product})

# `cmake --build . --target uninstall`: removes what the last installation of this build wrote.
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${CMAKE_SOURCE_DIR}/cmake/uninstall.cmake)

# `cpack` makes a Debian package of what is installed.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME milkit)
set(CPACK_PACKAGE_CONTACT "milkit developers <milkit@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Language models as Core ML packages: converted, checked and run")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_STRIP_FILES ON)
include(CPack)
