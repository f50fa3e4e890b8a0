# fish completion of dibs, printed by `dibs completion fish`
function __dibs_words
    set -l typed (commandline -opc)
    set -l found ($typed[1] completion --words -- $typed[2..-1] (commandline -ct) 2>/dev/null)
    if string match -q \t'*' -- "$found[1]"
        switch $found[1]
            case \t'folders'
                __fish_complete_directories (commandline -ct)
            case \t'command:*'
                set -l skip (math (string replace -r '.*:' '' -- $found[1]) + 2)
                set -l rest $typed[$skip..-1]
                if test (count $typed) -lt $skip
                    __fish_complete_command
                else
                    complete -C (string join ' ' -- (string escape -- $rest) (commandline -ct))
                end
            case '*'
                __fish_complete_path (commandline -ct)
        end
    else
        printf '%s\n' $found
    end
end
complete -c dibs -f -k -a '(__dibs_words)'
