use super::*;
use proptest::prelude::*;

fn bytes(bytes: &'static [u8]) -> Bytes {
    Bytes::from_static(bytes)
}

fn bulk(text: &'static str) -> Frame {
    Frame::Bulk(bytes(text.as_bytes()))
}

/// Every type of reply, as bytes and as a frame.
fn table() -> Vec<(&'static [u8], Frame)> {
    vec![
        (b":0\r\n", Frame::Integer(0)),
        (b":123\r\n", Frame::Integer(123)),
        (b":+7\r\n", Frame::Integer(7)),
        (b":-9223372036854775808\r\n", Frame::Integer(i64::MIN)),
        (b":9223372036854775807\r\n", Frame::Integer(i64::MAX)),
        (b"_\r\n", Frame::Nil),
        (b"$-1\r\n", Frame::Nil),
        (b"*-1\r\n", Frame::Nil),
        (b"+OK\r\n", Frame::Simple(bytes(b"OK"))),
        (b"+\r\n", Frame::Simple(bytes(b""))),
        (b"-ERR no \xff\r\n", Frame::Error(bytes(b"ERR no \xff"))),
        (b"!6\r\nERR\r\nx\r\n", Frame::Error(bytes(b"ERR\r\nx"))),
        (b"$0\r\n\r\n", bulk("")),
        (b"$4\r\na\r\nb\r\n", bulk("a\r\nb")),
        (b"=7\r\ntxt:abc\r\n", bulk("abc")),
        (b"=4\r\nmkd:\r\n", bulk("")),
        (b"#t\r\n", Frame::Boolean(true)),
        (b"#f\r\n", Frame::Boolean(false)),
        (b",-1.5e3\r\n", Frame::Numeral(bytes(b"-1.5e3"))),
        (b"(12345678901234567890123\r\n", Frame::Numeral(bytes(b"12345678901234567890123"))),
        (b"*0\r\n", Frame::Array(vec![])),
        (b"*2\r\n:1\r\n*1\r\n_\r\n", Frame::Array(vec![Frame::Integer(1), Frame::Array(vec![Frame::Nil])])),
        (b"~2\r\n:1\r\n:2\r\n", Frame::Array(vec![Frame::Integer(1), Frame::Integer(2)])),
        (b"%0\r\n", Frame::Map(vec![])),
        (b"%1\r\n$5\r\nfence\r\n:9\r\n", Frame::Map(vec![(bulk("fence"), Frame::Integer(9))])),
        (b">2\r\n$7\r\nmessage\r\n:1\r\n", Frame::Push(vec![bulk("message"), Frame::Integer(1)])),
        (b"|1\r\n+ttl\r\n:3\r\n:5\r\n", Frame::Integer(5)),
        (b"|0\r\n|1\r\n+a\r\n*1\r\n_\r\n$1\r\nx\r\n", bulk("x")),
        (b"*1\r\n|1\r\n+a\r\n+b\r\n:1\r\n", Frame::Array(vec![Frame::Integer(1)])),
    ]
}

fn all_of(mut buffer: BytesMut) -> Result<Vec<Frame>, ProtocolError> {
    let mut frames = Vec::new();
    while let Some(frame) = decode(&mut buffer)? {
        frames.push(frame);
    }
    assert!(buffer.is_empty(), "left over: {buffer:?}");
    Ok(frames)
}

#[test]
fn decodes_every_type_of_reply() {
    for (bytes, frame) in table() {
        assert_eq!(all_of(BytesMut::from(bytes)), Ok(vec![frame]), "{bytes:?}");
    }
}

#[test]
fn takes_one_frame_and_leaves_the_next() {
    for (bytes, frame) in table() {
        let mut buffer = BytesMut::from(&[bytes, b":1\r"].concat()[..]);
        assert_eq!(decode(&mut buffer), Ok(Some(frame)));
        assert_eq!(&buffer[..], b":1\r", "after {bytes:?}");
    }
}

#[test]
fn an_incomplete_frame_leaves_the_buffer_unchanged() {
    for (bytes, _) in table() {
        for cut in 0..bytes.len() {
            let mut buffer = BytesMut::from(&bytes[..cut]);
            assert_eq!(decode(&mut buffer), Ok(None), "{:?}", &bytes[..cut]);
            assert_eq!(&buffer[..], &bytes[..cut]);
        }
    }
}

#[test]
fn malformed_replies_are_errors() {
    let garbage: [&[u8]; 26] = [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\r\n",
        b":\r\n",
        b":-\r\n",
        b":1 \r\n",
        b":1\n",
        b":1\rx",
        b":1-\r\n",
        b":9223372036854775808\r\n",
        b":-9223372036854775809\r\n",
        b":0000000000000000000000000",
        b"_x\r\n",
        b"$-2\r\n",
        b"$?\r\n",
        b"$1\r\nab\r\n",
        b"$1\r\na\n\n",
        b"+a\nb\r\n",
        b"+a\rb\r\n",
        b"#x\r\n",
        b"=3\r\ntxt\r\n",
        b"=5\r\ntxt-a\r\n",
        b"=-1\r\n",
        b"!-1\r\n",
        b"%-1\r\n",
        b">-1\r\n",
        b"*1\r\n?\r\n",
    ];
    for bytes in garbage {
        assert!(decode(&mut BytesMut::from(bytes)).is_err(), "{bytes:?}");
    }
}

