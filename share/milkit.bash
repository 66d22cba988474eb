# bash completion of milkit: commands and options come from the program's own tables.
_milkit() {
    local word=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]} command=${COMP_WORDS[1]:-} words=""
    COMPREPLY=()
    case ${program##*/} in
    coreml_convert) command=convert ;;
    coreml_check) command=check ;;
    *)
        if [ "$COMP_CWORD" -eq 1 ]; then
            words="$("$program" help --list 2>/dev/null | cut -f1) help"
            mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
            return
        fi
        [ "$command" = help ] && words=$("$program" help --list 2>/dev/null | cut -f1)
        ;;
    esac
    if [ -z "$words" ] && [[ $word == -* ]]; then
        case ${program##*/} in
        coreml_*) words=$("$program" --list-options 2>/dev/null | cut -f1 | tr ',' ' ') ;;
        *) words=$("$program" "$command" --list-options 2>/dev/null | cut -f1 | tr ',' ' ') ;;
        esac
    fi
    [ -n "$words" ] && mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    [ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- "$word")
}
complete -o filenames -F _milkit milkit coreml_convert coreml_check
