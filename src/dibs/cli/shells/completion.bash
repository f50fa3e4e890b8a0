# bash completion of dibs, printed by `dibs completion bash`
_dibs() {
    local line=${COMP_LINE:0:COMP_POINT} cur before found
    local -a typed
    read -ra typed <<<"$line"
    [[ $line == *[[:space:]] ]] && typed+=('')
    cur=${typed[-1]}
    COMPREPLY=()
    while IFS= read -r found; do
        case $found in
        $'\t'files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
        $'\t'folders) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
        $'\t'command:*) _dibs_command "${found##*:}" "$cur"; return ;;
        esac
        COMPREPLY+=("${found%%$'\t'*}")
    done < <("${typed[0]}" completion --words -- "${typed[@]:1}" 2>/dev/null)
    # bash takes a word apart at colons and equal signs, and inserts only what follows the last of them.
    for found in : =; do
        if [[ $COMP_WORDBREAKS == *"$found"* && $cur == *"$found"* ]]; then
            before=${cur%"${cur##*"$found"}"}
            COMPREPLY=("${COMPREPLY[@]#"$before"}")
            cur=${cur#"$before"}
        fi
    done
}
_dibs_command() {
    if declare -F _command_offset >/dev/null; then
        _command_offset "$(($1 + 1))"
    elif [[ $(($1 + 1)) == "$COMP_CWORD" ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$2")
    else
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$2")
    fi
}
complete -o nosort -F _dibs dibs
