//! Reserved loopback ports.

use std::net::SocketAddr;
use tokio::net::TcpSocket;

/// A loopback port that the kernel gives to no other process while this value lives, with or without a listener.
///
/// A socket that is bound and does not listen reserves the port. A server that listens with `SO_REUSEADDR` can still
/// take it by number. Without the reservation, another process could get a node's port between the node's death and its
/// restart, and a client that connects to an unused port of its own machine could even connect to itself.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _reservation: TcpSocket,
}

impl Port {
    /// Reserves a free port.
    pub(crate) fn reserve() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("SO_REUSEADDR can be set");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free loopback port");
        let number = socket.local_addr().expect("a bound socket has an address").port();
        Self { number, _reservation: socket }
    }

    /// The port number.
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
    fn a_reserved_port_refuses_connections_until_a_server_listens() {
        let port = Port::reserve();
        let address = ("127.0.0.1", port.number());
        for _ in 0..2 {
            let refused = TcpStream::connect(address).expect_err("a port without a listener");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            let listener = TcpListener::bind(address).expect("a server can listen on a reserved port");
            TcpStream::connect(address).expect("a port with a listener");
            drop(listener);
        }
    }

    #[test]
    fn every_reserved_port_is_unique() {
        let ports: Vec<Port> = (0..500).map(|_| Port::reserve()).collect();
        let numbers: HashSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
    }
}
