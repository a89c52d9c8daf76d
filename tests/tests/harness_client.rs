//! Tests of the harness around clients, on real servers: fleets, the proxy, passwords and TLS.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{
    Answer, Certs, ClientCertificate, CommandFault, Direction, Fleet, Proxy, SOON, Server, eventually, skip,
    within,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Longer than any test waits.
const FOR_EVER: Duration = Duration::from_secs(600);

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the port accepts connections");
    stream.set_read_timeout(Some(SOON)).expect("the timeout can be set");
    stream
}

/// Sends a command. Spaces separate its arguments.
fn send(stream: &mut TcpStream, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let bulks: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    stream
        .write_all(format!("*{}\r\n{bulks}", words.len()).as_bytes())
        .expect("the connection accepts bytes");
}

/// Reads as many bytes as `reply` has, and asserts that they are equal.
#[track_caller]
fn expect(stream: &mut TcpStream, reply: &str) {
    let mut bytes = vec![0; reply.len()];
    stream.read_exact(&mut bytes).expect("a reply");
    assert_eq!(String::from_utf8_lossy(&bytes), reply);
}

/// Reads until the other side closes or resets the connection, and returns the bytes.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    bytes
}

/// A server without the module behind a proxy, and a connection through the proxy.
fn behind_proxy() -> (Server, Proxy, TcpStream) {
    let server = Server::builder().without_module().tcp().start();
    let proxy = Proxy::to(&server);
    let stream = connect(proxy.port());
    (server, proxy, stream)
}

fn value(server: &Server, key: &str) -> Answer {
    server.connect().call(&["GET", key])
}

#[test]
fn a_fleet_is_several_independent_servers() {
    let mut fleet = Fleet::start(3);
    assert_eq!(fleet.urls().len(), 3);
    let ids: Vec<Answer> = fleet
        .iter()
        .map(|node| node.connect().call_strs("REDLOCK.NODE").field("node-id").cloned())
        .map(Option::unwrap)
        .collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
    assert!(fleet.is_free("a"));
    assert_eq!(fleet[1].connect().call_strs("REDLOCK.ACQUIRE a me 60000 FENCE 5"), Answer::Int(5));
    assert_eq!(fleet.fences("a"), [None, Some(5), None]);
    assert_eq!(fleet.calls("redlock.acquire"), [0, 1, 0]);
    fleet.reset_calls();
    assert_eq!(fleet.calls("redlock.acquire"), [0, 0, 0]);
    fleet[1].kill();
    assert!(fleet.is_free("a"));
    let url = fleet[1].url();
    fleet[1].restart();
    assert_eq!(fleet[1].url(), url, "a restarted node has the same address");
}

#[test]
fn a_proxy_forwards_and_counts_commands() {
    let (server, proxy, mut stream) = behind_proxy();
    send(&mut stream, "SET a 1");
    send(&mut stream, "GET a");
    expect(&mut stream, "+OK\r\n$1\r\n1\r\n");
    assert_eq!(
        (proxy.command_count("set"), proxy.command_count("GET"), proxy.command_count("DEL")),
        (1, 1, 0)
    );
    assert_eq!(proxy.accepted(), 1);
    drop(stream);
    let clients = || server.info("clients", "connected_clients").filter(|count| count == "1");
    eventually(
        "when a client closes its connection, the proxy closes its connection to the server",
        SOON,
        clients,
    );
}

#[test]
fn a_held_request_arrives_even_after_its_sender_has_closed() {
    let (server, proxy, mut stream) = behind_proxy();
    proxy.hold(Direction::ToServer);
    send(&mut stream, "SET a 1");
    eventually("the proxy has the command", SOON, || (proxy.command_count("SET") == 1).then_some(()));
    assert_eq!(value(&server, "a"), Answer::Nil);
    drop(stream);
    proxy.release_held();
    eventually("the command arrives", SOON, || (value(&server, "a") == Answer::text("1")).then_some(()));
}

