# fish completion of milkit: commands and options come from the program's own tables.
function __milkit_options
    set -l words (commandline -opc)
    set -l call $words[1]
    if string match -qr 'milkit$' -- $words[1]
        test (count $words) -gt 1; or return
        set call $words[1..2]
    end
    $call --list-options 2>/dev/null | while read -l -d \t names value help
        for name in (string split , -- $names)
            test -n "$name"; and printf '%s\t%s\n' $name $help
        end
    end
end
function __milkit_commands
    milkit help --list 2>/dev/null
end
complete -c milkit -n 'test (count (commandline -opc)) -eq 1' -f -a '(__milkit_commands)'
for program in milkit coreml_convert coreml_check
    complete -c $program -n 'string match -q -- "-*" (commandline -ct)' -f -a '(__milkit_options)'
end
