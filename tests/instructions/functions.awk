# Sums up a callgrind file: for each function its own instructions and its calls, per one of `pairs`.
# With -v only=total, prints only the sum of all instructions.

# A name appears once as "(7) name", and then as its number.
function named(text, kind,    at, number) {
    at = index(text, ")")
    number = kind substr(text, 1, at)
    if (length(text) > at)
        names[number] = substr(text, at + 2)
    return number
}

/^ob=/ { object = named(substr($0, 4), "ob"); next }
/^fn=/ { function_ = named(substr($0, 4), "fn"); of[function_] = object; next }
/^cob=/ { named(substr($0, 5), "ob"); next }
/^cfn=/ { callee = named(substr($0, 5), "fn"); next }
/^calls=/ { split(substr($0, 7), parts, " "); calls[callee] += parts[1]; is_call = 1; next }
/^[0-9+*-]/ {
    # The line after a call is the cost of the callee.
    if (is_call)
        is_call = 0
    else {
        self[function_] += $2
        total += $2
    }
}

END {
    if (only == "total") {
        printf "%.0f\n", total / pairs
        exit
    }
    for (one in self) {
        program = names[of[one]]
        sub(/.*\//, "", program)
        if (self[one] >= pairs)
            printf "%8.0f %6.1f  %s [%s]\n", self[one] / pairs, calls[one] / pairs, names[one], program
    }
}
