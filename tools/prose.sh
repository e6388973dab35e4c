#!/usr/bin/env bash
# prose.sh [PAGE...]: prints as FILE:LINE: TEXT the sentences of documents that may be hard to read: with "what"
# in the place of a noun, "one" or "ones" without a noun behind it, "that of", "those of", "the former", "so is", or
# a final "too", "alone", "there", "then" or "so". Without a PAGE it reads every document of the repository. It skips
# code blocks, code spans, tables, headings and questions. A hit is only a candidate. The status is always 0.
set -uo pipefail
pages=("$@")
(($#)) || { cd "$(dirname "$0")/.." && mapfile -t pages < <(git ls-files '*.md'); }
for page in "${pages[@]}"; do
  [[ -r $page ]] || continue
  awk -v page="$page" '
    function has(pattern) { return words ~ ("(^|[^a-z-])(" pattern ")([^a-z-]|$)") }
    function ended() {
      words = tolower(sentence)
      gsub(/`[^`]*`?/, "x", words)      # the words of code do not count
      gsub(/\]\([^)]*\)/, "]", words)   # nor do the words of an address
      gsub(/(until|now and|by|since) then/, "", words)
      if (words !~ /\?["*)]*$/ &&
          (has("what|whatever|whoever|ones|(that|those) of|the former|the latter|which of") ||
           has("(other|same|last|first|second) one|one (that|which|for|in|from|with|is|are|has)") ||
           has("so (is|are|does|do|has|have)") || words ~ /(^|[^a-z-])(one|too|alone|there|then|so)[.,;:)]/))
        printf "%s:%d: %s\n", page, line, sentence
      sentence = ""
    }
    /^ *(```|~~~)/ { ended(); is_code = !is_code; next }
    is_code { next }
    /^ *(\||#|!\[|<!--|$)/ { ended(); next }
    /^ *([-*]|[0-9]+\.) / { ended() }
    {
      for (i = 1; i <= NF; ++i) {
        if (sentence == "") line = NR
        sentence = sentence == "" ? $i : sentence " " $i
        if ($i ~ /[.!?]["*)]*$/) ended()
      }
    }
    END { ended() }' "$page"
done
exit 0