#[test]
fn a_held_reply_arrives_after_the_faults_are_cleared() {
    let (server, proxy, mut stream) = behind_proxy();
    proxy.hold(Direction::ToClient);
    send(&mut stream, "SET a 1");
    eventually("the server has run the command", SOON, || {
        (value(&server, "a") == Answer::text("1")).then_some(())
    });
    stream.set_nonblocking(true).expect("the mode can be set");
    assert_eq!(stream.read(&mut [0]).expect_err("no reply yet").kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(false).expect("the mode can be set");
    proxy.clear_faults();
    expect(&mut stream, "+OK\r\n");
}

#[test]
fn a_dropped_request_or_reply_never_arrives() {
    let (server, proxy, mut stream) = behind_proxy();
    proxy.drop_bytes(Direction::ToClient);
    send(&mut stream, "SET a 1");
    eventually("the reply is lost", SOON, || (proxy.dropped() == 1).then_some(()));
    assert_eq!(value(&server, "a"), Answer::text("1"));
    proxy.clear_faults();
    let mut stream = connect(proxy.port());
    send(&mut stream, "GET a");
    expect(&mut stream, "$1\r\n1\r\n");
    proxy.drop_bytes(Direction::ToServer);
    send(&mut stream, "SET a 2");
    eventually("the command is lost", SOON, || (proxy.dropped() == 2).then_some(()));
    proxy.clear_faults();
    let mut stream = connect(proxy.port());
    send(&mut stream, "GET a");
    expect(&mut stream, "$1\r\n1\r\n");
}

/// TCP delivers bytes in order: none arrives after lost ones, so a reply is never matched to another request.
#[test]
fn nothing_arrives_on_a_connection_that_has_lost_bytes() {
    for lost in [Direction::ToServer, Direction::ToClient] {
        let (server, proxy, mut stream) = behind_proxy();
        proxy.drop_bytes(lost);
        send(&mut stream, "SET a 1");
        eventually("the bytes are lost", SOON, || (proxy.dropped() == 1).then_some(()));
        proxy.clear_faults();
        send(&mut stream, "SET b 2");
        stream.shutdown(Shutdown::Write).expect("the connection can be half closed");
        assert_eq!(rest(&mut stream), b"", "{lost:?}");
        let arrives = lost == Direction::ToClient;
        assert_eq!(value(&server, "b"), if arrives { Answer::text("2") } else { Answer::Nil }, "{lost:?}");
    }
}

#[test]
fn a_delay_has_its_length_and_can_be_ended_early() {
    let (_server, proxy, mut stream) = behind_proxy();
    for way in [Direction::ToServer, Direction::ToClient] {
        proxy.delay(way, Duration::from_millis(30));
        let sent = Instant::now();
        send(&mut stream, "PING");
        expect(&mut stream, "+PONG\r\n");
        assert!(sent.elapsed() >= Duration::from_millis(30));
        proxy.delay(way, FOR_EVER);
        send(&mut stream, "PING");
        proxy.clear_faults();
        expect(&mut stream, "+PONG\r\n");
    }
}

#[test]
fn a_cut_closes_old_connections_and_accepts_new_ones() {
    let (_server, proxy, mut stream) = behind_proxy();
    proxy.hold(Direction::ToServer);
    send(&mut stream, "SET a 1");
    proxy.cut();
    assert_eq!(rest(&mut stream), b"");
    proxy.clear_faults();
    let mut again = connect(proxy.port());
    send(&mut again, "GET a");
    expect(&mut again, "$-1\r\n");
}

#[test]
fn a_proxy_closes_or_refuses_connections_until_cleared() {
    let (_server, proxy, mut stream) = behind_proxy();
    proxy.close_new_connections();
    assert_eq!(rest(&mut stream), b"");
    assert_eq!(rest(&mut connect(proxy.port())), b"");
    proxy.refuse_connections();
    let refused = TcpStream::connect(("127.0.0.1", proxy.port())).expect_err("the proxy does not listen");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    proxy.clear_faults();
    let mut again = connect(proxy.port());
    send(&mut again, "PING");
    expect(&mut again, "+PONG\r\n");
}

#[test]
fn a_proxy_cuts_a_connection_after_a_number_of_bytes() {
    let (server, proxy, mut stream) = behind_proxy();
    send(&mut stream, "SET a 1234567890");
    expect(&mut stream, "+OK\r\n");
    proxy.cut_after(Direction::ToClient, 12);
    send(&mut stream, "PING");
    expect(&mut stream, "+PONG\r\n");
    send(&mut stream, "GET a");
    assert_eq!(rest(&mut stream), b"$10\r\n");
    let mut again = connect(proxy.port());
    proxy.cut_after(Direction::ToServer, 10);
    send(&mut again, "SET a 2");
    assert_eq!(rest(&mut again), b"");
    assert_eq!(value(&server, "a"), Answer::text("1234567890"));
}

#[test]
fn an_injected_fault_hits_only_the_next_command_of_its_name() {
    let (server, proxy, mut stream) = behind_proxy();
    for (fault, runs) in
        [(CommandFault::CutBefore, false), (CommandFault::CutInside, false), (CommandFault::DropReply, true)]
    {
        server.connect().call_strs("DEL a");
        proxy.inject("SET", fault);
        send(&mut stream, "PING");
        expect(&mut stream, "+PONG\r\n");
        send(&mut stream, "SET a 1");
        assert_eq!(rest(&mut stream), b"", "{fault:?}");
        assert_eq!(value(&server, "a") == Answer::text("1"), runs, "{fault:?}");
        stream = connect(proxy.port());
        send(&mut stream, "SET b 1");
        expect(&mut stream, "+OK\r\n");
    }
}

#[tokio::test]
async fn an_injected_hold_stops_one_connection_and_no_other() {
    let (server, proxy, mut stream) = behind_proxy();
    proxy.inject("SET", CommandFault::Hold);
    send(&mut stream, "SET a 1");
    send(&mut stream, "GET a");
    proxy.until_hit().await;
    proxy.until_command_count("get", 1).await;
    let mut other = connect(proxy.port());
    send(&mut other, "SET b 1");
    expect(&mut other, "+OK\r\n");
    assert_eq!(value(&server, "a"), Answer::Nil);
    proxy.release_held();
    expect(&mut stream, "+OK\r\n$1\r\n1\r\n");
}

#[test]
fn a_command_can_be_delivered_after_its_connection_has_closed() {
    let (server, proxy, mut stream) = behind_proxy();
    proxy.inject("SET", CommandFault::DeliverAfterClose);
    send(&mut stream, "SET a 1");
    send(&mut stream, "SET b 1");
    assert_eq!(rest(&mut stream), b"");
    drop(stream);
    let mut again = connect(proxy.port());
    send(&mut again, "GET a");
    expect(&mut again, "$-1\r\n");
    proxy.release_held();
    eventually("the command arrives", SOON, || (value(&server, "a") == Answer::text("1")).then_some(()));
    assert_eq!(value(&server, "b"), Answer::Nil, "the commands after it are lost");
}

#[test]
fn a_forged_reply_replaces_only_the_reply_to_its_command() {
    let (server, proxy, mut stream) = behind_proxy();
    proxy.forge_reply("SET", "!nonsense");
    send(&mut stream, "PING");
    send(&mut stream, "SET a 1");
    send(&mut stream, "GET a");
    expect(&mut stream, "+PONG\r\n!nonsense$1\r\n1\r\n");
    assert_eq!(value(&server, "a"), Answer::text("1"));
}

#[test]
fn pushes_can_be_dropped_without_dropping_replies() {
    let (server, proxy, mut stream) = behind_proxy();
    let publish = |text: &str| drop(server.connect().call(&["PUBLISH", "news", text]));
    send(&mut stream, "HELLO 3");
    send(&mut stream, "SUBSCRIBE news");
    let mut received = Vec::new();
    let has_subscribed = || {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an open connection");
        received.push(byte[0]);
        received.ends_with(b"$4\r\nnews\r\n:1\r\n").then_some(())
    };
    eventually("the client has subscribed", SOON, has_subscribed);
    publish("first");
    expect(&mut stream, ">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nfirst\r\n");
    proxy.drop_pushes();
    publish("second");
    send(&mut stream, "PING");
    expect(&mut stream, "+PONG\r\n");
    assert_eq!(proxy.dropped(), 1);
    proxy.clear_faults();
    publish("third");
    expect(&mut stream, ">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nthird\r\n");
}

#[test]
fn a_server_requires_its_password_and_the_harness_sends_it() {
    let mut server = Server::builder().password("sesame").user("app", "on >secret ~* +get").tcp().start();
    assert_eq!(server.connect().call_strs("PING"), Answer::Status("PONG".into()));
    let mut stream = connect(server.port().expect("a port"));
    send(&mut stream, "PING");
    assert!(
        within(SOON, || {
            let mut first = [0];
            stream.read_exact(&mut first).ok().map(|()| first == *b"-")
        })
        .is_some_and(|refused| refused)
    );
    let mut user = connect(server.port().expect("a port"));
    send(&mut user, "AUTH app secret");
    expect(&mut user, "+OK\r\n");
    server.restart();
    assert_eq!(server.connect().call_strs("PING"), Answer::Status("PONG".into()));
}

#[test]
fn the_tls_port_of_a_server_rejects_plain_text() {
    let certs = Certs::new();
    let server = Server::builder().tls(&certs, ClientCertificate::Required);
    let server = match server.try_start() {
        Ok(server) => server,
        Err(failure) if failure.lacks_tls() => return skip("this server was built without TLS"),
        Err(failure) => panic!("{failure}"),
    };
    let proxy = Proxy::to_tls(&server);
    let mut stream = connect(proxy.port());
    // These bytes are no TLS handshake. The server answers with an alert, which the proxy forwards.
    stream.write_all(b"hello, is anybody there?").expect("the connection accepts bytes");
    assert_ne!(rest(&mut stream).first(), Some(&b'-'), "a server without TLS answered with an error");
    assert!(server.tls_port().is_some());
}
