//! Where a command or a reply ends in a stream of bytes.

/// A command at the start of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// How many bytes it takes up.
    pub(super) length: usize,
    /// Its first word, in upper case.
    pub(super) name: String,
}

/// The command at the start of `bytes`, once it is there in full.
pub(super) fn command(bytes: &[u8]) -> Option<Command> {
    let length = frame(bytes)?;
    let words = line_end(bytes)?;
    let name_at = words + line_end(&bytes[words..])?;
    let name = bytes[name_at..length].split(|byte| *byte == b'\r').next().unwrap_or_default();
    Some(Command { length, name: String::from_utf8_lossy(name).to_uppercase() })
}

/// How many bytes the reply or command at the start of `bytes` takes up, once it is there in full.
pub(super) fn frame(bytes: &[u8]) -> Option<usize> {
    let line = line_end(bytes)?;
    let count = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<usize>().ok();
    match bytes[0] {
        b'$' | b'!' | b'=' => match count() {
            Some(size) => (line + size + 2 <= bytes.len()).then_some(line + size + 2),
            // −1: a nil has no body.
            None => Some(line),
        },
        b'*' | b'~' | b'>' => frames(bytes, line, count().unwrap_or(0)),
        b'%' => frames(bytes, line, count().unwrap_or(0) * 2),
        // A remark, then what it is about.
        b'|' => frames(bytes, line, count().unwrap_or(0) * 2 + 1),
        _ => Some(line),
    }
}

/// Where the last of so many frames ends, the first of which starts at `at`.
fn frames(bytes: &[u8], at: usize, count: usize) -> Option<usize> {
    (0..count).try_fold(at, |at, _| Some(at + frame(&bytes[at..])?))
}

/// Where the first line ends, its end included.
fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair == b"\r\n").map(|at| at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_it_ends_and_is_not_there_before() {
        let replies: [&[u8]; 12] = [
            b":123\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"_\r\n",
            b"+OK\r\n",
            b"-ERR no\r\n",
            b"$2\r\n\r\n\r\n",
            b"$0\r\n\r\n",
            b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            b"%1\r\n+a\r\n:1\r\n",
            b">2\r\n+message\r\n+x\r\n",
            b"|1\r\n+a\r\n+b\r\n#t\r\n",
        ];
        for reply in replies {
            let followed = [reply, b":1\r\n"].concat();
            assert_eq!(frame(&followed), Some(reply.len()), "{}", reply.escape_ascii());
            for cut in 0..reply.len() {
                assert_eq!(frame(&reply[..cut]), None, "{} cut at {cut}", reply.escape_ascii());
            }
        }
    }

    #[test]
    fn a_command_has_a_name() {
        let bytes = b"*2\r\n$15\r\nredlock.acquire\r\n$3\r\na\r\n\r\n*1\r\n$4\r\nPING\r\n";
        let first = command(bytes).expect("a command");
        assert_eq!(first.name, "REDLOCK.ACQUIRE");
        let second = command(&bytes[first.length..]).expect("another");
        assert_eq!(second, Command { length: 14, name: "PING".into() });
    }
}
