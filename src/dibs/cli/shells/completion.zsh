#compdef dibs
# zsh completion of dibs, printed by `dibs completion zsh`
_dibs() {
    local line word about
    local -a found
    while IFS= read -r line; do
        case $line in
        $'\t'files) _files; return ;;
        $'\t'folders) _files -/; return ;;
        $'\t'command:*)
            local skip=${line##*:}
            words=("${(@)words[$((skip + 2)),-1]}")
            (( CURRENT -= skip + 1 ))
            _normal
            return ;;
        esac
        word=${line%%$'\t'*} about=${line#*$'\t'}
        found+=("${word//:/\\:}:$about")
    done < <(${(Q)words[1]} completion --words -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    _describe -V 'dibs' found
}
if [[ $funcstack[1] == _dibs ]]; then
    _dibs "$@"
else
    compdef _dibs dibs
fi
