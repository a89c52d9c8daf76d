# Reads valgrind's reports and separates errors of the module from errors of the server.
#
# An error is the module's if any of its frames is in libredlock.so. The last line is for the script: the numbers of
# servers, of finished checks (a child that saves has its own, in the report of its server), of errors of the
# module and of errors of the server.

function text(line) {
    sub(/^ *<[^>]*>/, "", line)
    sub(/<\/[^>]*>$/, "", line)
    gsub(/&lt;/, "<", line)
    gsub(/&gt;/, ">", line)
    gsub(/&amp;/, "\\&", line)
    return line
}

function count(kind, what, frames) {
    if (frames ~ /libredlock\.so/) {
        ours++
        if (!(kind frames in seen)) {
            seen[kind frames] = 1
            printf "%s: %s\n%s\n", kind, what, shown
        }
    } else {
        theirs++
    }
}

FNR == 1 { processes++ }
/<state>FINISHED<\/state>/ { looks++ }
/^<error>/ { what = kind = frames = shown = ""; depth = 0; inside = 1 }
inside && /^  <kind>/ { kind = text($0) }
inside && /^  <what>/ { what = text($0) }
inside && /^    <text>/ { what = text($0) }
inside && /<frame>/ { fn = file = line = obj = "" }
inside && /^ *<fn>/ { fn = text($0) }
inside && /^ *<obj>/ { obj = text($0); sub(/.*\//, "", obj) }
inside && /^ *<file>/ { file = text($0) }
inside && /^ *<line>/ { line = text($0) }
inside && /<\/frame>/ {
    frame = sprintf("    %s (%s%s)\n", fn, obj, file ? " " file ":" line : "")
    frames = frames frame
    if (++depth <= 20) {
        shown = shown frame
    }
}
/^<\/error>/ { inside = 0; count(kind, what, frames) }
END { printf "%d %d %d %d\n", processes, looks, ours, theirs }
