use super::*;

fn login(user: Option<&str>, password: Option<&str>, database: u64, protocol: Protocol) -> Login {
    Login { user: user.map(str::to_owned), password: password.map(str::to_owned), database, protocol }
}

/// The commands of a handshake, separated by `; `.
fn said(handshake: &Handshake) -> String {
    let mut bytes = handshake.bytes.clone();
    let mut lines = Vec::new();
    while let Some(frame) = wire::decode(&mut bytes).expect("a command reads like a reply") {
        let words = frame.as_items().expect("words").iter();
        lines.push(words.map(|word| word.as_text().expect("a word")).collect::<Vec<_>>().join(" "));
    }
    assert!(bytes.is_empty());
    assert_eq!(lines.len(), handshake.steps.len(), "every command gets an answer");
    lines.join("; ")
}

/// The result of a login that gets these replies; `None` if replies are missing.
fn answered(login: &Login, replies: &[u8]) -> Result<Option<HandshakeReply>, ConnectFailure> {
    let mut heard = HandshakeReply { answers: 0, last: Frame::Nil, leftover: BytesMut::from(replies) };
    let done = Handshake::new(login).ask_identity().take_answers(&mut heard)?;
    Ok(done.then_some(heard))
}

fn failure(login: &Login, replies: &[u8]) -> ConnectFailure {
    answered(login, replies).map(|heard| heard.map(|heard| heard.last)).expect_err("a failure")
}

const NODE: &[u8] =
    b"*6\r\n$7\r\nnode-id\r\n$2\r\nn1\r\n$13\r\nquarantine-ms\r\n:7\r\n$7\r\nversion\r\n$5\r\n0.1.0\r\n";
const NODE_RESP3: &[u8] =
    b"%3\r\n$7\r\nnode-id\r\n$2\r\nn1\r\n$13\r\nquarantine-ms\r\n:7\r\n$7\r\nversion\r\n$5\r\n0.1.0\r\n";

#[test]
fn says_what_the_login_asks_for_and_no_more() {
    use Protocol::{Resp2, Resp3};
    let cases = [
        (login(None, None, 0, Resp2), "REDLOCK.NODE"),
        (login(None, Some("pw"), 0, Resp2), "AUTH pw; REDLOCK.NODE"),
        (login(Some("app"), Some("pw"), 12, Resp2), "AUTH app pw; SELECT 12; REDLOCK.NODE"),
        (login(Some("app"), None, 0, Resp2), "AUTH app ; REDLOCK.NODE"),
        (login(None, None, 1, Resp3), "HELLO 3; SELECT 1; REDLOCK.NODE"),
        (login(None, Some("pw"), 0, Resp3), "HELLO 3 AUTH default pw; REDLOCK.NODE"),
        (login(Some("app"), Some("pw"), 0, Resp3), "HELLO 3 AUTH app pw; REDLOCK.NODE"),
    ];
    for (login, lines) in cases {
        assert_eq!(said(&Handshake::new(&login).ask_identity()), lines);
    }
}

#[test]
fn learns_who_the_node_is() {
    let identity = NodeIdentity { id: "n1".into(), ..NodeIdentity::default() };
    let full = login(Some("app"), Some("pw"), 1, Protocol::Resp2);
    let resp3 = login(None, None, 0, Protocol::Resp3);
    let cases = [
        (Login::default(), NODE.to_vec()),
        (full, [b"+OK\r\n+OK\r\n", NODE].concat()),
        (resp3, [b"%1\r\n+proto\r\n:3\r\n>1\r\n+news\r\n", NODE_RESP3].concat()),
    ];
    for (login, replies) in cases {
        for cut in 0..replies.len() {
            assert!(
                answered(&login, &replies[..cut]).expect("no failure").is_none(),
                "{cut} bytes are too few"
            );
        }
        let heard =
            answered(&login, &[&replies[..], b":1\r"].concat()).expect("no failure").expect("all of it");
        assert_eq!(heard.identity(), Ok(identity.clone()));
        assert_eq!(&heard.leftover[..], b":1\r");
    }
}

#[test]
fn the_first_refusal_is_reported() {
    let full = login(Some("app"), Some("hush"), 1, Protocol::Resp2);
    let cases: [(&Login, &[u8], &str); 6] = [
        (
            &full,
            b"-WRONGPASS invalid username-password pair\r\n-NOAUTH no\r\n",
            "AUTH: WRONGPASS invalid username-password pair",
        ),
        (&full, b"+OK\r\n-ERR DB index is out of range\r\n", "SELECT: ERR DB index is out of range"),
        (&full, b"+OK\r\n+OK\r\n-NOPERM no permission\r\n", "REDLOCK.NODE: NOPERM no permission"),
        (&full, b"-ERR you said 'hush'\r\n", "AUTH: (message hidden: it contains the password)"),
        (
            &Login::default(),
            b"-NOAUTH Authentication required.\r\n",
            "REDLOCK.NODE: NOAUTH Authentication required.",
        ),
        (&Login::default(), b"-LOADING Redis is loading\r\n", "REDLOCK.NODE: LOADING Redis is loading"),
    ];
    for (login, replies, told) in cases {
        let ConnectFailure::Refused { why, code } = failure(login, replies) else { panic!("{told}") };
        assert_eq!(why, told);
        let error = replies.split(|byte| *byte == b'-').nth(1).expect("an error");
        assert_eq!(code, ErrorCode::of(error), "{told}");
    }
}

