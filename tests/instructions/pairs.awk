# Prints `count` pairs of acquire and release over a thousand keys, in the server's protocol.

function word(text) {
    return "$" length(text) "\r\n" text "\r\n"
}

BEGIN {
    for (pair = 0; pair < count; pair++) {
        key = sprintf("lock:%012d", pair % 1000)
        # Scattered digits in the shape of a UUID.
        a = (pair * 2654435761 + 12345) % 4294967296
        b = (a * 1664525 + 1013904223) % 4294967296
        c = (b * 69069 + 1) % 4294967296
        d = (c * 134775813 + 1) % 4294967296
        owner = sprintf("%08x-%04x-%04x-%04x-%04x%08x", a, b / 65536, b % 65536, c / 65536, c % 65536, d)
        if (way == "module") {
            printf "*4\r\n%s%s%s%s", word("REDLOCK.ACQUIRE"), word(key), word(owner), word("30000")
            printf "*3\r\n%s%s%s", word("REDLOCK.RELEASE"), word(key), word(owner)
        } else {
            printf "*6\r\n%s%s%s%s%s%s", word("SET"), word(key), word(owner), word("NX"), word("PX"), word("30000")
            if (way == "del")
                printf "*2\r\n%s%s", word("DEL"), word(key)
            else if (way == "delifeq")
                printf "*3\r\n%s%s%s", word("DELIFEQ"), word(key), word(owner)
            else
                printf "*5\r\n%s%s%s%s%s", word("EVALSHA"), word(sha), word("1"), word(key), word(owner)
        }
    }
}
