# fish completion for kiln. `kiln __complete WORD...` has the answers: tools/completion/complete.h.
function __kiln_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -e words[1]
    for answer in (kiln __complete $words "$word" 2>/dev/null)
        switch $answer
            case ':open' # fish itself leaves the word open behind a =
            case ':f*'
                set -l option (string match -r -- '^--[^=]*=' "$word")
                set -l path (string replace -r -- '^--[^=]*=' '' "$word")
                if test $answer = ':folder'
                    __fish_complete_directories "$path" ''
                else
                    __fish_complete_path "$path"
                end | string replace -r -- '^' "$option"
            case '*'
                echo $answer
        end
    end
end
complete -c kiln -f -a '(__kiln_complete)'
