//! Loopback ports that stay with whoever got them.

use std::net::SocketAddr;
use tokio::net::TcpSocket;

/// A loopback port that nobody else is given while this value lives, whether or not somebody listens on it.
///
/// A socket that is bound and does not listen keeps the port: others that listen with `SO_REUSEADDR`, as
/// servers do, may still take it by number. Without it a node's port would be up for grabs between its death
/// and its restart, and a client that knocks at a dead port of its own machine could even reach itself.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _reservation: TcpSocket,
}

impl Port {
    /// A port that is free now.
    pub(crate) fn reserve() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("a socket can be told to share its port");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free loopback port");
        let number = socket.local_addr().expect("a bound socket has an address").port();
        Self { number, _reservation: socket }
    }

    /// Its number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_reserved_port_refuses_connections_until_somebody_listens() {
        let port = Port::reserve();
        let address = ("127.0.0.1", port.number());
        for _ in 0..2 {
            let refused = TcpStream::connect(address).expect_err("nobody listens");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            let listener = TcpListener::bind(address).expect("its holder may listen on it");
            TcpStream::connect(address).expect("somebody listens");
            drop(listener);
        }
    }

    #[test]
    fn a_port_is_given_to_one_only() {
        let ports: Vec<Port> = (0..500).map(|_| Port::reserve()).collect();
        let numbers: HashSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
    }
}