#[test]
fn a_server_without_the_module_is_told_apart() {
    let unknown = b"-ERR unknown command 'REDLOCK.NODE', with args beginning with: \r\n";
    assert_eq!(failure(&Login::default(), unknown), ConnectFailure::NoModule);
    let old = login(None, Some("hush"), 0, Protocol::Resp3);
    let no_hello =
        b"-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `hush`, \r\n";
    let why = "HELLO: ERR unknown command `HELLO`".to_owned();
    let code = Some(ErrorCode::UnknownCommand);
    assert_eq!(failure(&old, no_hello), ConnectFailure::Refused { why, code });
}

#[test]
fn what_is_no_redis_is_told_apart() {
    let failure = failure(&Login::default(), b"HTTP/1.1 400 Bad Request\r\n");
    assert!(matches!(failure, ConnectFailure::Foreign(_)), "{failure:?}");
}

#[test]
fn a_newer_module_says_more_of_its_node() {
    let said = |fields: &str| {
        let reply = ["*14\r\n$7\r\nnode-id\r\n$2\r\nn1\r\n$13\r\nquarantine-ms\r\n:7\r\n", fields].concat();
        let reply = [reply.as_bytes(), b"$7\r\nversion\r\n$5\r\n0.2.0\r\n"].concat();
        let heard = answered(&Login::default(), &reply).expect("no failure").expect("all of it");
        heard.identity().expect("an identity")
    };
    let node = |incarnation, high_water, common_high_water, origin| NodeIdentity {
        id: "n1".into(),
        incarnation,
        high_water,
        common_high_water,
        origin: Some(origin),
        is_voting: None,
    };
    assert_eq!(
        said(
            "$11\r\nincarnation\r\n:4\r\n$10\r\nhigh-water\r\n:900\r\n$17\r\ncommon-high-water\r\n:30\r\n\
             $6\r\norigin\r\n$8\r\nadmitted\r\n"
        ),
        node(Some(4), Some(900), Some(30), Origin::Admitted)
    );
    // The client ignores values that are out of range.
    assert_eq!(
        said(
            "$11\r\nincarnation\r\n:-1\r\n$10\r\nhigh-water\r\n$1\r\nx\r\n$17\r\ncommon-high-water\r\n:-1\r\n\
             $6\r\norigin\r\n$3\r\nnew\r\n"
        ),
        node(None, None, None, Origin::New)
    );
}

#[test]
fn an_identity_has_all_its_parts() {
    let replies: [&[u8]; 5] = [
        b"_\r\n",
        b":1\r\n",
        b"*2\r\n$7\r\nnode-id\r\n$2\r\nn1\r\n",
        b"*6\r\n$7\r\nnode-id\r\n$2\r\nn1\r\n$13\r\nquarantine-ms\r\n:-1\r\n$7\r\nversion\r\n$1\r\n1\r\n",
        b"*6\r\n$7\r\nnode-id\r\n:1\r\n$13\r\nquarantine-ms\r\n:0\r\n$7\r\nversion\r\n$1\r\n1\r\n",
    ];
    for reply in replies {
        let heard = answered(&Login::default(), reply).expect("no failure").expect("all of it");
        assert!(matches!(heard.identity(), Err(ConnectFailure::Refused { .. })), "{reply:?}");
    }
}

#[cfg(feature = "sentinel")]
mod sentinel {
    use super::*;

    fn hear(handshake: &Handshake, replies: &[u8]) -> Result<HandshakeReply, ConnectFailure> {
        let mut heard = HandshakeReply { answers: 0, last: Frame::Nil, leftover: BytesMut::from(replies) };
        assert!(handshake.take_answers(&mut heard)?, "all of it");
        Ok(heard)
    }

    #[test]
    fn asks_a_sentinel() {
        let handshake = Handshake::new(&login(None, Some("pw"), 0, Protocol::Resp2)).ask_master("orders");
        assert_eq!(said(&handshake), "AUTH pw; SENTINEL get-master-addr-by-name orders");
        let master = |replies| hear(&handshake, replies).expect("no failure").master();
        let known = master(b"+OK\r\n*2\r\n$9\r\n127.0.0.1\r\n$4\r\n7000\r\n");
        assert_eq!(known, Some(("127.0.0.1".to_owned(), 7000)));
        let unknown: [&[u8]; 4] = [
            b"+OK\r\n*-1\r\n",
            b"+OK\r\n_\r\n",
            b"+OK\r\n*1\r\n$1\r\nh\r\n",
            b"+OK\r\n*2\r\n$1\r\nh\r\n$5\r\n70000\r\n",
        ];
        for replies in unknown {
            assert_eq!(master(replies), None, "{replies:?}");
        }
    }

    #[test]
    fn a_master_is_what_says_so() {
        let handshake = Handshake::new(&Login::default()).ask_role().ask_identity();
        assert_eq!(said(&handshake), "ROLE; REDLOCK.NODE");
        let role =
            |reply: &[u8]| hear(&handshake, &[reply, NODE].concat()).and_then(|heard| heard.identity());
        assert!(role(b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n").is_ok());
        assert!(role(b"-NOPERM this user has no permissions to run the 'role' command\r\n").is_ok());
        let refused: [&[u8]; 4] =
            [b"*2\r\n$5\r\nslave\r\n:0\r\n", b"*2\r\n$8\r\nsentinel\r\n:0\r\n", b"*0\r\n", b"-ERR no\r\n"];
        for reply in refused {
            assert!(matches!(role(reply), Err(ConnectFailure::Refused { .. })), "{reply:?}");
        }
    }
}
