//! Finds the end of a command or a reply in a stream of bytes.

/// A command at the start of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// The length in bytes.
    pub(super) length: usize,
    /// The first word, in upper case.
    pub(super) name: String,
}

/// The command at the start of `bytes`; `None` if it is incomplete.
pub(super) fn command(bytes: &[u8]) -> Option<Command> {
    let length = frame(bytes)?;
    let words = line_end(bytes)?;
    let name_at = words + line_end(&bytes[words..])?;
    let name = bytes[name_at..length].split(|byte| *byte == b'\r').next().unwrap_or_default();
    Some(Command { length, name: String::from_utf8_lossy(name).to_uppercase() })
}

/// The length in bytes of the reply or command at the start of `bytes`; `None` if it is incomplete.
pub(super) fn frame(bytes: &[u8]) -> Option<usize> {
    let line = line_end(bytes)?;
    let count = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<usize>().ok();
    match bytes[0] {
        b'$' | b'!' | b'=' => match count() {
            Some(size) => (line + size + 2 <= bytes.len()).then_some(line + size + 2),
            // −1 means nil, which has no body.
            None => Some(line),
        },
        b'*' | b'~' | b'>' => frames(bytes, line, count().unwrap_or(0)),
        b'%' => frames(bytes, line, count().unwrap_or(0) * 2),
        // Attributes, followed by the reply.
        b'|' => frames(bytes, line, count().unwrap_or(0) * 2 + 1),
        _ => Some(line),
    }
}

/// The end of the last of `count` frames. The first begins at `at`.
fn frames(bytes: &[u8], at: usize, count: usize) -> Option<usize> {
    (0..count).try_fold(at, |at, _| Some(at + frame(&bytes[at..])?))
}

/// The length of the first line, with its CRLF.
fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair == b"\r\n").map(|at| at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_found_when_it_is_complete_and_not_before() {
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
    fn a_command_is_read_with_its_name_in_upper_case() {
        let bytes = b"*2\r\n$15\r\nredlock.acquire\r\n$3\r\na\r\n\r\n*1\r\n$4\r\nPING\r\n";
        let first = command(bytes).expect("a command");
        assert_eq!(first.name, "REDLOCK.ACQUIRE");
        let second = command(&bytes[first.length..]).expect("a second command");
        assert_eq!(second, Command { length: 14, name: "PING".into() });
    }
}