/// A length above the limit is an error at once. A length within it allocates nothing until the bytes come.
#[test]
fn a_length_alone_allocates_nothing() {
    let refused: [&[u8]; 8] = [
        b"$16777217\r\n",
        b"$9223372036854775807\r\n",
        b"!9223372036854775807\r\n",
        b"=9223372036854775807\r\n",
        b"*65537\r\n",
        b"*9223372036854775807\r\n",
        b"%32769\r\n",
        b"*2\r\n*65535\r\n",
    ];
    for bytes in refused {
        assert!(decode(&mut BytesMut::from(bytes)).is_err(), "{bytes:?}");
    }
    for bytes in [&b"$16777216\r\n"[..], b"*65536\r\n", b"%32768\r\n", b"*1\r\n*65535\r\n"] {
        let mut buffer = BytesMut::from(bytes);
        let room = buffer.capacity();
        assert_eq!(decode(&mut buffer), Ok(None), "{bytes:?}");
        assert_eq!(buffer.capacity(), room);
    }
}

#[test]
fn nesting_is_limited() {
    let nested = |depth: usize| [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
    assert!(matches!(decode(&mut BytesMut::from(&nested(MAX_DEPTH)[..])), Ok(Some(Frame::Array(_)))));
    assert!(decode(&mut BytesMut::from(&nested(MAX_DEPTH + 1)[..])).is_err());
    assert!(decode(&mut BytesMut::from(&b"*1\r\n".repeat(100_000)[..])).is_err());
    assert!(decode(&mut BytesMut::from(&b"|1\r\n".repeat(100_000)[..])).is_err());
}

#[test]
fn consecutive_attributes_are_not_nested() {
    let bytes = [b"|0\r\n".repeat(100_000), b":1\r\n".to_vec()].concat();
    assert_eq!(decode(&mut BytesMut::from(&bytes[..])), Ok(Some(Frame::Integer(1))));
}

#[test]
fn lines_and_whole_replies_are_limited() {
    let line = [b"+".to_vec(), vec![b'x'; MAX_LINE]].concat();
    assert_eq!(decode(&mut BytesMut::from(&line[..])), Ok(None));
    assert!(decode(&mut BytesMut::from(&[&line[..], b"x"].concat()[..])).is_err());
    assert!(matches!(
        decode(&mut BytesMut::from(&[&line[..], b"\r\n"].concat()[..])),
        Ok(Some(Frame::Simple(text))) if text.len() == MAX_LINE
    ));

    let blob = [b"$16777216\r\n".to_vec(), vec![b'x'; MAX_BULK], b"\r\n".to_vec()].concat();
    assert!(matches!(decode(&mut BytesMut::from(&blob[..])), Ok(Some(Frame::Bulk(_)))));
    let two = [b"*3\r\n".to_vec(), blob.clone(), blob].concat();
    assert!(decode(&mut BytesMut::from(&two[..])).is_err());
}

/// Any stream of replies from the table.
fn stream() -> impl Strategy<Value = (Vec<u8>, Vec<Frame>)> {
    prop::collection::vec(prop::sample::select(table()), 0..20).prop_map(|replies| {
        let (bytes, frames): (Vec<_>, Vec<_>) = replies.into_iter().unzip();
        (bytes.concat(), frames)
    })
}

/// Bytes that resemble replies.
fn almost_replies() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(b":$*%~>|+-_#,(!=?".to_vec()).prop_map(|kind| vec![kind]),
        prop::sample::select(vec!["\r\n", "\r", "\n", "-1", "0", "1", "2", "3", "txt:", "t", "999999999999"])
            .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn frames_do_not_depend_on_how_the_stream_is_split(
        (bytes, frames) in stream(),
        sizes in prop::collection::vec(1_usize..12, 1..40),
    ) {
        let mut buffer = BytesMut::new();
        let mut got = Vec::new();
        let mut rest = &bytes[..];
        for size in sizes.iter().cycle() {
            let (chunk, later) = rest.split_at((*size).min(rest.len()));
            buffer.extend_from_slice(chunk);
            rest = later;
            while let Some(frame) = decode(&mut buffer).expect("a reply") {
                got.push(frame);
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(got, frames);
    }

    #[test]
    fn arbitrary_bytes_are_errors_or_incomplete(bytes in prop_oneof![almost_replies(), any::<Vec<u8>>()]) {
        let mut buffer = BytesMut::from(&bytes[..]);
        let mut left = buffer.len();
        while let Ok(Some(_)) = decode(&mut buffer) {
            prop_assert!(buffer.len() < left, "a frame of zero bytes");
            left = buffer.len();
        }
    }

    /// More bytes change neither an error nor a complete frame.
    #[test]
    fn later_bytes_do_not_change_the_result(bytes in almost_replies(), more in almost_replies()) {
        let verdict = decode(&mut BytesMut::from(&bytes[..]));
        if verdict != Ok(None) {
            prop_assert_eq!(decode(&mut BytesMut::from(&[bytes, more].concat()[..])), verdict);
        }
    }
}
