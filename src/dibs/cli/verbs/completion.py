"""`dibs completion`: print or install the script with which a shell completes verbs, options, jobs and GPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from dibs.cli import completions, screen
from dibs.client import connection, safe_text
from dibs.errors import DibsError, UserError
from dibs.submission import options
from dibs.submission.options import Args, Option
from dibs.system import paths

SUMMARY = "Print or install completion for bash, zsh or fish."
USAGE = ("[OPTIONS] bash|zsh|fish",)
INSTALL: Option[bool] = Option(("--install",), "Write it to where the shell looks for it.")
WORDS: Option[bool] = Option(("--words",), "Print what could be typed next: the scripts ask this.")
OPTIONS: tuple[Option[object], ...] = (INSTALL, WORDS)
EXAMPLES = (
    "dibs completion bash --install",
    'eval "$(dibs completion bash)"',
    "dibs completion fish | source",
    "dibs completion --words -- show 1",
)

#: Asks dibs itself, so that it is never older than the verbs. It sends the words up to the cursor; the last may be
#: empty. A line that begins with a tab names what the shell completes itself.
BASH = r"""# bash completion of dibs, printed by `dibs completion bash`
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
"""

ZSH = r"""#compdef dibs
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
"""

FISH = r"""# fish completion of dibs, printed by `dibs completion fish`
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
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def main(args: Args) -> int:
    """Print a script, install it, or answer its request."""
    if args.has(WORDS):
        print_words(args.words)
        return 0
    if len(args.words) != 1 or args.words[0] not in SCRIPTS:
        got = f'"{options.shown(" ".join(args.words))}"' if args.words else "nothing"
        raise UserError(f"completion expected bash, zsh or fish, got {got}.")
    shell = args.words[0]
    if not args.has(INSTALL):
        print(SCRIPTS[shell], end="")
        return 0
    path = target(shell, os.environ)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SCRIPTS[shell])
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}.", f"See `dibs completion {shell}`.") from None
    print(path)
    screen.say(AFTERWARDS[shell].format(folder=path.parent))
    return 0


AFTERWARDS = {
    "bash": "new shells have it, if the package bash-completion is there.",
    "zsh": "put this into ~/.zshrc before compinit: fpath=({folder} $fpath)",
    "fish": "new shells have it.",
}


def target(shell: str, environ: Mapping[str, str]) -> Path:
    """Return where a shell looks for completions that a user installed."""
    home = paths.user_home(environ)
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    if shell == "bash":
        return Path(environ.get("BASH_COMPLETION_USER_DIR") or data / "bash-completion") / "completions" / "dibs"
    return config / "fish/completions/dibs.fish" if shell == "fish" else data / "zsh/site-functions/_dibs"


def print_words(typed: Sequence[str]) -> None:
    """Print possible words with descriptions, one per line; a line that begins with a tab is for the shell."""
    found = completions.complete(typed, _ask)
    if found.by_shell:
        begins = f":{found.begins}" if found.by_shell == "command" else ""
        print(f"\t{found.by_shell}{begins}")
    for word in found.words if not found.by_shell else ():
        print(f"{safe_text.clean(word.text)}\t{safe_text.clean(word.about)}")


def _ask() -> Mapping[str, Sequence[Mapping[str, object]]] | None:
    """Ask a running daemon; hide errors, which would disturb a user who types."""
    try:
        queue = connection.connect(os.environ)
        sock = queue.connect(completions.PATIENCE_S)
        if sock is None:
            return None
        sock.close()
        answer: Mapping[str, Sequence[Mapping[str, object]]] = queue.get("/v1/words", patience_s=completions.PATIENCE_S)
    except DibsError:
        return None
    return answer
