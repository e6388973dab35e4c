# bash completion for kiln. `kiln __complete WORD...` has the answers: tools/completion/complete.h.
_kiln() {
  # By blanks alone: bash splits NAME:p=v at : and =, too.
  local line=${COMP_LINE:0:COMP_POINT} answer typed
  read -ra typed <<<"$line"
  [[ $line == *[[:blank:]] ]] && typed+=("")
  local word=${typed[-1]}
  local path=${word#--*=} stem=${word%"${word##*[:=]}"}  # what bash takes for words before this one
  COMPREPLY=()
  while IFS=$'\t' read -r answer _; do
    case $answer in
      :open) compopt -o nospace 2>/dev/null ;;
      :file) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$path") ;;
      :folder) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$path") ;;
      :file*)
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$path"; compgen -f -X "!${answer#:file }" -- "$path") ;;
      *) COMPREPLY+=("${answer#"$stem"}") ;;
    esac
    [[ $answer == :f* ]] && compopt -o filenames 2>/dev/null
  done < <(kiln __complete "${typed[@]:1}" 2>/dev/null)
}
complete -F _kiln kiln
