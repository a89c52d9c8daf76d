# Reads valgrind's reports and tells those that concern the module from the server's own.
#
# A report concerns the module if any of its frames lies in libredlock.so. The last line is for the script: servers,
# how often memory was looked over (a child that saves is looked over too, in the report of its server), errors of
# the module, errors of the server.

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
