# SPDX-License-Identifier: Apache-2.0
"""`dra-driver completion`: print the script that lets a shell complete the command lines of `dra-driver` and `kubectl-dra`.

The scripts only pass the words on to `__complete` and show what it answers, so a new command needs no new script. `kubectl dra` is
completed by kubectl's own script, which calls `kubectl_complete-dra`.
"""

import argparse

from dra_driver.cli import render
from dra_driver.model.exit_codes import DONE


def run(chosen: argparse.Namespace) -> int:
    """Print the script of the shell. Returns the exit code."""
    render.line(SCRIPTS[chosen.shell].rstrip("\n"))
    return DONE


_BASH = r"""
# bash completion of dra-driver and kubectl-dra
_dra_driver() {
    local IFS=$'\n' word glued="" directive=0
    local -a words=() found=()
    # readline cuts words at = and :, which belong to them here.
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [[ $word == [=:] || $glued == *[=:] ]] && ((${#words[@]})); then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        glued=$word
    done
    found=($("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null))
    COMPREPLY=()
    ((${#found[@]})) || return
    [[ ${found[-1]} == :* ]] && directive=${found[-1]#:} && unset 'found[-1]'
    # The part of the word that readline regards as a word of its own must not be repeated.
    local current=${words[-1]} cut=""
    [[ $current == *[=:]* ]] && cut=${current%"${current##*[=:]}"}
    for word in "${found[@]}"; do
        word=${word%%$'\t'*}
        COMPREPLY+=("${word#"$cut"}")
    done
    ((directive & 2)) && compopt -o nospace
    ((directive & 4)) || compopt -o default
}
complete -F _dra_driver dra-driver kubectl-dra
"""

_ZSH = r"""
#compdef dra-driver kubectl-dra
# zsh completion of dra-driver and kubectl-dra
_dra_driver() {
    local line directive=0
    local -a lines candidates
    lines=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${lines[@]}"; do
        if [[ $line == :<-> ]]; then
            directive=${line#:}
        elif [[ -n $line ]]; then
            # _describe wants word:description, so a colon of the word is escaped.
            local word=${line%%$'\t'*} about=""
            [[ $line == *$'\t'* ]] && about=${line#*$'\t'}
            candidates+=("${word//:/\\:}${about:+:$about}")
        fi
    done
    local -a options
    (( directive & 2 )) && options=(-S '')
    (( ${#candidates} )) && _describe 'dra-driver' candidates "${options[@]}"
    (( directive & 4 )) || _files
}
# zsh calls the file _dra-driver as a function of this name; a script that is sourced registers itself.
if [[ ${funcstack[1]} == _dra-driver ]]; then
    _dra_driver "$@"
else
    compdef _dra_driver dra-driver kubectl-dra
fi
"""

_FISH = r"""
# fish completion of dra-driver and kubectl-dra
function __dra_driver_complete
    set -l current (commandline -ct)
    set -q current[1]; or set current ''
    set -l words (commandline -opc) $current
    set -l lines ($words[1] __complete $words[2..-1] 2>/dev/null)
    set -l directive 0
    if set -q lines[1]; and string match -qr '^:\d+$' -- $lines[-1]
        set directive (string sub -s 2 -- $lines[-1])
        set -e lines[-1]
    end
    for line in $lines
        echo $line
    end
    if test $directive -eq 0
        __fish_complete_path (commandline -ct)
    end
end
complete -c dra-driver -f -a '(__dra_driver_complete)'
complete -c kubectl-dra -f -a '(__dra_driver_complete)'
"""

SCRIPTS = {"bash": _BASH.lstrip("\n"), "zsh": _ZSH.lstrip("\n"), "fish": _FISH.lstrip("\n")}
"""The script of each shell."""
