//! A proxy that simulates a slow network: each reply of a server arrives later by a fixed delay.
//!
//! The proxy is this program in another mode, in a separate process, so that its CPU time does not count as the
//! client's. It ends when its standard input is closed, so with the process that started it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// The argument that starts this program as the proxy.
pub(crate) const MODE: &str = "delays";

/// A running proxy: loopback ports that lead to servers, each with its own delay.
pub(crate) struct Delays {
    pub(crate) ports: Vec<u16>,
    child: Child,
    _life_line: Option<ChildStdin>,
}

impl Delays {
    /// Starts a proxy for these loopback ports, each with its delay. `ports` has the same order.
    pub(crate) fn start(ways: &[(Duration, u16)]) -> Self {
        let program = std::env::current_exe().expect("the path of this program");
        let mut command = Command::new(program);
        command.arg(MODE).stdin(Stdio::piped()).stdout(Stdio::piped());
        for (delay, port) in ways {
            command.arg(format!("{}:{port}", delay.as_micros()));
        }
        let mut child = command.spawn().expect("this program can be started");
        let life_line = child.stdin.take();
        let told = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        let ports = told.lines().take(ways.len()).map(|line| {
            let line = line.expect("the proxy prints its ports");
            line.parse().expect("a line is a port")
        });
        Self { ports: ports.collect(), child, _life_line: life_line }
    }
}

impl Drop for Delays {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the proxy. Each argument is `MICROSECONDS:PORT`; prints for each the port to use instead.
pub(crate) fn serve(ways: &[String]) {
    for way in ways {
        let (delay, port) = way.split_once(':').expect("delay:port");
        let delay = Duration::from_micros(delay.parse().expect("a delay in microseconds"));
        let port: u16 = port.parse().expect("a port");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free loopback port");
        println!("{}", listener.local_addr().expect("a bound socket has an address").port());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", port)) {
                    join(client, server, delay);
                }
            }
        });
    }
    // Nobody writes to the input: the read returns when the parent process ends.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Forwards bytes to the server at once, and back to the client after the delay.
fn join(client: TcpStream, server: TcpStream, delay: Duration) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("a socket takes the option");
    }
    let copy = |stream: &TcpStream| stream.try_clone().expect("a socket can be shared");
    let (mut client_reads, mut server_writes) = (copy(&client), copy(&server));
    thread::spawn(move || {
        let _ = std::io::copy(&mut client_reads, &mut server_writes);
        let _ = server_writes.shutdown(Shutdown::Both);
    });
    let (mut server, mut client) = (server, client);
    let (later, due) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = server.read(&mut buffer) {
            let _ = later.send((Instant::now() + delay, buffer[..count].to_vec()));
        }
    });
    thread::spawn(move || {
        for (when, bytes) in due {
            thread::sleep(when.saturating_duration_since(Instant::now()));
            if client.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    });
}
