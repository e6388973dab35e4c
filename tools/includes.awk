# awk -f tools/includes.awk FILE...: prints "FILE LINE INCLUDED" for each #include "..." that is one of
# these files. A name is looked up beside the file, then below src/, then at the root.
BEGIN { for (i = 1; i < ARGC; ++i) known[ARGV[i]] }
/^ *# *include "/ {
  split($0, part, "\"")
  beside = FILENAME
  sub(/[^\/]*$/, part[2], beside)
  if (beside in known) print FILENAME, FNR, beside
  else if (("src/" part[2]) in known) print FILENAME, FNR, "src/" part[2]
  else if (part[2] in known) print FILENAME, FNR, part[2]
}
