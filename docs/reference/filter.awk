# SPDX-License-Identifier: Apache-2.0
# What Doxygen reads of a header: the opening comment is the file's, and also that of the class which the header is
# named after, where that has none of its own; a `config` is what its members are.
FNR == 1 {
  stem = FILENAME
  sub(/.*\//, "", stem)
  sub(/\.hpp$/, "", stem)
  opening = ""
  state = "before"
}
state == "before" && /^\/\/\// {
  state = "opening"
  print "/// @file"
}
state == "opening" {
  if (/^\/\/\//) opening = opening $0 "\n"
  else state = "after"
}
state == "after" && /^template / && !commented { held = held $0 "\n"; next }
state == "after" && $0 ~ "^(class|struct) " stem "($|[ :{])" && $0 !~ /;$/ && !commented {
  printf "%s", opening
  state = "named"
}
/^  struct config {/ && !commented { print "  /// Parameters; its members say what they mean." }
{
  commented = /^ *\/\/\//
  printf "%s", held
  held = ""
  print
}
